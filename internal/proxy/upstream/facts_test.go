// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"os"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestServerThatIsNotWhatItIsTakenForEndsTheStart(t *testing.T) {
	const build = "/api/v1/status/buildinfo"
	base := healthy(1)
	for name, tc := range map[string]struct {
		kind    Kind
		answers map[string]string
		want    string // of the error; "" if it is served
		told    string // of the mismatches that are told only
	}{
		"as configured":                 {KindPrometheus, base, "", ""},
		"patched":                       {KindPrometheus, with(base, build, success(`{"version":"3.16.0+promguard.1","revision":"a"}`)), "", ""},
		"older":                         {KindPrometheus, with(base, build, success(`{"version":"2.53.1","revision":"a"}`)), "", ""},
		"newer":                         {KindPrometheus, with(base, build, success(`{"version":"3.17.0-rc.0","revision":"a"}`)), "", MismatchVersion},
		"Mimir, named":                  {KindMimir, with(base, build, success(`{"application":"Grafana Mimir","version":"2.17.0"}`)), "", ""},
		"Mimir, not named":              {KindPrometheus, with(base, build, success(`{"application":"Grafana Mimir","version":"2.17.0"}`)), "it is Grafana Mimir 2.17.0, and --upstream.kind is prometheus.*use --upstream.kind=mimir", ""},
		"Thanos, not named":             {KindPrometheus, with(base, build, success(`{"version":"0.40.1","revision":"a","goVersion":"go1.26"}`)), "use --upstream.kind=thanos", ""},
		"VictoriaMetrics, not named":    {KindPrometheus, with(base, build, success(`{"version":"2.24.0"}`)), "it is VictoriaMetrics, .*use --upstream.kind=victoriametrics", ""},
		"Thanos without a version":      {KindPrometheus, with(base, build, success(`{"version":"","revision":"","goVersion":"go1.26"}`), "/api/v1/status/flags", success(`{"query.replica-label":"","query.lookback-delta":"0s"}`)), "it is Thanos, and .*use --upstream.kind=thanos", ""},
		"the same, named":               {KindThanos, with(base, build, success(`{"version":"","revision":"","goVersion":"go1.26"}`), "/api/v1/status/flags", success(`{"query.replica-label":""}`)), "", ""},
		"a branch of Thanos":            {KindThanos, with(base, build, success(`{"version":"main-abc","revision":"a"}`)), "", ""},
		"something else":                {KindPrometheus, with(base, build, success(`{"application":"Chronosphere","version":"1"}`)), "", ""},
		"nothing to say":                {KindPrometheus, with(base, build, success(`["/api/v1/status/buildinfo?"]`)), "", ""},
		"agent":                         {KindPrometheus, with(base, "/api/v1/features", success(`{"prometheus":{"agent_mode":true}}`)), "agent mode", ""},
		"functions that are known":      {KindPrometheus, with(base, "/api/v1/features", success(`{"promql_functions":{"rate":true,"mad_over_time":true},"promql":{"fill":true,"type_and_unit_labels":true},"promql_operators":{"limitk":true,"</":true}}`)), "", ""},
		"a function that is not known":  {KindPrometheus, with(base, "/api/v1/features", success(`{"promql_functions":{"guess":true}}`)), "", MismatchPromQL},
		"which is off":                  {KindPrometheus, with(base, "/api/v1/features", success(`{"promql_functions":{"guess":false}}`)), "", ""},
		"syntax that is not known":      {KindPrometheus, with(base, "/api/v1/features", success(`{"promql":{"a":true,"b":true},"promql_operators":{"c":true,"d":true}}`)), "", MismatchPromQL},
		"no API at this path":           {KindPrometheus, map[string]string{"/-/ready": "ok"}, "it answers 404 at /api/v1/status/buildinfo and 404 at /api/v1/query, .*--web.route-prefix", ""},
		"a page at every path":          {KindPrometheus, with(nil, "/api/v1/status/buildinfo", "<html>", "/api/v1/query", "<html>"), "it answers 200 at", ""},
		"a path of VictoriaMetrics":     {KindVictoriaMetrics, with(nil, "/api/v1/status/buildinfo", "400 unsupported path", "/api/v1/query", "400 unsupported path"), "it answers 400 at", ""},
		"a redirect":                    {KindPrometheus, with(nil, "/-/ready", "ok", "/api/v1/status/buildinfo", "302 ", "/api/v1/query", "302 "), "", ""},
		"a gateway that passes queries": {KindPrometheus, map[string]string{"/api/v1/query": base["/api/v1/query"]}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTestPool(t, tc.kind, ProbeRequire, "http://a")
			p.serve("a", tc.answers)
			err := p.Check(t.Context())
			if tc.want != "" {
				require.ErrorAs(t, err, new(*MismatchError))
				require.Regexp(t, "^http://a: .*"+tc.want, err.Error())
			} else {
				require.NoError(t, err)
			}
			for _, name := range mismatchNames() {
				told := testutil.ToFloat64(p.metrics.mismatch.WithLabelValues("http://a", name)) == 1
				require.Equal(t, name == tc.told, told && tc.want == "", name)
			}

			warned := newTestPool(t, tc.kind, ProbeWarn, "http://a")
			warned.serve("a", tc.answers)
			require.NoError(t, warned.Check(t.Context()))
			require.Equal(t, tc.want+tc.told != "", warned.logs.Len() > 0, warned.logs)

			off := newTestPool(t, tc.kind, ProbeOff, "http://a")
			off.serve("a", tc.answers)
			require.NoError(t, off.Check(t.Context()))
			require.Zero(t, off.count("a/api/v1/status/flags"))
			require.Zero(t, off.logs.Len())
		})
	}
}

func TestServerThatComesLaterIsProbedThen(t *testing.T) {
	wrong := with(healthy(1), "/api/v1/status/buildinfo", success(`{"application":"Cortex","version":"1.19"}`))
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, KindPrometheus, ProbeRequire, "http://a")
		require.Error(t, p.Check(t.Context()))
		ended := make(chan error, 1)
		go func() { ended <- p.Run(t.Context()) }()
		time.Sleep(time.Hour)
		p.serve("a", map[string]string{"/-/ready": "503 "})
		time.Sleep(time.Hour)
		require.Empty(t, ended, "it says nothing of itself while it replays")
		p.serve("a", wrong)
		require.ErrorContains(t, <-ended, "use --upstream.kind=mimir")
	})
}

func TestWhatChangesBehindARunningPromguardIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, KindPrometheus, ProbeRequire, "http://a")
		p.serve("a", healthy(1))
		require.NoError(t, p.Check(t.Context()))
		p.run(t)
		p.serve("a", with(healthy(1), "/api/v1/features", success(`{"promql_functions":{"guess":true}}`)))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, 1.0, testutil.ToFloat64(p.metrics.mismatch.WithLabelValues("http://a", MismatchPromQL)))
		require.Regexp(t, `^time=\S+ level=WARN msg="Upstream server is not what promguard takes it for" server=http://a mismatch=promql text="its PromQL has guess.*\n$`, p.logs.String())
		p.serve("a", healthy(1))
		time.Sleep(2 * factsEvery)
		synctest.Wait()
		require.Zero(t, testutil.ToFloat64(p.metrics.mismatch.WithLabelValues("http://a", MismatchPromQL)))
	})
}

func TestLimitsAreJudgedByWhatTheServersDo(t *testing.T) {
	p := newTestPool(t, KindPrometheus, ProbeRequire, "http://a", "http://b")
	require.Equal(t, Assumptions{Lookback: 5 * time.Minute, SubqueryStep: time.Minute}, p.Assumed())
	p.serve("a", with(healthy(1), "/api/v1/status/flags", success(`{"query.lookback-delta":"1m"}`)))
	require.NoError(t, p.Check(t.Context()))
	require.Equal(t, Assumptions{Lookback: 5 * time.Minute, SubqueryStep: time.Minute}, p.Assumed(), "the other one may have the defaults")
	p.serve("b", with(healthy(1), "/api/v1/status/flags", success(`{"query.lookback-delta":"7m","query.timeout":"1m"}`),
		"/api/v1/query", success(`{"resultType":"vector","result":[{"metric":{},"value":[0,"15.0000001"]}]}`)))
	require.NoError(t, p.Check(t.Context()))
	require.Equal(t, Assumptions{Lookback: 7 * time.Minute, SubqueryStep: 15 * time.Second}, p.Assumed(), "those that make a query read most")
	require.InDelta(t, 420, testutil.ToFloat64(p.metrics.lookback), 0)

	p = newTestPool(t, KindPrometheus, ProbeRequire, "http://a", "http://b")
	p.serve("b", with(healthy(1), "/api/v1/features", success(`{"promql":{"a":true},"promql_functions":{"guess":true,"rate":true},"promql_operators":{"c":true,"d":true}}`)))
	require.NoError(t, p.Check(t.Context()))
	require.Equal(t, []string{"a", "c", "d", "guess"}, p.Assumed().UnknownPromQL)
}

func TestOddAnswersTellNothing(t *testing.T) {
	for _, text := range []string{
		``, `null`, `{"status":"success"}`, success(`null`), success(`{"result":[]}`), success(`{"result":[{"value":[0,7]}]}`),
		success(`{"result":[{"value":[0,"NaN"]}]}`), success(`{"result":[{"value":[0,"+Inf"]}]}`), success(`{"result":[{"value":[0,"-5"]}]}`),
	} {
		p := newTestPool(t, KindPrometheus, ProbeRequire, "http://a")
		answers := healthy(1)
		for _, path := range []string{"/api/v1/query", "/api/v1/features", "/api/v1/status/flags", "/api/v1/status/runtimeinfo"} {
			answers[path] = text
		}
		p.serve("a", answers)
		require.NoError(t, p.Check(t.Context()), text)
		require.Equal(t, Assumptions{Lookback: 5 * time.Minute, SubqueryStep: time.Minute}, p.Assumed(), text)
	}
}

func TestVersionOfTheParserIsThatOfTheModule(t *testing.T) {
	mod, err := os.ReadFile("../../../go.mod")
	require.NoError(t, err)
	got := regexp.MustCompile(`github\.com/prometheus/prometheus v0\.(\d)(\d\d)\.`).FindSubmatch(mod)
	require.NotNil(t, got)
	require.Equal(t, parserVersion, string(got[1])+"."+string(got[2]))
}
