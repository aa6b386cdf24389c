// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/route"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/accounttest"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/prometheus/prometheus/util/teststorage"
)

// What a read holds, by its account, is compared with what the process holds more
// than at rest while it runs: the live heap after each garbage collection.

const (
	accountSamples  = 240
	accountInterval = 15_000
)

var accountEnd = time.UnixMilli(accountSamples * accountInterval)

// exposed is how much the targets of a cluster expose.
type exposed struct {
	series     int
	histograms int // As many are classic ones.
	buckets    int // Of each classic one.
	samples    int // The last of the hour.
}

// accountStorage has up to an hour of what a cluster's targets expose.
func accountStorage(t testing.TB, e exposed) *teststorage.TestStorage {
	s := teststorage.New(t)
	var lsets []labels.Labels
	for i := range e.series {
		lsets = append(lsets, labels.FromStrings("__name__", "m", "namespace", fmt.Sprintf("namespace-%02d", i%20),
			"pod", fmt.Sprintf("deployment-%03d-5d8c7b6f4-abcde", i/5), "container", fmt.Sprintf("container-%d", i%5), "node", fmt.Sprintf("node-%02d.example.com", i%30)))
	}
	for i := range e.histograms {
		for le := range e.buckets {
			lsets = append(lsets, labels.FromStrings("__name__", "b_bucket", "handler", fmt.Sprintf("/api/v1/handler/%03d", i), "le", strconv.Itoa(1<<le)))
		}
	}
	lsets = append(lsets, labels.FromStrings("__name__", "target_info", "pod", "p", "instance", "i", "job", "j"))
	app := s.Appender(t.Context())
	for n := accountSamples - e.samples; n < accountSamples; n++ {
		ts := int64(n+1) * accountInterval
		for i, lset := range lsets {
			_, err := app.Append(0, lset, ts, float64(n*(i%97+1)))
			require.NoError(t, err)
		}
		for i := range e.histograms {
			lset := labels.FromStrings("__name__", "h", "handler", fmt.Sprintf("/api/v1/handler/%03d", i))
			_, err := app.AppendHistogram(0, lset, ts, tsdbutil.GenerateTestHistogram(int64(n)), nil)
			require.NoError(t, err)
		}
		if n%20 == 19 {
			require.NoError(t, app.Commit())
			app = s.Appender(t.Context())
		}
	}
	require.NoError(t, app.Commit())
	return s
}

func accountAPI(t testing.TB, e exposed) *route.Router {
	s := accountStorage(t, e)
	p := parser.NewParser(parser.Options{EnableExperimentalFunctions: true})
	api := &API{
		Queryable: s, ExemplarQueryable: s, now: func() time.Time { return accountEnd }, ready: func(f http.HandlerFunc) http.HandlerFunc { return f },
		QueryEngine: promql.NewEngine(promql.EngineOpts{
			MaxSamples: 50_000_000, Timeout: 2 * time.Minute, LookbackDelta: 5 * time.Minute, Parser: p, Logger: promslog.NewNopLogger(),
			EnableAtModifier: true, EnableNegativeOffset: true, NoStepSubqueryIntervalFn: func(int64) int64 { return 60_000 },
		}),
		parser: p, logger: promslog.NewNopLogger(), config: func() config.Config { return config.Config{} },
	}
	api.InstallCodec(JSONCodec{})
	r := route.New()
	for path, f := range map[string]apiFunc{
		"/query": api.query, "/query_range": api.queryRange, "/series": api.series,
		"/labels": api.labelNames, "/label/:name/values": api.labelValues, "/query_exemplars": api.queryExemplars,
	} {
		r.Get(path, func(w http.ResponseWriter, r *http.Request) {
			result := f(r)
			if result.finalizer != nil {
				defer result.finalizer()
			}
			if result.err != nil {
				api.respondError(w, result.err, result.data)
				return
			}
			api.respond(w, r, result.data, result.warnings, "")
		})
	}
	return r
}

// liveHeap returns what was live after the last garbage collection, in bytes.
func liveHeap(sample []metrics.Sample) int64 {
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// allocated returns what was allocated so far, in bytes.
func allocated() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// measured runs a request in the context of an account and returns both peaks.
func measured(t testing.TB, r *route.Router, target string) (account *accounttest.Account, truth int64, code int) {
	runtime.GC()
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	rest := liveHeap(sample)
	var peak atomic.Int64
	sampled := func(live int64) {
		for {
			if p := peak.Load(); live <= p || peak.CompareAndSwap(p, live) {
				return
			}
		}
	}
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		for {
			select {
			case <-done:
				return
			default:
				// What is allocated while a collection marks counts as live in it.
				before := allocated()
				runtime.GC()
				live := liveHeap(sample)
				sampled(live - (allocated() - before))
			}
		}
	}()
	account, ctx := accounttest.New(t.Context(), storage.ReadBounds{SeriesBytes: 512})
	told := int64(0)
	account.OnYield = func() {
		// The read stands still: the collection finds what is live.
		if used := account.Used; used > told+told/8+accountFloor/4 {
			told = used
			runtime.GC()
			sampled(liveHeap(sample))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	rec := &discardRecorder{header: http.Header{}, first: func() {
		runtime.GC()
		sampled(liveHeap(sample))
	}}
	r.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, target, http.NoBody).WithContext(ctx))
	close(done)
	<-stopped
	return account, max(0, peak.Load()-rest), rec.code
}

// discardRecorder keeps the status alone.
type discardRecorder struct {
	header http.Header
	code   int
	first  func() // Is called before the first byte.
}

func (d *discardRecorder) Header() http.Header { return d.header }
func (d *discardRecorder) WriteHeader(code int) {
	if d.code == 0 {
		d.code = code
		d.first()
	}
}
func (d *discardRecorder) Write(p []byte) (int, error) {
	d.WriteHeader(http.StatusOK)
	return len(p), nil
}

func rangeQuery(expr string, step time.Duration) string {
	return "/query_range?" + url.Values{"query": {expr}, "start": {"300"}, "end": {strconv.FormatInt(accountEnd.Unix(), 10)}, "step": {strconv.Itoa(int(step.Seconds()))}}.Encode()
}

func instantQuery(expr string) string {
	return "/query?" + url.Values{"query": {expr}, "time": {strconv.FormatInt(accountEnd.Unix(), 10)}}.Encode()
}

// accountExprs are expressions that hold much, by what they hold it for.
func accountExprs() []string {
	exprs := []string{}
	vectors := []string{`m`, `h`, `b_bucket`}
	for _, v := range vectors {
		exprs = append(exprs, v, v+` offset 5m`, `-`+v, v+` * 2`, `2 * `+v, v+` > 0`, v+` @ 1800`, v+` @ 1800 + time()`, `count(`+v+` @ 1800 + `+v+`)`,
			v+` + `+v, v+` + `+v+` + `+v, v+` and `+v, v+` or `+v, v+` unless `+v, `sum(`+v+`)`, `count(`+v+`)`,
			`sum(`+v+` + `+v+`)`, `avg without () (`+v+`)`, `sum by (pod, container, handler, le) (`+v+`)`,
			`topk(10, `+v+`)`, `topk(1000, `+v+`)`, `bottomk by (namespace) (50, `+v+`)`, `limitk(100, `+v+`)`,
			`quantile(0.9, `+v+`)`, `quantile by (node) (0.9, `+v+`)`, `count_values("v", `+v+`)`, `stddev(`+v+`)`, `group by (pod) (`+v+`)`,
			`sort(`+v+`)`, `sort_by_label(`+v+`, "pod")`, `abs(`+v+`)`, `ceil(abs(`+v+`))`, `clamp(`+v+`, 0, 10)`, `timestamp(`+v+`)`, `absent(`+v+`)`,
			`scalar(sum(`+v+`)) * `+v, `label_replace(`+v+`, "x", "$1-$1", "pod", "(.*)")`, `label_replace(`+v+`, "x", "$1$1$1$1$1$1$1$1$1$1", "pod", "(.*)")`,
			`label_join(`+v+`, "x", "/", "pod", "container", "node", "handler")`,
			`label_replace(label_replace(`+v+`, "x", "$1$1$1$1$1$1$1$1$1$1", "handler", "(.*)"), "x", "$1$1$1$1$1$1$1$1$1$1", "x", "(.*)")`,
		)
		for _, f := range []string{"rate", "increase", "delta", "avg_over_time", "sum_over_time", "count_over_time", "last_over_time", "resets", "changes", "irate", "max_over_time", "present_over_time", "absent_over_time"} {
			exprs = append(exprs, f+`(`+v+`[5m])`)
		}
		exprs = append(exprs, `quantile_over_time(0.9, `+v+`[1h])`, `sum(rate(`+v+`[5m]))`, `sum by (pod, handler, le) (rate(`+v+`[5m]))`,
			`max_over_time(`+v+`[30m:1m])`, `max_over_time(rate(`+v+`[5m])[30m:1m])`, `avg_over_time(sum(`+v+`)[30m:15s])`, `sum_over_time((`+v+` * 2)[10m:15s])`,
			`rate(`+v+`[1h] @ 3600)`, `predict_linear(`+v+`[10m], 3600)`, `double_exponential_smoothing(`+v+`[10m], 0.5, 0.5)`)
	}
	exprs = append(exprs,
		`m * on (pod, container) group_left m`, `m * on (pod) group_left (namespace) group by (pod, namespace) (m)`, `m / ignoring (container) group_left sum without (container) (m)`,
		`m + on (pod, container) m`, `histogram_quantile(0.9, rate(b_bucket[5m]))`, `histogram_quantile(0.9, sum by (le) (rate(b_bucket[5m])))`, `histogram_quantile(0.9, h)`,
		`histogram_quantile(0.9, rate(h[5m]))`, `histogram_count(h)`, `histogram_sum(h)`, `histogram_fraction(0, 1, h)`, `histogram_avg(h)`, `sum by (handler) (h)`,
		`{__name__=~"m|h|b_bucket"}`, `{__name__=~".+"}`, `count({__name__=~".+"})`, `m{pod=~".*1.*"}`, `time()`, `vector(1)`, `1`, `h * 2 + h`, `m == bool 1`, `info(m)`,
	)
	return exprs
}

// accountLists are requests for lists, some of them with many selectors.
func accountLists() []string {
	many := url.Values{"match[]": {`{le!=""}`, `m`, `h`, `{__name__=~".+"}`}}.Encode()
	for range 100 {
		many += "&match[]=" + url.QueryEscape(`{pod=~".+"}`)
	}
	return []string{"/series?match[]=m", "/series?" + many, "/labels", "/labels?" + many, "/label/pod/values", "/label/pod/values?" + many}
}

func accountShapes() []string {
	var shapes []string
	for _, e := range accountExprs() {
		shapes = append(shapes, rangeQuery(e, 15*time.Second), instantQuery(e))
	}
	for _, e := range []string{`m[1h]`, `h[1h]`, `b_bucket[1h]`, `m[1h:15s]`, `rate(m[5m])[1h:15s]`, `h[1h:1m]`} {
		shapes = append(shapes, instantQuery(e))
	}
	for _, e := range []string{`m @ 1800 + time()`, `count((m @ 1800) + time())`, `h @ 1800`, `sum by (pod) (m @ 1800)`} {
		shapes = append(shapes, rangeQuery(e, time.Second))
	}
	return append(shapes, accountLists()...)
}

// randomExpr returns an expression of the grammar's parts, one in the other.
func randomExpr(rng *rand.Rand) string {
	around := []string{
		`abs(%s)`, `-(%s)`, `sum(%s)`, `sum by (pod, handler) (%s)`, `avg without (le, container) (%s)`, `topk(100, %s)`, `quantile(0.5, %s)`, `count_values("v", %s)`, `sort(%s)`,
		`label_replace(%s, "x", "$1$1$1$1", "pod", "(.*)")`, `label_join(%s, "x", "-", "pod", "node")`, `max_over_time((%s)[10m:1m])`, `(%s) * 2`, `(%s) + time()`, `histogram_quantile(0.9, %s)`, `clamp_min(%s, 1)`, `absent(%s)`,
	}
	between := []string{`(%s) + on (pod, container, handler, le) (%s)`, `(%s) and (%s)`, `(%s) or (%s)`, `(%s) unless (%s)`, `(%s) * on () group_left sum(%s)`}
	leaves := []string{`m`, `h`, `b_bucket`, `m @ 1800`, `h @ 1800`, `m offset 10m`, `rate(m[5m])`, `rate(h[5m])`, `rate(b_bucket[5m])`, `quantile_over_time(0.9, m[30m])`}
	var expr func(depth int) string
	expr = func(depth int) string {
		switch {
		case depth == 0:
			return leaves[rng.IntN(len(leaves))]
		case rng.IntN(3) == 0:
			return fmt.Sprintf(between[rng.IntN(len(between))], expr(depth-1), expr(rng.IntN(depth)))
		default:
			return fmt.Sprintf(around[rng.IntN(len(around))], expr(depth-1))
		}
	}
	return expr(1 + rng.IntN(3))
}

// accountFloor is what is not told apart from rest: buffers, and what else runs.
const accountFloor = 1 << 20

func TestAccountsOfReadsAreWhatTheyHold(t *testing.T) {
	whole := os.Getenv("PROMGUARD_READ_ACCOUNTS") != ""
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	r := accountAPI(t, exposed{series: 1500, histograms: 150, buckets: 12, samples: accountSamples})
	shapes := accountShapes()
	if seed, err := strconv.ParseUint(os.Getenv("PROMGUARD_READ_ACCOUNTS_SEED"), 10, 64); err == nil {
		rng := rand.New(rand.NewPCG(seed, 0))
		for range 100 {
			shapes = append(shapes, rangeQuery(randomExpr(rng), time.Duration(15+rng.IntN(45))*time.Second))
		}
	}
	if !whole {
		shapes = []string{rangeQuery(`m`, 15*time.Second), rangeQuery(`count(m @ 1800 + time())`, time.Second), rangeQuery(`h + h`, 15*time.Second),
			instantQuery(`label_replace(m, "x", "$1$1$1$1$1$1$1$1$1$1", "pod", "(.*)")`)}
	}
	type result struct {
		target        string
		ratio         float64
		account, held int64
	}
	var results []result
	for _, shape := range shapes {
		account, held, code := measured(t, r, shape)
		name, _ := url.QueryUnescape(shape)
		if len(name) > 100 {
			name = name[:100]
		}
		if code != http.StatusOK {
			t.Logf("%d %s", code, name)
			continue
		}
		results = append(results, result{name, float64(account.Peak+accountFloor) / float64(held+accountFloor), account.Peak, held})
	}
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(a.ratio, b.ratio) })
	within, below := 0, 0
	for _, r := range results {
		if r.ratio >= 0.5 && r.ratio <= 2 {
			within++
		}
		if r.ratio < 0.5 {
			below++
		}
		t.Logf("%5.2f %7.2f MiB accounted %7.2f MiB held  %s", r.ratio, float64(r.account)/(1<<20), float64(r.held)/(1<<20), r.target)
	}
	t.Logf("%d shapes, %d below half, %d within 2x (%.1f %%)", len(results), below, within, 100*float64(within)/float64(len(results)))
	require.Zero(t, below, "accounts below half of the truth")
	require.GreaterOrEqual(t, float64(within), 0.95*float64(len(results)))
}
