// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package index

// Count returns how many series have the label.
func (p *MemPostings) Count(name, value string) int {
	p.mtx.RLock()
	defer p.mtx.RUnlock()
	return len(p.m[name][value])
}
