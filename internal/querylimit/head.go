// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"cmp"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// Head is what a server says of the series that it takes samples in for. It is
// immutable.
type Head struct {
	// Series is how many there are.
	Series int
	// Counts is how many have a value of a label. Of what it does not list, a metric
	// has UnlistedMetric series at most, and a value of another label UnlistedValue.
	Counts                        map[string]map[string]int
	UnlistedMetric, UnlistedValue int
	// Values is how many values a label has, of all that there are.
	Values map[string]int
	// Since is when the head begins, and Oldest the first sample that the server has.
	Since, Oldest time.Time
	// Interval is the shortest time between two samples of a series.
	Interval time.Duration
	// Memory is how much the server may take, in bytes, and Resident how much it does; 0
	// if it does not tell.
	Memory, Resident int64
}

// What a server takes for what it holds for a query, in bytes, as measured; see
// docs/limits/series.md. A query may have a quarter of its memory: one of
// kube-prometheus's over a day takes 0.245 of 2.5 times what its series take.
const (
	bytesPerSeries  = 7 << 9
	bytesPerSample  = 24
	sharePerQuery   = 0.246
	leastMemory     = 512 << 20
	unknownMemory   = 4 << 30
	samplesOfSeries = 200_000 // where nobody knows how many series there are
	unknownInterval = time.Minute
)

// share returns how many bytes a query may have.
func (h *Head) share() float64 {
	return sharePerQuery * float64(max(cmp.Or(h.Memory, unknownMemory), leastMemory))
}

// Room returns how many bytes of its memory the server has for requests: what it does not
// take, but not less than one request may have.
func (h *Head) Room() int64 { return max(h.Memory-h.Resident, int64(sharePerQuery*float64(h.Memory))) }

// maxLooks is at how many values the regular expressions of a query are tried. What is
// beyond bounds nothing.
const maxLooks = 30_000

// bound returns how many series of the head a selector has at most. Looks are at how many
// values its regular expressions may be tried yet.
func (h *Head) bound(ms []*labels.Matcher, looks *int) float64 {
	least := h.Series
	for _, m := range ms {
		if n, ok := h.boundOf(m, looks); ok {
			least = min(least, n)
		}
	}
	return float64(least)
}

// boundOf returns how many series one matcher leaves at most; ok is false if it bounds
// nothing: series without the label match, too, or nobody knows how many values it has.
func (h *Head) boundOf(m *labels.Matcher, looks *int) (n int, ok bool) {
	switch {
	case m.Matches("") && m.Name != labels.MetricName: // Every series has a name.
		return 0, false
	case m.Type == labels.MatchEqual:
		return h.count(m.Name, m.Value), true
	case m.Type == labels.MatchRegexp && len(m.SetMatches()) > 0:
		for _, value := range m.SetMatches() {
			n += h.count(m.Name, value)
		}
		return n, true
	}
	if *looks -= len(h.Counts[m.Name]); *looks < 0 {
		return 0, false
	}
	listed := 0
	for value, series := range h.Counts[m.Name] {
		listed += series
		if m.Matches(value) {
			n += series
		}
	}
	unlisted, ok := h.unlisted(m.Name, listed)
	return n + unlisted, ok
}

// unlisted returns how many series have values of a label at most that are not listed,
// where so many have those that are; ok is false if nobody knows.
func (h *Head) unlisted(label string, listed int) (n int, ok bool) {
	switch {
	case label == labels.MetricName && h.UnlistedMetric > 0:
		return max(h.Series-listed, 0), true
	case label == labels.MetricName || h.UnlistedValue == 0:
		return 0, true
	}
	return max(h.Values[label]-len(h.Counts[label]), 0) * h.UnlistedValue, h.Values[label] > 0
}

func (h *Head) count(label, value string) int {
	if n, ok := h.Counts[label][value]; ok {
		return n
	}
	if label == labels.MetricName {
		return h.UnlistedMetric
	}
	return h.UnlistedValue
}

// groups returns how many groups series make by labels at most, having none of a label
// being a value of it, too. One label may be left out.
func (h *Head) groups(series float64, by []string, without string) float64 {
	groups := 1.0
	for _, label := range by {
		if label != without {
			groups *= float64(h.Values[label] + 1)
		}
	}
	return min(groups, series)
}
