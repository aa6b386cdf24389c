// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package ruleestimate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promguard/promguard/internal/promapi"
	"github.com/promguard/promguard/internal/relabel"
)

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
		fmt.Sprintf("%d requests were made. Series that the server drops already are not there to be counted.", api.Requests()))
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
		n := rounded(r.Value)
		l.counts.addAll(r.Labels.Get(model.JobLabel), Tally{Series: n, Unrated: n})
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
		n := rounded(v)
		l.counts.add(of.rule, of.job, Tally{Series: n, Unrated: n})
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

// errTooLarge says that a metric is too large to be counted.
var errTooLarge = errors.New("too large")

// countLarge counts a single name that has more series than a query may read.
func (l *live) countLarge(ctx context.Context, b batch) {
	name := b.Names[0]
	known, ok := l.head.ByName[name]
	if rule := b.rules[0]; ok && l.scopes[rule].wholeNames {
		// Later rules meet none of its series.
		l.counts.add(rule, "", Tally{Series: known, Unrated: known})
		l.approximate(rule, fmt.Sprintf("of %s all series in memory count, churned ones included", name))
		return
	}
	if err := l.countSample(ctx, b); err != nil {
		l.failed(b, fmt.Errorf("it has up to %d series, more than the %d that a query may read (--max-series): %w", b.Series, l.api.Budget().Series, err))
		return
	}
	for _, rule := range b.rules {
		l.approximate(rule, "counted on a sample of targets and scaled up to the series in memory, churned ones included: how far off that is has no bound")
	}
}

func (l *live) approximate(rule int, what string) {
	if !strings.Contains(l.counts.Approximate[rule], what) {
		l.counts.Approximate[rule] = strings.TrimPrefix(l.counts.Approximate[rule]+"; "+what, "; ")
	}
}

// targetSample are some of the targets of a job, at random.
type targetSample struct {
	instances []string
	// of is how many instances the job has.
	of int
}

// minSample is how many targets a sample has at least.
const (
	minSample = 3
	maxSample = 20
)

// maxScale bounds by how much what a sample stands for may differ from the series in
// memory. A metric that most targets do not have, or whose series are mostly of no
// target in up, is not counted on a sample. Series that have ended are in memory for
// some hours, which explains a factor of a few.
const maxScale = 5

// jobSample is what a sample of a job's targets has of a name.
type jobSample struct {
	dropped map[dropped]float64
	// series are those of the sample, all those of it times scale.
	series, scale float64
}

// countSample counts a name on some targets of each job, and scales that to the
// series that the server says the name has.
func (l *live) countSample(ctx context.Context, b batch) error {
	jobs, err := l.api.Jobs(ctx, b.Names[0])
	if err != nil {
		return err
	}
	if len(jobs) == 0 {
		return fmt.Errorf("%w: its series have no job", errTooLarge)
	}
	var parts []jobSample
	total := 0.0
	for _, job := range jobs {
		part, err := l.countJob(ctx, b, job)
		if err != nil {
			return err
		}
		parts = append(parts, part)
		total += part.series * part.scale
	}
	scale := 1.0
	if known := float64(l.head.ByName[b.Names[0]]); known > 0 {
		if scale = known / total; scale > maxScale || scale < 1.0/maxScale {
			return fmt.Errorf("%w: a sample of targets stands for %.0f series of %.0f, so that it says little", errTooLarge, total, known)
		}
	}
	all := map[dropped]float64{}
	for _, part := range parts {
		for of, n := range part.dropped {
			all[of] += n * part.scale * scale
		}
	}
	l.add(all)
	return nil
}

// countJob counts a name on some targets of a job. The error is also that there are
// none of its series.
func (l *live) countJob(ctx context.Context, b batch, job string) (jobSample, error) {
	sample, err := l.sampleOf(ctx, job)
	if err != nil {
		return jobSample{}, err
	}
	if sample.of == 0 {
		return jobSample{}, fmt.Errorf("%w: job %q is not in up, so that there are no targets for a sample", errTooLarge, job)
	}
	// All series may be of this job.
	n := min(len(sample.instances), sample.of*l.api.Budget().Series/b.Series)
	if n < min(minSample, sample.of) {
		return jobSample{}, fmt.Errorf("%w: job %q has %d instances, too few for a sample", errTooLarge, job, sample.of)
	}
	matchers := []*labels.Matcher{
		labels.MustNewMatcher(labels.MatchEqual, model.JobLabel, job),
		labels.MustNewMatcher(labels.MatchRegexp, model.InstanceLabel, promapi.OneOf(sample.instances[:n])),
	}
	rows, err := l.api.Query(ctx, fmt.Sprintf("count(%s)", promapi.Selector(b.Names, matchers...)))
	if err != nil {
		return jobSample{}, err
	}
	part := jobSample{scale: float64(sample.of) / float64(n)}
	for _, r := range rows {
		part.series += r.Value
	}
	if part.series == 0 {
		return jobSample{}, fmt.Errorf("%w: the %d targets of job %q that were looked at have none of it", errTooLarge, n, job)
	}
	part.dropped, err = l.query(ctx, b, matchers)
	return part, err
}

// sampleOf chooses targets of a job: not those that come first, which are
// neighbours and alike.
func (l *live) sampleOf(ctx context.Context, job string) (*targetSample, error) {
	if s := l.samples[job]; s != nil {
		return s, nil
	}
	up := promapi.Selector([]string{"up"}, labels.MustNewMatcher(labels.MatchEqual, model.JobLabel, job))
	rows, err := l.api.Query(ctx, fmt.Sprintf("group by (instance) (%s)", up))
	if err != nil {
		return nil, err
	}
	s := &targetSample{of: len(rows)}
	for _, i := range rand.Perm(len(rows))[:min(maxSample, len(rows))] {
		s.instances = append(s.instances, rows[i].Labels.Get(model.InstanceLabel))
	}
	l.samples[job] = s
	return s, nil
}

// measuredOver is the time over which intervals of scrapes are measured.
const measuredOver = 5 * time.Minute

// LiveIntervals returns how often the jobs are scraped: what the configuration
// says of a job of the name, or of all, and of others how many samples their
// targets got.
func LiveIntervals(ctx context.Context, api *promapi.Client, jobs []string, otherwise time.Duration) (Intervals, []string) {
	in := Intervals{ByJob: map[string]time.Duration{}, Default: otherwise}
	var notes []string
	if text, err := api.Config(ctx); err != nil {
		notes = append(notes, fmt.Sprintf("The server's configuration could not be read: %s.", err))
	} else {
		in.configured(text, jobs)
	}
	unknown := slices.DeleteFunc(slices.Clone(jobs), func(job string) bool { return job == "" || in.ByJob[job] > 0 })
	if len(unknown) > 0 {
		if err := in.measure(ctx, api, unknown); err != nil {
			notes = append(notes, fmt.Sprintf("The intervals of scrapes could not be measured: %s.", err))
		}
	}
	unknown = slices.DeleteFunc(unknown, func(job string) bool { return in.ByJob[job] > 0 })
	if len(unknown) > 0 {
		notes = append(notes, fmt.Sprintf("The scrape interval of %s is taken to be %s.", strings.Join(unknown, ", "), otherwise))
	}
	return in, notes
}

// measure sets the intervals that the middle target of each job has.
func (i *Intervals) measure(ctx context.Context, api *promapi.Client, jobs []string) error {
	up := promapi.Selector([]string{"up"}, labels.MustNewMatcher(labels.MatchRegexp, model.JobLabel, promapi.OneOf(jobs)))
	rows, err := api.Query(ctx, fmt.Sprintf("quantile by (job) (0.5, count_over_time(%s[%s]))", up, model.Duration(measuredOver)))
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.Value >= 1 {
			i.ByJob[r.Labels.Get(model.JobLabel)] = (measuredOver / time.Duration(r.Value)).Round(time.Second)
		}
	}
	return nil
}

// LiveSizes returns sizes with the bytes per sample that Prometheus says of its
// compactions, if the server scrapes itself.
func LiveSizes(ctx context.Context, api *promapi.Client, otherwise Sizes) Sizes {
	rows, err := api.Query(ctx, "sum(prometheus_tsdb_compaction_chunk_size_bytes_sum) / sum(prometheus_tsdb_compaction_chunk_samples_sum)")
	if err != nil || len(rows) != 1 || math.IsNaN(rows[0].Value) || math.IsInf(rows[0].Value, 0) {
		return otherwise
	}
	return otherwise.Measured(0, rows[0].Value)
}
