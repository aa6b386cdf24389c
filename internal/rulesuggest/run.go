// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rulesuggest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/promguard/promguard/internal/inventory"
	"github.com/promguard/promguard/internal/relabel"
)

// lookedInto is how many of the metrics that are read, those with most series,
// are looked into for labels.
const lookedInto = 40

// Scan suggests at most top rules for a source that is read as a whole.
func (f *Finder) Scan(ctx context.Context, name string, series inventory.Source, top int) (*Report, error) {
	counts, err := inventory.CountNames(ctx, series)
	if err != nil {
		return nil, err
	}
	values, err := inventory.Values(ctx, series, f.Labels(counts, lookedInto))
	if err != nil {
		return nil, err
	}
	merges, err := inventory.Merges(ctx, series, f.read(counts, lookedInto), f.Named)
	if err != nil {
		return nil, err
	}
	r, err := f.report(counts, values, top)
	if err != nil {
		return nil, err
	}
	r.Source = name
	for _, c := range counts {
		r.Total += c.Series
	}
	for _, m := range merges {
		if len(r.Merges) < maxListed && m.Without <= m.Series/2 {
			r.Merges = append(r.Merges, m)
		}
	}
	return r, nil
}

// Live suggests at most top rules for a live server, within its budget.
func (f *Finder) Live(ctx context.Context, s *inventory.Server, top int) (*Report, error) {
	counts, notes, err := s.CountNames(ctx, f.Unread)
	if err != nil {
		return nil, err
	}
	values := s.Values(ctx, counts, f.Labels(counts, lookedInto))
	r, err := f.report(counts, values, top)
	if err != nil {
		return nil, err
	}
	r.Source, r.Notes = s.String(), notes
	if rows, err := s.Query(ctx, "sum(scrape_samples_post_metric_relabeling)"); err == nil && len(rows) == 1 {
		r.Total = int(rows[0].Value)
	}
	return r, ctx.Err()
}

func (f *Finder) report(counts map[string]inventory.Count, values map[string]map[string]map[string]int, top int) (*Report, error) {
	r := &Report{Evidence: f.evidence}
	var err error
	candidates := first(slices.Concat(f.Whole(counts, top), f.ByValue(values, top)), top)
	if r.Suggestions, r.Refused, err = f.Prove(candidates, f.evidence.Reason()); err != nil {
		return nil, err
	}
	if r.Blockers, err = f.Blockers(); err != nil {
		return nil, err
	}
	for name, c := range counts {
		if f.Recorded(name) && !f.concerns(name) && c.Series > 0 {
			r.Recorded = append(r.Recorded, Suggestion{Series: c.Series, Rule: relabel.Rule{Regex: name, Saving: fmt.Sprintf("%d series", c.Series)}})
		}
	}
	slices.SortFunc(r.Recorded, func(a, b Suggestion) int {
		return cmp.Or(cmp.Compare(b.Series, a.Series), cmp.Compare(a.Rule.Regex, b.Rule.Regex))
	})
	r.Recorded = r.Recorded[:min(maxListed, len(r.Recorded))]
	return r, nil
}
