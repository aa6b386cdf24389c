// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
)

// stock starts upstream's own Prometheus on a data directory.
func stock(t *testing.T, data string, flags ...string) *server {
	t.Helper()
	return prometheusOf(t, "stock/prometheus", data, emptyConfig, flags...)
}

// headOf is what a proxy knows of a server.
func headOf(t *testing.T, s *server) *querylimit.Head {
	t.Helper()
	root, err := url.Parse(s.url)
	require.NoError(t, err)
	p := upstream.NewPool(upstream.Options{
		URLs: []*url.URL{root}, Probe: upstream.ProbeWarn, Transport: http.DefaultTransport,
		Registerer: client.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, p.Check(t.Context()))
	require.NotNil(t, p.Head())
	return p.Head()
}

// told is what a server says of a query with stats=all.
type told struct{ SeriesTouched, PeakSamples float64 }

func stats(t *testing.T, s *server, r *querylimit.Request) (told, bool) {
	t.Helper()
	// What is counted is the same with a limit, which cuts the answer.
	form := url.Values{"query": r.Texts, "stats": {"all"}, "limit": {"1"}, "time": {secondsText(r.End)}}
	if r.Step > 0 {
		form = url.Values{"query": r.Texts, "stats": {"all"}, "limit": {"1"}, "start": {secondsText(r.Start)}, "end": {secondsText(r.End)}, "step": {r.Step.String()}}
	}
	a := post(t, s.url+"/api/v1/"+r.Endpoint.Name, form.Encode())
	var body struct {
		Data struct{ Stats struct{ Samples told } }
	}
	if a.code != http.StatusOK {
		return told{}, false // It joins many with many, or the like.
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &body))
	return body.Data.Stats.Samples, true
}

func secondsText(at time.Time) string {
	return strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)
}

// dashboards returns what dashboards, alerts and rules of kube-prometheus ask.
func dashboards(t *testing.T) []string {
	t.Helper()
	var list []struct{ Expr string }
	text, err := os.ReadFile("../../shared/kube-prometheus/expressions.json") // If it is beside the repository.
	if err == nil {
		require.NoError(t, json.Unmarshal(text, &list))
	} else {
		text, err = os.ReadFile("../bench/oomstorm/internal/scenario/expressions.yaml")
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, &list))
	}
	variable := regexp.MustCompile(`=~?"VARX"`)
	var out []string
	for _, e := range list {
		expr := variable.ReplaceAllString(e.Expr, `=~".*"`)
		out = append(out, strings.ReplaceAll(expr, "VARX", "5m"))
	}
	return out
}

// drawn returns random expressions over the metrics and labels that a server has.
func drawn(h *querylimit.Head, n int) []string {
	rng := rand.New(rand.NewPCG(19, 20))
	var metrics, pairs []string
	for label, values := range h.Counts {
		for value := range values {
			switch {
			case label == "__name__":
				metrics = append(metrics, value)
			case label != "":
				pairs = append(pairs, fmt.Sprintf("%s=%q", label, value), fmt.Sprintf("%s=~%q", label, regexp.QuoteMeta(value)+"|other"), fmt.Sprintf("%s!=%q", label, value))
			}
		}
	}
	slices.Sort(metrics)
	slices.Sort(pairs)
	one := func(list []string) string { return list[rng.IntN(len(list))] }
	selector := func() string {
		return one(metrics) + one([]string{"", "", "{" + one(pairs) + "}", "{" + one(pairs) + "," + one(pairs) + "}"}) + "%s" + one([]string{"", "", "", " offset 1m", " @ end()", " @ start()"})
	}
	var vector func(depth int) string
	vector = func(depth int) string {
		if depth == 0 {
			return fmt.Sprintf(selector(), "")
		}
		in := func() string { return vector(depth - 1) }
		switch rng.IntN(12) {
		case 0, 1:
			return one([]string{"rate", "increase", "max_over_time", "last_over_time", "absent_over_time", "present_over_time"}) + "(" + fmt.Sprintf(selector(), one([]string{"[1m]", "[2m]", "[5m]"})) + ")"
		case 2, 3:
			return one([]string{"sum", "count", "max", "group"}) + one([]string{"", " by (job)", " by (namespace, pod)", " without (instance)", " by (absent)"}) + "(" + in() + ")"
		case 4:
			return one([]string{"topk", "bottomk", "limitk"}) + "(" + one([]string{"1", "3", "10000"}) + "," + in() + ")"
		case 5:
			return "max_over_time((" + in() + ")[2m:" + one([]string{"", "15s", "7s"}) + "]" + one([]string{"", " offset 30s", " @ end()"}) + ")"
		case 6:
			return "(" + in() + ") " + one([]string{"or", "and", "unless", "or on(job)", "and on()"}) + " (" + in() + ")"
		case 7:
			return "(" + in() + ") " + one([]string{"+", "*", ">", "== bool"}) + " " + one([]string{"", "on(instance) group_left ", "ignoring(job) group_right "}) + "(" + in() + ")"
		case 8:
			return one([]string{"abs", "ceil", "timestamp", "sort", "-", "absent", "histogram_sum"}) + "(" + in() + ")"
		case 9:
			return `label_replace(` + in() + `, "job", "$1", "instance", "(.*)")`
		case 10:
			return `count_values("value", ` + in() + ")"
		}
		return "(" + in() + ") * scalar(" + in() + ")"
	}
	list := make([]string, n)
	for i := range list {
		list[i] = vector(rng.IntN(4))
	}
	return list
}

// TestEstimatesBoundWhatStockPrometheusSays asks stock Prometheus what queries turned
// out to cost.
func TestEstimatesBoundWhatStockPrometheusSays(t *testing.T) {
	t.Parallel()
	s := stock(t, history.data(t))
	h := headOf(t, s)
	end := time.UnixMilli(int64(1000 * metric(t, s.url, "prometheus_tsdb_head_max_time_seconds", nil)))
	rules, err := querylimit.NewRuleset(querylimit.RulesetOptions{Global: querylimit.DefaultOptions()})
	require.NoError(t, err)
	analyzer := querylimit.NewAnalyzer(32 << 20)
	var factors [2][]float64
	refused, asked := 0, 0
	shipped := dashboards(t)
	for i, text := range slices.Concat(shipped, drawn(h, 1000)) {
		instant := querylimit.Request{Endpoint: querylimit.FindEndpoint("query"), Texts: []string{text}, Start: end, End: end, Given: true, Limit: -1, Head: h}
		ranged := instant
		ranged.Endpoint, ranged.Start, ranged.Step = querylimit.FindEndpoint("query_range"), end.Add(-5*time.Minute), 17*time.Second
		for _, r := range []*querylimit.Request{&instant, &ranged} {
			v, err := rules.Judge(analyzer, r, time.Now())
			if err != nil || v.Queries == nil {
				continue
			}
			if v.Refusals.Err() != nil && i < len(shipped) {
				refused++
				t.Log(v.Refusals.Err())
			}
			e := v.Cost
			truth, ok := stats(t, s, r)
			if !ok {
				continue
			}
			asked++
			for j, of := range [][2]float64{{e.Series, truth.SeriesTouched}, {e.Held, truth.PeakSamples}} {
				require.GreaterOrEqual(t, of[0], of[1], "%s: %s: %+v, and it is %+v", r.Endpoint.Name, text, e, truth)
				if i < len(shipped) && truth.SeriesTouched > 0 && of[1] > 0 {
					factors[j] = append(factors[j], of[0]/of[1])
				}
			}
		}
	}
	require.Zero(t, refused)
	require.Greater(t, asked, 1000)
	for j, name := range []string{"series", "held"} {
		f := factors[j]
		slices.Sort(f)
		within := func(most float64) float64 { n, _ := slices.BinarySearch(f, most); return float64(n) / float64(len(f)) }
		t.Logf("%s of %d: median %.2f, p90 %.2f, within 2 %.3f, within 10 %.3f", name, len(f), f[len(f)/2], f[len(f)*9/10], within(2.001), within(10.001))
		require.Greater(t, within(10.001), 0.9, name)
	}
}

// TestDashboardsPassAndHostileQueriesDoNot takes what a server told for that of one
// with three weeks of samples, whose memory is 2.5 times what so many series take.
func TestDashboardsPassAndHostileQueriesDoNot(t *testing.T) {
	t.Parallel()
	h := *headOf(t, stock(t, cluster.data(t)))
	now := time.Now()
	h.Oldest, h.Since, h.Interval = now.Add(-21*24*time.Hour), now.Add(-2*time.Hour), 30*time.Second
	h.Memory = int64(h.Series) * 4500 * 5 / 2
	rules, err := querylimit.NewRuleset(querylimit.RulesetOptions{Global: querylimit.DefaultOptions()})
	require.NoError(t, err)
	analyzer := querylimit.NewAnalyzer(32 << 20)
	refusal := func(endpoint, text string, length, step time.Duration) error {
		r := querylimit.Request{
			Endpoint: querylimit.FindEndpoint(endpoint), Texts: []string{text},
			Start: now.Add(-length), End: now, Step: step, Given: true, Limit: -1, Head: &h,
		}
		v, err := rules.Judge(analyzer, &r, now)
		require.NoError(t, err, text)
		return v.Refusals.Err()
	}
	for _, text := range dashboards(t) {
		require.NoError(t, refusal("query", text, 0, 0))
		require.NoError(t, refusal("query_range", text, 24*time.Hour, time.Minute))
		require.NoError(t, refusal("query_range", text, 7*24*time.Hour, 10*time.Minute))
	}
	const most, day = `{service="kubelet"}`, 24 * time.Hour
	chain := strings.Repeat("kube_pod_info or ", 10) + "kube_pod_info"
	copies := "kube_pod_info"
	for i := range 12 {
		copies = fmt.Sprintf(`label_replace(%s, "l%d", "$1", "pod", "(.*)") + on(pod) kube_pod_info`, copies, i)
	}
	for name, err := range map[string]error{
		"most of the server over some steps":     refusal("query_range", most, 140*time.Minute, time.Minute),
		"counted":                                refusal("query_range", "count("+most+")", 300*time.Minute, time.Minute),
		"in a subquery":                          refusal("query", "count(max_over_time("+most+"[1d:1m]))", 0, 0),
		"with much that bounds nothing":          refusal("query_range", `{service="kubelet",pod=~".*",le!="1",x!="y"}`, 140*time.Minute, time.Minute),
		"by names":                               refusal("query_range", `{__name__=~"container_.*|kubelet_.*"}`, 10*time.Hour, time.Minute),
		"a series for every value":               refusal("query_range", `count_values("v", container_cpu_usage_seconds_total)`, 10*time.Hour, time.Minute),
		"a chain of or":                          refusal("query_range", chain, 7*day, time.Minute),
		"a chain of labels":                      refusal("query_range", copies, 7*day, time.Minute),
		"every series of a range":                refusal("query", most+"[1d]", 0, 0),
		"an aggregation that keeps every series": refusal("query_range", "sum without (x) ("+most+")", 300*time.Minute, time.Minute),
	} {
		require.Error(t, err, name)
	}
	require.NoError(t, refusal("query", "count("+most+")", 0, 0), "an instant of it has its place")
	h.Memory /= 4
	require.Error(t, refusal("query", "count("+most+")", 0, 0))
	require.Error(t, refusal("series", most, time.Hour, 0))
}

func TestExplainSaysWhatAQueryCostsBeforeAServer(t *testing.T) {
	t.Parallel()
	s := stock(t, cluster.data(t))
	explain := func(more ...string) (string, error) {
		args := append([]string{"explain", `{service="kubelet"}`, "--upstream.url=" + s.url, "--end=1767225645"}, more...)
		out, err := exec.Command(binary(t, "promguard"), args...).CombinedOutput()
		return string(out), err
	}
	out, err := explain("--start=1700000000", "--step=1000h")
	require.NoError(t, err, out)
	require.Contains(t, out, "It reads from before the head of the server")
	out, err = explain()
	require.NoError(t, err, out)
	require.Regexp(t, `(?m)^series +enforce +1\d{5} +\d+ *$`, out)
	require.Regexp(t, `(?m)^It is expected to take \d{3,}\.\d MiB of the server\.$`, out)

	file := filepath.Join(t.TempDir(), "strict.yml")
	require.NoError(t, os.WriteFile(file, []byte("limits: {samples: {max: 3000000}}\n"), 0o600))
	out, err = explain("--config.file="+file, "--start=1767225600", "--step=1s", "--output=json")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode(), out)
	var said struct {
		Passes   bool
		Bytes    int64
		Refusals []string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &said), out)
	require.False(t, said.Passes)
	require.Greater(t, said.Bytes, int64(100<<20))
	step := regexp.MustCompile(`^Ask for a step of (\S+), which passes`).FindStringSubmatch(said.Refusals[0])
	require.NotNil(t, step, said.Refusals)
	out, err = explain("--config.file="+file, "--start=1767225600", "--step="+step[1])
	require.NoError(t, err, out)
}
