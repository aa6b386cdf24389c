// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// AddLabels is Add for labels that are not together. The postings keep strings of them.
func (p *MemPostings) AddLabels(id storage.SeriesRef, ls []labels.Label) {
	p.mtx.Lock()
	defer p.mtx.Unlock()
	for _, l := range ls {
		p.addFor(id, l)
	}
	p.addFor(id, allPostingsKey)
}
