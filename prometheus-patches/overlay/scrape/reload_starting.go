// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import "time"

// reloadUntil reloads with every update of the targets until the tick.
func (m *Manager) reloadUntil(tick <-chan time.Time) {
	for {
		select {
		case <-m.graceShut:
			return
		case <-tick:
			return
		case <-m.triggerReload:
			m.reload()
		}
	}
}
