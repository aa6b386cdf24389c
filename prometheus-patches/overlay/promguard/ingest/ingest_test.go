// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/memory"
	"github.com/prometheus/prometheus/storage"
)

// fakeMemory is in the state that the test sets.
type fakeMemory struct {
	mu       sync.Mutex
	state    memory.State
	usage    memory.Usage
	onChange []func(old, current memory.State, u memory.Usage)
}

func (f *fakeMemory) State() memory.State { return f.state }
func (f *fakeMemory) Usage() memory.Usage { return f.Look() }
func (*fakeMemory) Created(int64)         {}

func (f *fakeMemory) Look() memory.Usage {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.usage
}

func (f *fakeMemory) lower(live int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.usage.Live, f.usage.Heap = live, live
	f.usage.Cycle++
}

func (f *fakeMemory) OnChange(g func(old, current memory.State, u memory.Usage)) {
	f.onChange = append(f.onChange, g)
}

func (f *fakeMemory) set(s memory.State) {
	old := f.state
	f.state = s
	for _, g := range f.onChange {
		g(old, s, f.usage)
	}
}

// alarming is memory that has all but reached its limit.
var alarming = memory.Usage{Limit: 100, Live: 96, Heap: 96}

// fakeHead has series by their text.
type fakeHead map[string]labels.Labels

func (h fakeHead) HasSeries(ls labels.Labels) bool { _, ok := h[ls.String()]; return ok }
func (h fakeHead) NumSeries() uint64               { return uint64(len(h)) }
func (h fakeHead) SeriesWith(name, value string) (n int) {
	for _, ls := range h {
		if ls.Get(name) == value {
			n++
		}
	}
	return n
}

// AppenderV2 implements storage.AppendableV2.
func (h fakeHead) AppenderV2(context.Context) storage.AppenderV2 { return fakeAppender{nil, h} }

type fakeAppender struct {
	storage.AppenderV2
	head fakeHead
}

func (a fakeAppender) Append(_ storage.SeriesRef, ls labels.Labels, _, _ int64, _ float64, _ *histogram.Histogram, _ *histogram.FloatHistogram, _ storage.AppendV2Options) (storage.SeriesRef, error) {
	a.head[ls.String()] = ls
	return 1, nil
}

func series(t *testing.T, text string) labels.Labels {
	t.Helper()
	name, rest, _ := strings.Cut(text, "{")
	b := labels.NewBuilder(labels.FromStrings("__name__", name))
	for pair := range strings.SplitSeq(strings.TrimSuffix(rest, "}"), ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			b.Set(k, v)
		}
	}
	return b.Labels()
}

type world struct {
	t      *testing.T
	memory *fakeMemory
	head   fakeHead
	gate   *Gate
	log    bytes.Buffer
	reg    *prometheus.Registry
}

func newWorld(t *testing.T, opts Options, has ...string) *world {
	w := &world{t: t, memory: &fakeMemory{}, head: fakeHead{}, reg: prometheus.NewPedanticRegistry()}
	for _, text := range has {
		ls := series(t, text)
		w.head[ls.String()] = ls
	}
	opts.Memory, opts.Registerer, opts.Logger = w.memory, w.reg, slog.New(slog.NewTextHandler(&w.log, nil))
	w.gate = NewGate(opts)
	w.gate.SetHead(w.head)
	return w
}

// appendTo appends a sample of each series and returns those that were refused.
func (w *world) appendTo(app storage.AppenderV2, texts ...string) (refused []string) {
	for _, text := range texts {
		_, err := app.Append(0, series(w.t, text), 0, 1, 1, nil, nil, storage.AppendV2Options{})
		if errors.Is(err, storage.ErrSeriesRefused) {
			refused = append(refused, text)
			continue
		}
		require.NoError(w.t, err)
	}
	return refused
}

func (w *world) scrape(texts ...string) []string { return w.appendTo(w.scraper(), texts...) }

// scraper returns an appender that asks as a scrape does.
func (w *world) scraper() storage.AppenderV2 {
	return judged{w.head.AppenderV2(w.t.Context()), w.gate.Judge()}
}

type judged struct {
	storage.AppenderV2
	judge func(labels.Labels) error
}

func (j judged) Append(ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, opts storage.AppendV2Options) (storage.SeriesRef, error) {
	if err := j.judge(ls); err != nil {
		return 0, err
	}
	return j.AppenderV2.Append(ref, ls, st, t, v, h, fh, opts)
}

func TestNothingIsRefusedUnlessMemoryIsCriticalOrThereIsALimit(t *testing.T) {
	w := newWorld(t, Options{})
	for _, state := range []memory.State{memory.OK, memory.Tight} {
		w.memory.set(state)
		require.Empty(t, w.scrape("a{}", "h_bucket{le=1}"))
		require.Empty(t, w.appendTo(w.gate.Rules(w.head).AppenderV2(t.Context()), "r{}"))
	}
}

func TestTheStateCountsFromOneSeriesToTheNext(t *testing.T) {
	for _, before := range []memory.State{memory.OK, memory.Tight} {
		w := newWorld(t, Options{})
		w.memory.set(before)
		app := w.scraper()
		require.Empty(t, w.appendTo(app, "a{}", "h_bucket{le=1}"))
		w.memory.set(memory.Critical)
		require.Equal(t, []string{"b{}", "h_bucket{i=1,le=1}"}, w.appendTo(app, "b{}", "h_bucket{le=2}", "h_sum{}", "h_bucket{i=1,le=1}", "h_count{}"))
		w.memory.set(memory.OK)
		require.Empty(t, w.appendTo(app, "b{}"))
	}
}

func TestWhileMemoryIsCriticalTheSeriesOfTheHeadAreKeptAndNewOnesRefused(t *testing.T) {
	w := newWorld(t, Options{}, "a{x=1}", "b{}")
	w.memory.set(memory.Critical)
	require.Equal(t, []string{"a{x=2}", "c{}"}, w.scrape("a{x=1}", "a{x=2}", "b{}", "c{}"))
	require.NoError(t, testutil.GatherAndCompare(w.reg, strings.NewReader(`
# HELP prometheus_guard_series_refused_total New series that were refused, by what brought them, and by why: memory, or the limit of --guard.max-head-series or --guard.series-limits. A series that is refused at each scrape in a row counts once, while less than 95 % of the limit live.
# TYPE prometheus_guard_series_refused_total counter
prometheus_guard_series_refused_total{reason="memory",source="otlp"} 0
prometheus_guard_series_refused_total{reason="memory",source="remote_write"} 0
prometheus_guard_series_refused_total{reason="memory",source="rule"} 0
prometheus_guard_series_refused_total{reason="memory",source="scrape"} 2
`), "prometheus_guard_series_refused_total"))
	before := w.gate.Generation()
	w.memory.set(memory.Tight)
	require.NotEqual(t, before, w.gate.Generation(), "what was refused is asked again")
	require.Empty(t, w.scrape("a{x=2}", "c{}"))
}

func TestHistogramsAndSummariesAreNeverSplit(t *testing.T) {
	histogram := []string{"h_bucket{le=1,a=1}", "h_bucket{le=2,a=1}", "h_bucket{le=+Inf,a=1}", "h_sum{a=1}", "h_count{a=1}"}
	summary := []string{"s{quantile=0.5}", "s{quantile=0.9}", "s_sum{}", "s_count{}"}
	gauge := []string{"g_bucket{le=1}", "g_bucket{le=+Inf}", "g_gsum{}", "g_gcount{}"}
	for _, family := range [][]string{histogram, summary, gauge} {
		t.Run(family[0]+" by what the head has of it", func(t *testing.T) {
			w := newWorld(t, Options{})
			w.memory.set(memory.Critical)
			require.Equal(t, family, w.scrape(family...), "nothing of it")

			// A bucket that is new belongs to what the head has, in whichever order.
			for i := range family {
				rest := append(append([]string{}, family[:i]...), family[i+1:]...)
				w := newWorld(t, Options{}, rest...)
				w.memory.set(memory.Critical)
				require.Empty(t, w.scrape(family...), "without %s", family[i])
			}
			// Of other labels it does not.
			w = newWorld(t, Options{}, family...)
			w.memory.set(memory.Critical)
			for i, text := range family {
				other := strings.Replace(text, "}", ",b=1}", 1)
				require.Equal(t, []string{other}, w.scrape(other), i)
			}
		})
		t.Run(family[0]+" while the state changes", func(t *testing.T) {
			for i := 1; i < len(family); i++ {
				w := newWorld(t, Options{})
				w.gate.SetLimits([]Limit{HeadLimit(i, Enforce)})
				require.Empty(t, w.scrape(family...), "it has begun, so it is let in as a whole")
				require.Equal(t, []string{"other{}"}, w.scrape("other{}"))
			}
			w := newWorld(t, Options{}, "other{}")
			w.gate.SetLimits([]Limit{HeadLimit(1, Enforce)})
			app := w.scraper()
			require.Equal(t, family[:2], w.appendTo(app, family[:2]...))
			clear(w.head)
			require.Equal(t, family[2:], w.appendTo(app, family[2:]...), "it was refused when it began")
		})
	}
}

func TestAFamilyWithoutEndIsNoHistogram(t *testing.T) {
	w := newWorld(t, Options{}, "h_count{}", "h_sum{}")
	w.memory.set(memory.Critical)
	var lines []string
	for i := range 3 * familySize {
		lines = append(lines, fmt.Sprintf("h_bucket{le=%d}", i))
	}
	require.Len(t, w.scrape(lines...), 2*familySize)
	w.memory.usage = alarming
	require.Len(t, w.scrape("h_bucket{le=x}", "h_count{}"), 1, "near the limit only what exists is kept")
}

func TestRulesAreTheLastToBeRefused(t *testing.T) {
	w := newWorld(t, Options{}, "old{}")
	w.gate.SetLimits([]Limit{HeadLimit(1, Enforce)})
	w.memory.set(memory.Critical)
	rules := func(texts ...string) []string {
		return w.appendTo(w.gate.Rules(w.head).AppenderV2(t.Context()), texts...)
	}
	require.Empty(t, rules("r1{}", "old{}"))
	w.memory.usage = alarming
	require.Equal(t, []string{"r2{}"}, rules("r1{}", "r2{}", "old{}"))
}

func TestAWholeScrapeIsRejectedIfSoWanted(t *testing.T) {
	w := newWorld(t, Options{RejectScrapes: true}, "old{}")
	w.memory.set(memory.Critical)
	app := w.scraper()
	require.Empty(t, w.appendTo(app, "old{}"))
	_, err := app.Append(0, series(t, "new{}"), 0, 1, 1, nil, nil, storage.AppendV2Options{})
	require.EqualError(t, err, "scrape rejected: it would add series, and new series are refused")
	require.NotErrorIs(t, err, storage.ErrSeriesRefused, "the scrape must not go on")
}

type told []string

func (t *told) NewSeries(ls labels.Labels, refused bool) {
	*t = append(*t, fmt.Sprint(ls, refused))
}

func TestWhoObservesIsToldOfEachRefusal(t *testing.T) {
	w := newWorld(t, Options{}, "old{}")
	var seen told
	w.gate.Observe(&seen)
	w.memory.set(memory.Critical)
	w.scrape("old{}", "new{a=1}", "h_count{}", "h_sum{}")
	require.Equal(t, told{`{__name__="new", a="1"} true`, `{__name__="h_count"} true`, `{__name__="h_sum"} true`}, seen)
}

func TestALimitCountsTheSeriesOfALabelAndDoesWhatItsModeSays(t *testing.T) {
	limits := func(text string) []Limit {
		l, err := ParseLimits([]byte("limits:\n" + text))
		require.NoError(t, err)
		return l
	}
	has := []string{"a{job=x}", "b{job=x}", "b{job=y,namespace=n}"}
	for name, tc := range map[string]struct {
		limits []Limit
		want   []string
		over   int
		logged bool
	}{
		"by job":             {limits("- {label: job, max_series: 2, mode: enforce}"), []string{"new{job=x}"}, 1, true},
		"by metric":          {limits("- {label: __name__, max_series: 2, mode: enforce}"), []string{"b{job=z}"}, 1, true},
		"by namespace":       {limits("- {label: namespace, max_series: 1, mode: enforce}"), []string{"new{namespace=n}"}, 1, true},
		"of one value":       {limits("- {label: job, value: y, max_series: 1, mode: enforce}"), []string{"new{job=y}"}, 1, true},
		"of the head":        {[]Limit{HeadLimit(3, Enforce)}, []string{"new{job=x}", "new{job=y}", "b{job=z}", "new{namespace=n}"}, 4, true},
		"one that is warned": {limits("- {label: job, max_series: 2, mode: warn}"), nil, 1, true},
		"one that observes":  {limits("- {label: job, max_series: 2, mode: observe}"), nil, 1, false},
		"one that is off":    {limits("- {label: job, max_series: 2, mode: off}\n- {label: x, max_series: 9, mode: observe}"), nil, 0, false},
		"not reached":        {limits("- {label: job, max_series: 3, mode: enforce}"), nil, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{}, has...)
			w.gate.SetLimits(tc.limits)
			var refused []string
			for _, text := range []string{"a{job=x}", "new{job=x}", "new{job=y}", "b{job=z}", "new{namespace=n}"} {
				refused = append(refused, w.scrape(text)...)
				// Each by itself: what is let in is removed again.
				if ls := series(t, text); text != "a{job=x}" {
					delete(w.head, ls.String())
				}
			}
			require.Equal(t, tc.want, refused)
			over := 0.0
			mfs, err := w.reg.Gather()
			require.NoError(t, err)
			for _, mf := range mfs {
				if mf.GetName() == "prometheus_guard_series_over_limit_total" {
					for _, m := range mf.Metric {
						over += m.Counter.GetValue()
					}
				}
			}
			require.EqualValues(t, tc.over, over)
			require.Equal(t, tc.logged, strings.Contains(w.log.String(), "a limit is reached"), w.log.String())
		})
	}
}

func TestMistakesInTheLimitsAreTold(t *testing.T) {
	for text, want := range map[string]string{
		"limits: [{lable: job}]":                                                                     "field lable not found",
		"limits: [{max_series: 1, mode: enforce}]":                                                   `limits[0] "": label: "" is no name of a label`,
		"limits: [{label: job, mode: enforce}]":                                                      `limits[0] "job": max_series: 0 is not at least 1`,
		"limits: [{label: job, max_series: 5}]":                                                      `limits[0] "job": mode: "" is not one of off, observe, warn, enforce`,
		"limits: [{label: job, max_series: 5, mode: block}]":                                         `limits[0] "job": mode: "block" is not one of off, observe, warn, enforce`,
		"limits: [{label: job, max_series: 5, mode: warn}, {label: job, max_series: 6, mode: warn}]": `limits[1] "job": name: another limit has it`,
		"limits: [{name: memory, label: job, max_series: 5, mode: warn}]":                            `limits[0] "memory": name: another limit has it`,
		"limits: [" + strings.Repeat("{label: a, max_series: 1, mode: off},", maxLimits+1) + "]":     "limits: there are 101, give at most 100",
	} {
		_, err := ParseLimits([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
	for _, text := range []string{"", "# nothing\n", "---\n", "limits:", "limits: []", "limits: null"} {
		limits, err := ParseLimits([]byte(text))
		require.NoError(t, err, text)
		require.Empty(t, limits, text)
	}
	limits, err := ParseLimits([]byte("limits: [{label: job, value: x, max_series: 5, mode: warn}]"))
	require.NoError(t, err)
	require.Equal(t, "job=x", limits[0].Name)
	_, err = LoadLimits("testdata/absent.yml")
	require.ErrorContains(t, err, "absent.yml")
}
