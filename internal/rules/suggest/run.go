// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/promguard/promguard/internal/promapi"
	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/evaluate"
)

// lookedInto is how many of the metrics that are read, those with most series,
// are looked into for labels.
const lookedInto = 40

// Scan suggests at most top rules for scrapes, beside those of a built-in profile,
// which the file extends. What that drops is no part of what is counted.
func (f *Finder) Scan(name string, series []evaluate.Series, extends relabel.Profile, top int) (*Report, error) {
	f.base = extends
	series, err := stays(series, extends)
	if err != nil {
		return nil, err
	}
	counts := countNames(series)
	r, err := f.report(counts, countValues(series, f.Labels(counts, lookedInto)), top)
	if err != nil {
		return nil, err
	}
	r.Source, r.Total = f.left(name), len(series)
	return r, nil
}

// Live suggests at most top rules for a live server, within its budget. The file
// extends the profile given, or if that is nil the built-in profile that the server
// runs.
func (f *Finder) Live(ctx context.Context, api *promapi.Client, extends *relabel.Profile, top int) (*Report, error) {
	force := profileInForce(ctx, api)
	if extends == nil {
		extends = &force.builtin
	}
	f.base = *extends
	counts, notes, err := liveCounts(ctx, api, f.Unread)
	if err != nil {
		return nil, err
	}
	values := liveValues(ctx, api, counts, f.Labels(counts, lookedInto))
	r, err := f.report(counts, values, top)
	if err != nil {
		return nil, err
	}
	r.Source, r.Notes, r.InForce = api.String(), notes, force.warning(f.base)
	if force.builtin.Name == f.base.Name {
		r.Source = f.left(r.Source)
	} else if len(f.base.Rules) > 0 {
		r.Notes = append(r.Notes, "What the extended profile drops of these series is counted with them.")
	}
	if rows, err := api.Query(ctx, "sum(scrape_samples_post_metric_relabeling)"); err == nil && len(rows) == 1 {
		r.Total = int(rows[0].Value)
	}
	for _, w := range api.Warnings() {
		r.Notes = append(r.Notes, fmt.Sprintf("The server warned, and may have left something out: %s.", w))
	}
	return r, ctx.Err()
}

// left says what of a source was counted.
func (f *Finder) left(source string) string {
	if len(f.base.Rules) == 0 {
		return source
	}
	return fmt.Sprintf("what the profile %s leaves of %s", f.base.Name, source)
}

func (f *Finder) report(counts map[string]Count, values map[string]map[string]map[string]int, top int) (*Report, error) {
	r := &Report{Evidence: f.evidence, base: f.base}
	candidates := first(slices.Concat(f.Whole(counts, top), f.ByValue(values, top)), top)
	p, err := f.prove(candidates, f.evidence.Reason())
	if err != nil {
		return nil, err
	}
	r.Suggestions, r.Refused, r.Seen = p.proved, p.refused, p.seen
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
