// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/querylimit"
)

// resident returns how much memory a server has, and the most since resetPeak, in bytes.
func resident(t *testing.T, s *server) (now, peak int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	require.NoError(t, err, "it runs")
	for name, into := range map[string]*int64{"\nVmRSS:": &now, "\nVmHWM:": &peak} {
		_, kib, _ := strings.Cut(string(status), name)
		_, err = fmt.Sscan(kib, into)
		require.NoError(t, err)
	}
	return now << 10, peak << 10
}

func resetPeak(t *testing.T, s *server) {
	t.Helper()
	_ = post(t, s.url+"/debug/pprof/heap?gc=1", "") // What others left is no growth.
	require.NoError(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.cmd.Process.Pid), []byte("5"), 0))
}

// heaviest returns so many of those of a list that have most series, in order.
func heaviest(counts map[string]int, n int) []string {
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	return names[:min(n, len(names))]
}

// hostile returns a random query of selectors that name a metric or a value, over what
// most series have. Most of what stock Prometheus would not evaluate is left out.
func hostile(rng *rand.Rand, h *querylimit.Head) string {
	one := func(list ...string) string { return list[rng.IntN(len(list))] }
	var pairs []string
	for label, values := range h.Counts {
		for value, series := range values {
			if label != "__name__" && label != "" && series > h.Series/100 {
				pairs = append(pairs, fmt.Sprintf("%s=%q", label, value))
			}
		}
	}
	slices.Sort(pairs)
	metrics := heaviest(h.Counts["__name__"], 200)
	// Of many metrics, series would be the same where their names are taken away.
	const wide, single = 4, 2
	selector := func(kinds int, window string) string {
		s := one(metrics...)
		switch rng.IntN(kinds) {
		case 0:
			s += `{pod=~".*",le!="x"}`
		case 2:
			s = "{" + one(pairs...) + "}"
		case 3:
			s = fmt.Sprintf(`{__name__=~"%s.*|%s.*"}`, one(metrics...)[:6], one(metrics...)[:6])
		}
		return s + window + one("", "", " offset 10s", " @ end()", " @ start()")
	}
	var vector func(depth, kinds int) string
	vector = func(depth, kinds int) string {
		if depth == 0 {
			return selector(kinds, "")
		}
		in := func(kinds int) string { return vector(depth-1, kinds) }
		switch rng.IntN(11) {
		case 0:
			return one("rate(", "max_over_time(", "quantile_over_time(0.5, ") + selector(single, "[5m]") + ")"
		case 1:
			return "last_over_time(" + selector(kinds, "[5m]") + ")"
		case 2:
			return one("sum", "count", "stddev") + one("", " by (pod)", " by (le, pod, namespace)") + "(" + in(wide) + ")"
		case 3:
			return one("topk", "bottomk", "limitk") + "(" + one("1", "100000") + "," + in(kinds) + ")"
		case 4:
			return one("max_over_time", "count_over_time") + "((" + in(single) + ")[" + one("2m:1s", "5m:5s") + "])"
		case 5:
			return "(" + in(kinds) + ") " + one("or", "and", "unless", "or on (pod)") + " (" + in(kinds) + ")"
		case 6:
			both := in(single)
			return "(" + both + ") " + one("+", "*", "== bool") + " ignoring (x) (" + both + ")"
		case 7:
			return "(" + in(single) + ") " + one("+", "*", "== bool") + " on (instance, pod) group_left() sum by (instance, pod) (" + in(wide) + ")"
		case 8:
			return one("abs", "timestamp", "-", "sum without (x) ") + "(" + in(single) + ")"
		case 9:
			return fmt.Sprintf(one(
				`label_replace(%s, "copy", "$1", "pod", "(.*)")`, `label_replace(%s, "copy", "$1-$1-$1-$1", "pod", "(.*)")`,
				`label_join(%s, "all", ",", "namespace", "pod", "container", "instance")`,
			), in(kinds))
		}
		return `count_values("value", ` + in(wide) + ")"
	}
	return vector(rng.IntN(4), wide)
}

// TestHostileQueriesThatPassLeaveStockPrometheusMostOfItsMemory draws queries, keeps those
// that the limits let pass, and asks those that are expected to take most.
func TestHostileQueriesThatPassLeaveStockPrometheusMostOfItsMemory(t *testing.T) {
	t.Parallel()
	const limit = 1280 << 20
	n, err := strconv.Atoi(cmp.Or(os.Getenv("PROMGUARD_HOSTILE_QUERIES"), "20"))
	require.NoError(t, err)
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("PROMGUARD_HOSTILE_SEED"), "1"), 10, 64)
	require.NoError(t, err)
	s := stock(t, history.data(t), "--enable-feature=promql-experimental-functions", "GOMEMLIMIT="+strconv.Itoa(limit))
	h := headOf(t, s)
	require.EqualValues(t, limit, h.Memory)
	end := time.UnixMilli(int64(1000 * metric(t, s.url, "prometheus_tsdb_head_max_time_seconds", nil)))
	rules, err := querylimit.NewRuleset(querylimit.RulesetOptions{Global: querylimit.DefaultOptions()})
	require.NoError(t, err)
	analyzer := querylimit.NewAnalyzer(32 << 20)
	rng := rand.New(rand.NewPCG(300, seed))
	type candidate struct {
		path, form string
		bytes      int64
	}
	heaviestOf := map[string]candidate{} // by fingerprint
	refused := 0
	for range 100 * n {
		text := hostile(rng, h)
		step := time.Duration(1+rng.IntN(60)) * time.Second
		r := querylimit.Request{
			Endpoint: querylimit.FindEndpoint("query_range"), Texts: []string{text},
			Start: end.Add(-time.Duration(rng.IntN(60)) * step), End: end, Step: step, Given: true, Limit: -1, Head: h,
		}
		v, err := rules.Judge(analyzer, &r, time.Now())
		require.NoError(t, err, text)
		if v.Refusals.Err() != nil {
			refused++
			continue
		}
		c := candidate{"query_range", url.Values{"query": {text}, "start": {secondsText(r.Start)}, "end": {secondsText(r.End)}, "step": {step.String()}}.Encode(), v.Cost.Bytes()}
		if id := v.Queries[0].Fingerprint; c.bytes > heaviestOf[id].bytes {
			heaviestOf[id] = c
		}
	}
	var list []candidate
	for _, c := range heaviestOf {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.form, b.form)) })
	list = list[:min(n, len(list))]
	resetPeak(t, s)
	rest, _ := resident(t, s)
	most, worst, answered := int64(0), "", 0
	for _, c := range list {
		resetPeak(t, s)
		a := post(t, s.url+"/api/v1/"+c.path, c.form)
		if a.code == http.StatusOK {
			answered++
		}
		_, peak := resident(t, s)
		if peak > most {
			most, worst = peak, c.form
		}
		t.Logf("%d MiB expected, %d MiB more than at rest, status %d: %s", c.bytes>>20, (peak-rest)>>20, a.code, c.form)
	}
	t.Logf("%d of %d refused; of %d asked %d were answered; at rest %d MiB, at most %d MiB with a limit of %d MiB", refused, 100*n, len(list), answered, rest>>20, most>>20, limit>>20)
	require.Len(t, list, n)
	require.Greater(t, answered, n*2/3)
	require.LessOrEqual(t, most-rest, int64(limit*3/10), worst)
}
