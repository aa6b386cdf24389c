// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promguard/promguard/internal/promapi"
	"github.com/promguard/promguard/internal/relabel"
)

// OfServer estimates what the rules save of a live server, as Live counts it. interval is
// that of jobs whose own cannot be found out.
func OfServer(ctx context.Context, p relabel.Profile, api *promapi.Client, interval time.Duration) (*Estimate, error) {
	counts, err := Live(ctx, p, api)
	if err != nil {
		return nil, err
	}
	in, notes := LiveIntervals(ctx, api, counts.Jobs(), interval)
	counts.Notes = append(counts.Notes, notes...)
	return New(p, counts, in, LiveSizes(ctx, api)), nil
}

// Live counts what the rules drop of a live server, within the server's budget:
// metric names are split into small groups, and each is counted by one query.
// Where a name has more series than one query may read, the series in memory count
// if all of them go; otherwise a sample of targets is counted, or the rule is
// unknown. The error is that of an invalid profile, or of
// a server that does not say which names it has.
func Live(ctx context.Context, p relabel.Profile, api *promapi.Client) (Counts, error) {
	l, err := newLive(p, api)
	if err != nil {
		return Counts{}, err
	}
	names, err := api.Names(ctx)
	if err != nil {
		return Counts{}, err
	}
	l.askHead(ctx)
	l.askTotals(ctx)
	batches, err := l.batches(names)
	if err != nil {
		return Counts{}, err
	}
	for _, b := range batches {
		l.count(ctx, b)
	}
	for _, w := range api.Warnings() {
		l.counts.Notes = append(l.counts.Notes, fmt.Sprintf("The server warned, and may have left something out: %s.", w))
	}
	l.counts.Notes = append(l.counts.Notes,
		fmt.Sprintf("%d requests were made.", api.Requests()))
	return l.counts, ctx.Err()
}

// live is one count of a server.
type live struct {
	api     *promapi.Client
	dropper *relabel.Dropper
	scopes  []scope
	counts  Counts

	head    promapi.Head
	samples map[string]*targetSample
}

func newLive(p relabel.Profile, api *promapi.Client) (*live, error) {
	dropper, err := relabel.Compile(p)
	if err != nil {
		return nil, err
	}
	l := &live{api: api, dropper: dropper, counts: newCounts("the series of "+api.String()+" that got samples lately", p), samples: map[string]*targetSample{}}
	for _, r := range p.Rules {
		sc, err := newScope(r)
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.ID, err)
		}
		l.scopes = append(l.scopes, sc)
	}
	return l, nil
}

// askHead finds out how large metrics are, so that no query reads too much.
func (l *live) askHead(ctx context.Context) {
	head, err := l.api.Head(ctx)
	l.head = head
	if err != nil {
		l.counts.Notes = append(l.counts.Notes,
			fmt.Sprintf("How many series a metric has could not be asked beforehand (%s), so that only time bounds what a query reads.", err))
		return
	}
	l.counts.Head = head.Series
}

// askTotals finds out how many series are scraped of each job, from the samples
// that scrapes report.
func (l *live) askTotals(ctx context.Context) {
	rows, err := l.api.Query(ctx, "sum by (job) (scrape_samples_post_metric_relabeling)")
	if err != nil {
		l.counts.Notes = append(l.counts.Notes, fmt.Sprintf("How many series there are could not be asked: %s.", err))
		return
	}
	for _, r := range rows {
		l.counts.All[r.Labels.Get(model.JobLabel)] += rounded(r.Value)
	}
	rows, err = l.api.Query(ctx, "sum(scrape_samples_scraped - scrape_samples_post_metric_relabeling)")
	if err == nil && len(rows) == 1 {
		l.counts.AlreadyDropped = rounded(rows[0].Value)
	}
}

func rounded(v float64) int {
	if math.IsNaN(v) || v < 0 || v > math.MaxInt32*1000 {
		return 0
	}
	return int(math.Round(v))
}

// batch are names that the same rules may drop series of, and that are counted by
// one query.
type batch struct {
	promapi.Batch

	// rules are indices, ascending.
	rules []int
}

// batches returns what is to be counted, the largest first.
func (l *live) batches(names []string) ([]batch, error) {
	type group struct {
		rules []int
		names []string
	}
	groups := map[string]*group{}
	for _, name := range names {
		rules, err := l.rulesOf(name)
		if err != nil {
			return nil, err
		}
		if len(rules) == 0 {
			continue
		}
		key := fmt.Sprint(rules)
		if groups[key] == nil {
			groups[key] = &group{rules: rules}
		}
		groups[key].names = append(groups[key].names, name)
	}
	var out []batch
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		g := groups[key]
		for _, b := range l.head.Batches(g.names, l.api.Budget().Series) {
			out = append(out, batch{b, g.rules})
		}
	}
	slices.SortStableFunc(out, func(a, b batch) int { return cmp.Compare(b.Series, a.Series) })
	return out, nil
}

// rulesOf returns the rules that may drop series of the name.
func (l *live) rulesOf(name string) ([]int, error) {
	var out []int
	for i := range l.scopes {
		ok, err := l.scopes[i].concerns(name)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, i)
		}
	}
	return out, nil
}

// count counts what the rules drop of the names.
func (l *live) count(ctx context.Context, b batch) {
	if b.Series > l.api.Budget().Series {
		l.countLarge(ctx, b)
		return
	}
	found, err := l.query(ctx, b, nil)
	if err != nil {
		l.failed(b, err)
		return
	}
	l.add(found)
}

// dropped are series that a rule drops in a job.
type dropped struct {
	rule int
	job  string
}

func (l *live) add(found map[dropped]float64) {
	for of, v := range found {
		l.counts.ByRule[of.rule][of.job] += rounded(v)
	}
}

// failed notes that the rules' series of the names are not counted.
func (l *live) failed(b batch, err error) {
	for _, rule := range b.rules {
		l.counts.unknown(rule, "%s could not be counted: %s", someNames(b.Names), err)
	}
}

func someNames(names []string) string {
	if len(names) > 2 {
		return fmt.Sprintf("%s, %s and %d more metrics", names[0], names[1], len(names)-2)
	}
	return strings.Join(names, " and ")
}

// query counts what the rules drop of the names' series with the matchers.
func (l *live) query(ctx context.Context, b batch, matchers []*labels.Matcher) (map[dropped]float64, error) {
	by := []string{model.MetricNameLabel, model.JobLabel}
	only := -1
	if rule := b.rules[0]; len(b.rules) == 1 && l.scopes[rule].matchers != nil && l.scopes[rule].many {
		// The server finds the series: otherwise there could be a row for each.
		only = rule
		matchers = slices.Concat(matchers, l.scopes[rule].matchers)
	} else {
		for _, rule := range b.rules {
			by = append(by, l.scopes[rule].labels...)
		}
	}
	rows, err := l.api.Query(ctx, fmt.Sprintf("count by (%s) (%s)", grouping(by), promapi.Selector(b.Names, matchers...)))
	if err != nil {
		return nil, err
	}
	found := map[dropped]float64{}
	for _, r := range rows {
		rule, drop := only, true
		if only < 0 {
			rule, drop = l.dropper.Drop(r.Labels)
		}
		if drop {
			found[dropped{rule, r.Labels.Get(model.JobLabel)}] += r.Value
		}
	}
	return found, nil
}

func grouping(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	for i, n := range names {
		names[i] = promapi.LabelName(n)
	}
	return strings.Join(names, ", ")
}

// LiveSizes returns sizes with the bytes per series of the server's build, and the
// bytes per sample that it says of its compactions, if it scrapes itself.
func LiveSizes(ctx context.Context, api *promapi.Client) Sizes {
	sizes := ModelSizes()
	if rows, err := api.Query(ctx, `count(prometheus_build_info{version=~".+[+]promguard[.].+"}) == count(prometheus_build_info)`); err == nil && len(rows) == 1 {
		sizes = sizes.Patched()
	}
	rows, err := api.Query(ctx, "sum(prometheus_tsdb_compaction_chunk_size_bytes_sum) / sum(prometheus_tsdb_compaction_chunk_samples_sum)")
	if err != nil || len(rows) != 1 || !(rows[0].Value > 0) || math.IsInf(rows[0].Value, 0) {
		return sizes
	}
	sizes.BlockBytesPerSample, sizes.BlockSource = rows[0].Value, "measured here"
	return sizes
}
