// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package scrape

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// failing is a target, the loop that scrapes it, and a database. It runs on upstream's
// scrape loop, too.
type failing struct {
	t           testing.TB
	db          *tsdb.DB
	registry    *prometheus.Registry
	sl          *scrapeLoop
	body        string
	contentType string
	at          time.Time
}

func newFailing(t testing.TB, change ...func(*scrapeLoop)) *failing {
	f := &failing{t: t, registry: prometheus.NewRegistry(), contentType: "text/plain", at: time.Now().Add(-8 * time.Hour).Truncate(time.Second)}
	opts := tsdb.DefaultOptions()
	opts.EnableExemplarStorage, opts.MaxExemplars = true, 100
	db, err := tsdb.Open(t.TempDir(), promslog.NewNopLogger(), f.registry, opts, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	sl, scraper := newTestScrapeLoop(t, append([]func(*scrapeLoop){func(sl *scrapeLoop) {
		sl.appendableV2 = db
		sl.ctx = context.Background()
	}}, change...)...)
	scraper.scrapeFunc = func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, f.body)
		return err
	}
	f.sl, f.db = sl, db
	sl.scraper = &typedScraper{scraper, f}
	return f
}

// typedScraper answers with the content type of the test.
type typedScraper struct {
	*testScraper
	f *failing
}

func (s *typedScraper) readResponse(ctx context.Context, resp *http.Response, w io.Writer) (string, error) {
	_, err := s.testScraper.readResponse(ctx, resp, w)
	return s.f.contentType, err
}

// scrape scrapes a text and returns what is stored: the four reported numbers, then all
// samples of the target in the order of their names.
func (f *failing) scrape(body string) string {
	f.body = body
	f.at = f.at.Add(time.Second)
	f.sl.scrapeAndReport(time.Time{}, f.at, nil)
	samples := f.samples()
	report := make([]string, 0, 4)
	for _, name := range []string{"up", "scrape_samples_scraped", "scrape_samples_post_metric_relabeling", "scrape_series_added"} {
		report = append(report, samples[name])
		delete(samples, name)
	}
	delete(samples, "scrape_duration_seconds")
	stored := make([]string, 0, len(samples))
	for name, v := range samples {
		stored = append(stored, name+"="+v)
	}
	sort.Strings(stored)
	return strings.Join(report, " ") + " | " + strings.Join(stored, " ")
}

func (f *failing) samples() map[string]string {
	ts := timestamp.FromTime(f.at)
	q, err := f.db.Querier(ts, ts)
	require.NoError(f.t, err)
	defer q.Close()
	samples := map[string]string{}
	set := q.Select(context.Background(), false, nil, labels.MustNewMatcher(labels.MatchNotEqual, "__name__", ""))
	for set.Next() {
		name := set.At().Labels().Get("__name__")
		if l := set.At().Labels().Get("l"); l != "" {
			name += "." + l
		}
		it := set.At().Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			switch kind {
			case chunkenc.ValFloat:
				_, v := it.At()
				samples[name] = strconv.FormatFloat(v, 'g', -1, 64)
				if value.IsStaleNaN(v) {
					samples[name] = "stale"
				}
			default:
				_, h := it.AtFloatHistogram(nil)
				samples[name] = fmt.Sprint("histogram of ", h.Count)
			}
		}
	}
	require.NoError(f.t, set.Err())
	return samples
}

// names returns the names of the metrics that the head has.
func (f *failing) names() []string {
	index, err := f.db.Head().Index()
	require.NoError(f.t, err)
	defer index.Close()
	names, err := index.LabelValues(context.Background(), "__name__", nil)
	require.NoError(f.t, err)
	return names
}

// counted returns a metric of the database.
func (f *failing) counted(name string) float64 {
	families, err := f.registry.Gather()
	require.NoError(f.t, err)
	for _, family := range families {
		if family.GetName() == name {
			m := family.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	f.t.Fatal(name, " is not counted")
	return 0
}

func (f *failing) created() float64 { return f.counted("prometheus_tsdb_head_series_created_total") }
func (f *failing) live() float64    { return f.counted("prometheus_tsdb_head_series") }

func numbered(name string, from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "%s{l=\"%d\"} %d\n", name, i, i)
	}
	return b.String()
}

func limited(sl *scrapeLoop) { sl.sampleLimit = 4 }

// dropping drops series whose names begin with "dropped".
func dropping(sl *scrapeLoop) {
	sl.sampleMutator = func(ls labels.Labels) labels.Labels {
		if strings.HasPrefix(ls.Get("__name__"), "dropped") {
			return labels.EmptyLabels()
		}
		return ls
	}
}

const openMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8"

// exposition is the text of one scrape and the samples that upstream stores at its time.
// ended are the markers that upstream alone stores, for series that never had a sample.
type exposition struct{ body, stored, ended string }

// failures are targets whose scrapes fail for each of the reasons.
var failures = map[string]struct {
	change      func(*scrapeLoop)
	contentType string
	scrapes     []exposition
}{
	"sample_limit from the first scrape on": {change: limited, scrapes: []exposition{
		{numbered("a", 0, 6), "0 6 6 4 | ", ""},
		{numbered("a", 0, 6), "0 6 6 0 | ", ""},
		{numbered("a", 0, 6), "0 6 6 0 | ", ""},
		{numbered("b", 0, 6), "0 6 6 4 | ", "a.0=stale a.1=stale a.2=stale a.3=stale"},
		{numbered("a", 0, 3), "1 3 3 0 | a.0=0 a.1=1 a.2=2", "b.0=stale b.1=stale b.2=stale b.3=stale"},
		{numbered("a", 0, 3), "1 3 3 0 | a.0=0 a.1=1 a.2=2", ""},
		{numbered("a", 1, 2), "1 1 1 0 | a.0=stale a.1=1 a.2=stale", ""},
	}},
	"sample_limit of a known target that goes to and fro": {change: limited, scrapes: []exposition{
		{numbered("a", 0, 3), "1 3 3 3 | a.0=0 a.1=1 a.2=2", ""},
		{numbered("a", 0, 6), "0 6 6 1 | ", ""},
		{numbered("a", 0, 3), "1 3 3 0 | a.0=0 a.1=1 a.2=2", "a.3=stale"},
		{numbered("a", 0, 6), "0 6 6 1 | ", ""},
		{numbered("b", 0, 2) + numbered("a", 1, 3), "1 4 4 2 | a.0=stale a.1=1 a.2=2 b.0=0 b.1=1", "a.3=stale"},
		{numbered("c", 0, 3) + numbered("a", 1, 3), "0 5 5 3 | a.2=stale b.0=stale b.1=stale", ""},
		{numbered("c", 0, 3) + numbered("a", 2, 3), "1 4 4 0 | a.1=stale a.2=2 c.0=0 c.1=1 c.2=2", ""},
		{"", "1 0 0 0 | a.2=stale c.0=stale c.1=stale c.2=stale", ""},
	}},
	"sample_limit after relabelling": {change: func(sl *scrapeLoop) { limited(sl); dropping(sl) }, scrapes: []exposition{
		{numbered("dropped", 0, 9) + numbered("a", 0, 5), "0 14 5 4 | ", ""},
		{numbered("dropped", 0, 9) + numbered("a", 0, 5), "0 14 5 0 | ", ""},
		{numbered("dropped", 0, 9) + numbered("a", 0, 4), "1 13 4 0 | a.0=0 a.1=1 a.2=2 a.3=3", ""},
		{numbered("dropped", 0, 9) + numbered("a", 0, 4), "1 13 4 0 | a.0=0 a.1=1 a.2=2 a.3=3", ""},
	}},
	"a line twice": {change: limited, scrapes: []exposition{
		{numbered("a", 0, 6), "0 6 6 4 | ", ""},
		{"b 1\n" + numbered("a", 0, 2) + "b 2\n", "1 4 4 1 | a.0=0 a.1=1 b=1", "a.2=stale a.3=stale"},
		{"b 1\n" + numbered("a", 0, 2) + "b 2\n", "1 4 4 0 | a.0=0 a.1=1 b=1", ""},
	}},
	"timestamps": {change: func(sl *scrapeLoop) { limited(sl); sl.honorTimestamps = true }, scrapes: []exposition{
		{"a 1 1000\n" + numbered("b", 0, 6), "0 7 7 4 | ", ""},
		{"a 1 1000\n" + numbered("b", 0, 6), "0 7 7 0 | ", ""},
		{"a 1 1000\n" + numbered("b", 0, 2), "1 3 3 0 | b.0=0 b.1=1", "b.2=stale"},
		{"a 1 1000\n" + numbered("b", 0, 1), "1 2 2 0 | b.0=0 b.1=stale", ""},
	}},
	"EOF": {contentType: openMetrics, scrapes: []exposition{
		{numbered("a", 0, 3), "0 3 3 3 | ", ""},
		{numbered("a", 0, 3), "0 3 3 0 | ", ""},
		{numbered("a", 0, 3) + "# EOF\n", "1 3 3 0 | a.0=0 a.1=1 a.2=2", ""},
		{numbered("a", 0, 4), "0 4 4 1 | ", ""},
		{numbered("a", 0, 4), "0 4 4 0 | ", ""},
		{numbered("a", 1, 5) + "# EOF\n", "1 4 4 1 | a.0=stale a.1=1 a.2=2 a.3=3 a.4=4", ""},
	}},
	"exemplars": {contentType: openMetrics, scrapes: []exposition{
		{"a_total 1 # {e=\"1\"} 1\nb_total 2 # {e=\"2\"} 1\n", "0 2 2 2 | ", ""},
		{"a_total 1 # {e=\"1\"} 1\nb_total 2 # {e=\"2\"} 1\n", "0 2 2 0 | ", ""},
		{"a_total 1 # {e=\"1\"} 1\nb_total 2 # {e=\"2\"} 1\n# EOF\n", "1 2 2 0 | a_total=1 b_total=2", ""},
	}},
	"a broken last line": {scrapes: []exposition{
		{"a 1\nb 2\n", "1 2 2 2 | a=1 b=2", ""},
		{"a 1\nc 3\nb{}}\n", "0 2 2 1 | b=stale", ""},
		{"a 1\nc 3\nb{}}\n", "0 2 2 0 | ", ""},
		{"d 4\nc 3\nb{}}\n", "0 2 2 1 | a=stale", ""},
		{"d 4\nc 3\n", "1 2 2 0 | c=3 d=4", ""},
		{"d 4\n", "1 1 1 0 | c=stale d=4", ""},
	}},
	"label_limit": {change: func(sl *scrapeLoop) { sl.labelLimits = &labelLimits{labelLimit: 1} }, scrapes: []exposition{
		{"a 1\nb 2\n", "1 2 2 2 | a=1 b=2", ""},
		{"a 1\nc 3\nb{l=\"x\"} 2\n", "0 3 2 1 | b=stale", ""},
		{"a 1\nc 3\nb{l=\"x\"} 2\n", "0 3 2 0 | ", ""},
		{"a 1\nc 3\n", "1 2 2 0 | a=1 c=3", ""},
	}},
	"a label twice": {scrapes: []exposition{
		{"a 1\nb{l=\"x\",l=\"y\"} 2\n", "0 2 1 1 | ", ""},
		{"a 1\nb{l=\"x\",l=\"y\"} 2\n", "0 2 1 0 | ", ""},
		{"a 1\nb{l=\"x\"} 2\n", "1 2 2 1 | a=1 b.x=2", ""},
	}},
	"no name": {scrapes: []exposition{
		{"a 1\n{l=\"y\"} 2\n", "0 1 1 1 | ", ""},
		{"a 1\n{l=\"y\"} 2\n", "0 1 1 0 | ", ""},
		{"a 1\n", "1 1 1 0 | a=1", ""},
	}},
	"histograms": {change: func(sl *scrapeLoop) { limited(sl); sl.convertClassicHistToNHCB = true }, scrapes: []exposition{
		{classicHistogram + numbered("a", 0, 4), "0 5 5 4 | ", ""},
		{classicHistogram + numbered("a", 0, 4), "0 5 5 0 | ", ""},
		{classicHistogram + numbered("a", 0, 3), "1 4 4 0 | a.0=0 a.1=1 a.2=2 h=histogram of 2", ""},
		{classicHistogram + numbered("a", 0, 2), "1 3 3 0 | a.0=0 a.1=1 a.2=stale h=histogram of 2", ""},
	}},
	"synthesized start times": {change: func(sl *scrapeLoop) { sl.synthesizeST = true }, scrapes: []exposition{
		{counters(5) + "a{}}\n", "0 2 2 2 | ", ""},
		{counters(6) + "a{}}\n", "0 2 2 0 | ", ""},
		{counters(7) + "# TYPE b counter\nb 7\n", "1 3 3 1 | a.1=2 a.2=4", ""},
		{counters(9) + "# TYPE b counter\nb 9\n", "1 3 3 0 | a.1=4 a.2=8 b=2", ""},
	}},
}

func counters(v int) string {
	return fmt.Sprintf("# TYPE a counter\na{l=\"1\"} %d\na{l=\"2\"} %d\n", v, 2*v)
}

const classicHistogram = "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n"

func TestAScrapeThatFailsReportsAsUpstreamAndCreatesNothingAgain(t *testing.T) {
	for name, c := range failures {
		t.Run(name, func(t *testing.T) {
			f := newFailing(t)
			if c.change != nil {
				c.change(f.sl)
			}
			if c.contentType != "" {
				f.contentType = c.contentType
			}
			failed, created := false, 0.0
			for i, e := range c.scrapes {
				live := f.live()
				stored := f.scrape(e.body)
				require.Equal(t, e.stored, stored, "scrape %d", i)
				if strings.HasPrefix(stored, "0") {
					if failed {
						require.Equal(t, created, f.created(), "a failed scrape after another creates nothing")
					}
					if i > 0 {
						require.Equal(t, live, f.live(), "a failed scrape leaves nothing")
					}
					failed = true
				}
				created = f.created()
			}
		})
	}
}

func TestAFailedScrapeCreatesNoSeriesThatTheHeadHasCollected(t *testing.T) {
	f := newFailing(t, limited)
	f.scrape(numbered("a", 0, 3))
	f.scrape(numbered("a", 0, 6))
	f.at = f.at.Add(5 * time.Hour)
	f.scrape(numbered("a", 0, 6)) // Its report lets the head collect the series.
	require.NoError(t, f.db.Head().Truncate(timestamp.FromTime(f.at.Add(-time.Hour))))
	require.NotContains(t, f.names(), "a")

	f.scrape(numbered("a", 0, 6))
	created := f.created()
	for range 3 {
		f.scrape(numbered("a", 0, 6))
		require.Equal(t, created, f.created())
		require.NotContains(t, f.names(), "a")
	}
	require.Contains(t, f.scrape(numbered("a", 0, 4)), "| a.0=0 a.1=1 a.2=2 a.3=3")
	require.Contains(t, f.scrape(numbered("a", 1, 3)), "| a.0=stale a.1=1 a.2=2 a.3=stale")
}

func TestATargetThatHasNotFailedForLongIsParsedOnce(t *testing.T) {
	f := newFailing(t, limited)
	f.scrape(numbered("a", 0, 6))
	for i := range holdFor {
		require.Less(t, f.sl.cache.iter, f.sl.cache.held.until, i)
		f.scrape(numbered("a", 0, 3))
	}
	require.GreaterOrEqual(t, f.sl.cache.iter, f.sl.cache.held.until)
	require.Contains(t, f.scrape(numbered("a", 0, 4)), "1 4 4 1 | a.0=0 a.1=1 a.2=2 a.3=3")
}

// BenchmarkAScrapeThatFailsAgain scrapes 60,000 lines that failed before.
func BenchmarkAScrapeThatFailsAgain(b *testing.B) {
	var lines strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&lines, "req_total{pod=\"p-%d\",ns=\"n%d\",code=\"200\",path=\"/thing/%d\"} 1\n", i, i%50, i%977)
	}
	for _, c := range []struct {
		cause, contentType, end string
		limit                   int
	}{
		{"sample_limit", "text/plain", "", 50_000},
		{"eof", openMetrics, "", 0},
		{"last_line", "text/plain", "a{}}\n", 0},
	} {
		for _, known := range []bool{false, true} {
			b.Run(fmt.Sprintf("cause=%s/known=%v", c.cause, known), func(b *testing.B) {
				f := newFailing(b, func(sl *scrapeLoop) {
					sl.sampleMutator = func(l labels.Labels) labels.Labels {
						return mutateSampleLabels(l, &Target{labels: labels.FromStrings("instance", "127.0.0.1:21150", "job", "t")}, false, nil)
					}
				})
				if known {
					f.scrape(strings.Join(strings.SplitAfterN(lines.String(), "\n", 40_001)[:40_000], ""))
				}
				f.sl.sampleLimit, f.contentType = c.limit, c.contentType
				f.body = lines.String() + c.end
				scrape := func() {
					f.at = f.at.Add(time.Second)
					f.sl.scrapeAndReport(time.Time{}, f.at, nil)
				}
				scrape()
				scrape()
				b.ReportAllocs()
				before := processTime(b)
				for b.Loop() {
					scrape()
				}
				b.ReportMetric(float64((processTime(b)-before).Microseconds())/float64(b.N)/1000, "cpu-ms/scrape")
				require.Equal(b, "0", f.samples()["up"])
			})
		}
	}
}
