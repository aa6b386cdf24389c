// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package scrape

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promguard/ingest"
	"github.com/prometheus/prometheus/promguard/memory"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// fakeMemory is in the state that the test sets.
type fakeMemory struct {
	state    memory.State
	onChange func(old, current memory.State, u memory.Usage)
}

func (f *fakeMemory) State() memory.State { return f.state }
func (*fakeMemory) Usage() memory.Usage   { return memory.Usage{} }
func (*fakeMemory) Look() memory.Usage    { return memory.Usage{} }
func (*fakeMemory) Created(int64)         {}
func (f *fakeMemory) OnChange(g func(old, current memory.State, u memory.Usage)) {
	f.onChange = g
}

func (f *fakeMemory) set(s memory.State) {
	old := f.state
	f.state = s
	f.onChange(old, s, memory.Usage{})
}

// refusing is a target, the loop that scrapes it, and a database, all of which can be
// started anew.
type refusing struct {
	t      testing.TB
	dir    string
	opts   ingest.Options
	memory *fakeMemory
	db     *tsdb.DB
	gate   *ingest.Gate
	sl     *scrapeLoop
	body   string
	at     time.Time
}

func newRefusing(t testing.TB, opts ingest.Options, change ...func(*scrapeLoop)) *refusing {
	r := &refusing{t: t, dir: t.TempDir(), opts: opts, at: time.Unix(1_700_000_000, 0)}
	r.start(change...)
	t.Cleanup(func() { require.NoError(t, r.db.Close()) })
	return r
}

func (r *refusing) start(change ...func(*scrapeLoop)) {
	opts := tsdb.DefaultOptions()
	opts.MinBlockDuration = int64(24 * time.Hour / time.Millisecond)
	opts.MaxBlockDuration = opts.MinBlockDuration
	db, err := tsdb.Open(r.dir, promslog.NewNopLogger(), nil, opts, nil)
	require.NoError(r.t, err)
	state := memory.OK
	if r.memory != nil {
		state = r.memory.state
	}
	r.db, r.memory = db, &fakeMemory{state: state}
	o := r.opts
	o.Memory, o.Registerer, o.Logger = r.memory, prometheus.NewRegistry(), promslog.NewNopLogger()
	r.gate = ingest.NewGate(o)
	r.gate.SetHead(db.Head())
	sl, scraper := newTestScrapeLoop(r.t, append([]func(*scrapeLoop){func(sl *scrapeLoop) {
		sl.appendableV2, sl.seriesGate = db, r.gate
		sl.ctx = context.Background()
		sl.fallbackScrapeProtocol = "text/plain"
	}}, change...)...)
	scraper.scrapeFunc = func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, r.body)
		return err
	}
	r.sl = sl
}

func (r *refusing) restart() {
	require.NoError(r.t, r.db.Close())
	r.start()
}

// scrape scrapes a text and returns the samples of that time by the text of the series.
func (r *refusing) scrape(body string) map[string]float64 {
	r.body = body
	r.at = r.at.Add(time.Second)
	r.sl.scrapeAndReport(time.Time{}, r.at, nil)
	return r.samples()
}

func (r *refusing) samples() map[string]float64 {
	ts := timestamp.FromTime(r.at)
	q, err := r.db.Querier(ts, ts)
	require.NoError(r.t, err)
	defer q.Close()
	samples := map[string]float64{}
	set := q.Select(context.Background(), false, nil, labels.MustNewMatcher(labels.MatchNotEqual, "__name__", ""))
	for set.Next() {
		it := set.At().Iterator(nil)
		for it.Next() != chunkenc.ValNone {
			_, v := it.At()
			samples[set.At().Labels().String()] = v
		}
	}
	require.NoError(r.t, set.Err())
	return samples
}

func textOf(lines ...string) string {
	var b strings.Builder
	for i, l := range lines {
		fmt.Fprintf(&b, "%s %d\n", l, i+1)
	}
	return b.String()
}

func isStale(samples map[string]float64, series string) bool {
	v, ok := samples[series]
	return ok && value.IsStaleNaN(v)
}

func has(samples map[string]float64, series string) bool {
	v, ok := samples[series]
	return ok && !value.IsStaleNaN(v)
}

func TestRefusedSeriesAreToldAndLeaveNothing(t *testing.T) {
	r := newRefusing(t, ingest.Options{})
	samples := r.scrape(textOf("a", "b"))
	require.Zero(t, samples[`{__name__="scrape_series_refused"}`])

	r.memory.set(memory.Critical)
	before := r.db.Head().NumSeries()
	for i := range 3 {
		samples = r.scrape(textOf("a", "new", "other", "b"))
		require.True(t, has(samples, `{__name__="a"}`))
		require.True(t, has(samples, `{__name__="b"}`))
		require.False(t, has(samples, `{__name__="new"}`))
		require.EqualValues(t, 1, samples[`{__name__="up"}`], i)
		require.EqualValues(t, 4, samples[`{__name__="scrape_samples_scraped"}`])
		require.EqualValues(t, 4, samples[`{__name__="scrape_samples_post_metric_relabeling"}`])
		require.EqualValues(t, 2, samples[`{__name__="scrape_series_refused"}`], i)
		require.EqualValues(t, 0, samples[`{__name__="scrape_series_added"}`])
		require.Equal(t, before, r.db.Head().NumSeries())
	}
	require.Equal(t, 2, r.sl.cache.lines.dropped.n)

	samples = r.scrape(textOf("a"))
	require.True(t, isStale(samples, `{__name__="b"}`))
	require.NotContains(t, samples, `{__name__="new"}`, "it never was, so it does not end")
	require.Zero(t, r.sl.cache.lines.dropped.n, "what is no longer exposed is forgotten")

	samples = r.scrape(textOf("a", "new"))
	require.EqualValues(t, 1, samples[`{__name__="scrape_series_refused"}`])
	r.memory.set(memory.Tight)
	samples = r.scrape(textOf("a", "new"))
	require.True(t, has(samples, `{__name__="new"}`), "it comes back when memory is no longer critical")
	require.EqualValues(t, 0, samples[`{__name__="scrape_series_refused"}`])
	require.EqualValues(t, 1, samples[`{__name__="scrape_series_added"}`])
}

func TestRefusedSeriesOfATargetThatIsNewLeaveWhatTheScrapeReports(t *testing.T) {
	r := newRefusing(t, ingest.Options{})
	r.memory.set(memory.Critical)
	samples := r.scrape(textOf("a", "b"))
	require.EqualValues(t, 1, samples[`{__name__="up"}`])
	require.EqualValues(t, 2, samples[`{__name__="scrape_series_refused"}`])
	require.Len(t, samples, 6)
}

func TestRefusedSeriesFailTheScrapeIfSoWanted(t *testing.T) {
	r := newRefusing(t, ingest.Options{RejectScrapes: true})
	r.scrape(textOf("a"))
	r.memory.set(memory.Critical)
	samples := r.scrape(textOf("a"))
	require.EqualValues(t, 1, samples[`{__name__="up"}`])
	before := r.db.Head().NumSeries()
	samples = r.scrape(textOf("new", "a"))
	require.EqualValues(t, 0, samples[`{__name__="up"}`])
	require.True(t, isStale(samples, `{__name__="a"}`))
	require.Equal(t, before, r.db.Head().NumSeries())
}

func TestRefusedSeriesCountInNoSampleLimit(t *testing.T) {
	r := newRefusing(t, ingest.Options{}, func(sl *scrapeLoop) { sl.sampleLimit = 2 })
	r.scrape(textOf("a", "b"))
	r.memory.set(memory.Critical)
	samples := r.scrape(textOf("a", "b", "new"))
	require.EqualValues(t, 1, samples[`{__name__="up"}`])
}

func TestRefusedSeriesOfATargetThatHasFailedAreCountedOnce(t *testing.T) {
	r := newRefusing(t, ingest.Options{}, func(sl *scrapeLoop) { sl.sampleLimit = 3 })
	r.scrape(textOf("a", "b"))
	r.scrape(textOf("a", "b", "c", "d"))
	r.memory.set(memory.Critical)
	for range 3 {
		samples := r.scrape(textOf("a", "b", "c", "new"))
		require.EqualValues(t, 1, samples[`{__name__="up"}`])
		require.EqualValues(t, 4, samples[`{__name__="scrape_samples_post_metric_relabeling"}`])
		require.EqualValues(t, 2, samples[`{__name__="scrape_series_refused"}`])
	}
	r.memory.set(memory.OK)
	samples := r.scrape(textOf("a", "b", "c"))
	require.True(t, has(samples, `{__name__="c"}`))
	require.EqualValues(t, 0, samples[`{__name__="scrape_series_refused"}`])
}

func TestAScrapeThatFailsLeavesNoSeriesInTheHead(t *testing.T) {
	for name, change := range map[string]func(*scrapeLoop){
		"over its sample_limit": func(sl *scrapeLoop) { sl.sampleLimit = 2 },
		"over its label_limit":  func(sl *scrapeLoop) { sl.labelLimits = &labelLimits{labelLimit: 1} },
		"with a parse error":    func(*scrapeLoop) {},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRefusing(t, ingest.Options{}, change)
			require.EqualValues(t, 1, r.scrape(textOf("a"))[`{__name__="up"}`])
			before := r.db.Head().NumSeries()
			for i := range 3 {
				samples := r.scrape(textOf("a", fmt.Sprint("new", i), fmt.Sprint("newer", i), `newest{l="x"}`) + "{}}\n")
				require.EqualValues(t, 0, samples[`{__name__="up"}`])
				require.Equal(t, before, r.db.Head().NumSeries())
			}
		})
	}
}

// refusedUniverse are the families of a target: of some the lines of a histogram or
// summary, of others one.
var refusedUniverse = func() (families [][]string) {
	for i := range 4 {
		families = append(families, []string{fmt.Sprintf("plain%d", i)})
		h := fmt.Sprintf("h%d", i/2)
		l := fmt.Sprintf("l=\"%d\"", i)
		families = append(families, []string{
			h + "_bucket{" + l + `,le="0.1"}`, h + "_bucket{" + l + `,le="1"}`, h + "_bucket{" + l + `,le="+Inf"}`, h + "_sum{" + l + "}", h + "_count{" + l + "}",
		})
	}
	return append(families, []string{`s{quantile="0.5"}`, `s{quantile="0.9"}`, "s_sum", "s_count"})
}()

// runRefusals makes scrapes as the bytes say, with changes of the state and restarts
// between them, and compares each with what a model says.
func runRefusals(t testing.TB, steps []byte) {
	r := newRefusing(t, ingest.Options{})
	known, tracked := map[string]bool{}, map[string]bool{}
	for len(steps) >= 3 {
		op, which, order := steps[0], uint16(steps[1])|uint16(steps[0])<<8, int(steps[2])
		steps = steps[3:]
		switch op % 8 {
		case 0:
			r.memory.set(memory.OK)
		case 1, 2:
			r.memory.set(memory.Critical)
		case 3:
			r.restart()
			clear(tracked)
		}
		var lines []string
		refused, want := 0, map[string]bool{}
		for i, family := range refusedUniverse {
			if which>>i&1 == 0 {
				continue
			}
			family = slices.Clone(family)
			if len(family) == 5 && order&1 == 1 {
				family = family[1:] // A bucket less.
			}
			if order&2 == 2 {
				slices.Reverse(family)
			}
			lines = append(lines, family...)
			keep := r.memory.state != memory.Critical || slices.ContainsFunc(family, func(l string) bool { return known[l] })
			for _, l := range family {
				want[l] = keep
				if !keep {
					refused++
				}
			}
		}
		if order&4 == 4 { // Families are not in one piece.
			slices.Sort(lines)
		}
		if len(lines) == 0 {
			continue
		}
		samples := r.scrape(textOf(lines...))
		now := map[string]bool{}
		for _, family := range refusedUniverse {
			for _, l := range family {
				series := seriesText(l)
				switch keep, exposed := want[l]; {
				case exposed && keep:
					require.True(t, has(samples, series), "%s is kept", l)
					known[l], now[l] = true, true
				case exposed:
					require.NotContains(t, samples, series, "%s is refused", l)
				case tracked[l]:
					require.True(t, isStale(samples, series), "%s ends", l)
				default:
					require.NotContains(t, samples, series, l)
				}
			}
		}
		tracked = now
		require.EqualValues(t, 1, samples[`{__name__="up"}`])
		require.EqualValues(t, len(lines), samples[`{__name__="scrape_samples_scraped"}`])
		require.EqualValues(t, len(lines), samples[`{__name__="scrape_samples_post_metric_relabeling"}`])
		require.EqualValues(t, refused, samples[`{__name__="scrape_series_refused"}`])
		require.EqualValues(t, len(known)+6, r.db.Head().NumSeries())
	}
}

// seriesText is how a line's series is written as labels.
func seriesText(line string) string {
	name, rest, _ := strings.Cut(line, "{")
	b := labels.NewBuilder(labels.FromStrings("__name__", name))
	for pair := range strings.SplitSeq(strings.TrimSuffix(rest, "}"), ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			b.Set(k, strings.Trim(v, `"`))
		}
	}
	return b.Labels().String()
}

func FuzzRefusedSeriesAreThoseOfAModel(f *testing.F) {
	f.Add([]byte{4, 255, 0, 1, 255, 0, 3, 255, 4, 0, 255, 1})
	f.Add([]byte{4, 3, 1, 1, 255, 0, 5, 255, 6, 3, 255, 3, 0, 9, 1, 1, 7, 7, 7, 255, 0})
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) > 90 {
			return
		}
		runRefusals(t, steps)
	})
}

// TestNoSampleOfAnExistingSeriesIsLostBesideAnExplosion has twins: one exposes what the
// other does, and new series without end.
func TestNoSampleOfAnExistingSeriesIsLostBesideAnExplosion(t *testing.T) {
	calm, exploding := newRefusing(t, ingest.Options{}), newRefusing(t, ingest.Options{})
	var lines []string
	for _, family := range refusedUniverse {
		lines = append(lines, family...)
	}
	for scrape := range 50 {
		if scrape == 5 {
			exploding.memory.set(memory.Critical)
		}
		mine := slices.Clone(lines)
		if scrape%7 == 3 {
			mine = mine[2:] // Some end, and come back.
		}
		body := textOf(mine...)
		want := calm.scrape(body)
		var explosion bytes.Buffer
		if scrape >= 5 {
			for i := range 200 {
				fmt.Fprintf(&explosion, "explosion{id=\"%d\"} 1\n", scrape*100+i)
			}
		}
		got := exploding.scrape(explosion.String() + body)
		for series, v := range want {
			if strings.Contains(series, "scrape_") {
				continue
			}
			require.Contains(t, got, series)
			require.Equal(t, math.Float64bits(v), math.Float64bits(got[series]), series)
		}
	}
	require.Equal(t, calm.db.Head().NumSeries(), exploding.db.Head().NumSeries())
}

// processTime is what the process has taken of the processors.
func processTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRefusedLines scrapes a target all of whose series are refused, which is known
// from the scrape before.
func BenchmarkRefusedLines(b *testing.B) {
	for _, again := range []bool{true, false} {
		name := "again"
		if !again {
			name = "first"
		}
		b.Run(name, func(b *testing.B) {
			r := newRefusing(b, ingest.Options{})
			r.memory.set(memory.Critical)
			const lines = 100_000
			body := func(round int) []byte {
				var buf bytes.Buffer
				for i := range lines {
					fmt.Fprintf(&buf, "container_memory_failures_total{container=\"exploding\",id=\"/kubepods.slice/%d\",name=\"%d\",namespace=\"tenant\",pod=\"exploding-5d8f7c-%d\",scope=\"container\"} 1\n", round, i, i)
				}
				return buf.Bytes()
			}
			scrape := func(body []byte) {
				app := r.sl.appender()
				_, _, _, err := app.append(body, "text/plain", r.at)
				require.NoError(b, errors.Join(err, app.Rollback()))
			}
			text := body(0)
			scrape(text)
			b.ReportAllocs()
			b.ResetTimer()
			var used time.Duration
			for i := range b.N {
				if !again {
					b.StopTimer()
					text = body(i + 1)
					b.StartTimer()
				}
				before := processTime(b)
				scrape(text)
				used += processTime(b) - before
			}
			b.ReportMetric(float64(used.Nanoseconds())/float64(b.N)/lines, "cpu-ns/line")
		})
	}
}

// BenchmarkAScrapeBelowAllLimits scrapes known series, with a gate and without.
func BenchmarkAScrapeBelowAllLimits(b *testing.B) {
	for _, gate := range []bool{false, true} {
		b.Run(fmt.Sprintf("gate=%v", gate), func(b *testing.B) {
			r := newRefusing(b, ingest.Options{})
			if !gate {
				r.sl.seriesGate = nil
			}
			const lines = 50_000
			var text bytes.Buffer
			for i := range lines {
				fmt.Fprintf(&text, "container_memory_failures_total{container=\"c\",id=\"/kubepods.slice/%d\",namespace=\"tenant\",pod=\"p-5d8f7c-%d\",scope=\"container\"} 1\n", i, i)
			}
			scrape := func(commit bool) {
				r.at = r.at.Add(time.Second)
				app := r.sl.appender()
				_, _, _, err := app.append(text.Bytes(), "text/plain", r.at)
				require.NoError(b, err)
				if commit {
					require.NoError(b, app.Commit())
					return
				}
				require.NoError(b, app.Rollback())
			}
			scrape(true)
			scrape(true)
			b.ReportAllocs()
			before := processTime(b)
			for b.Loop() {
				scrape(false)
			}
			b.ReportMetric(float64((processTime(b)-before).Nanoseconds())/float64(b.N)/lines, "cpu-ns/sample")
		})
	}
}
