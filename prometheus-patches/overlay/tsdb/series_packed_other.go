// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build slicelabels || dedupelabels

package tsdb

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

// packedLabels are labels as they are: those of this implementation are not packed.
type packedLabels struct{ lset labels.Labels }

type labelsPacker struct{}

var seriesPacker labelsPacker

func (labelsPacker) forget() {}

func packLabels(lset labels.Labels) packedLabels { return packedLabels{lset} }

func (p *packedLabels) Labels() labels.Labels { return p.lset }

func (p *packedLabels) equalPacked(o *packedLabels) bool { return labels.Equal(p.lset, o.lset) }

func (p *packedLabels) Hash() uint64 { return p.lset.Hash() }

func (p *packedLabels) String() string { return p.lset.String() }

func (p *packedLabels) Range(f func(labels.Label)) { p.lset.Range(f) }

func (p *packedLabels) appendLabels(ls []labels.Label) []labels.Label {
	p.lset.Range(func(l labels.Label) { ls = append(ls, l) })
	return ls
}

func (s *memSeries) hasLabels(lset labels.Labels) bool { return labels.Equal(s.labels(), lset) }

func (s *memSeries) sameLabels(o *memSeries) bool { return labels.Equal(s.labels(), o.labels()) }

func (s *memSeries) rangeLabels(f func(labels.Label)) { s.labels().Range(f) }

type labelsReader struct{}

func (h *headIndexReader) readOnce(bool) *headIndexReader { return h }

func (labelsReader) of(_ *Head, s *memSeries) labels.Labels { return s.labels() }

type wholeLabels struct{}

func (wholeLabels) forget() {}

func labelsOfKey(_ string, lset labels.Labels) labels.Labels { return lset }

func sortByLabels(series []*memSeries, done func() bool) {
	slices.SortFunc(series, func(a, b *memSeries) int {
		if done() {
			return 0
		}
		return labels.Compare(a.labels(), b.labels())
	})
}
