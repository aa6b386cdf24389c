// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/oomstorm/internal/probe"
	"github.com/promguard/promguard/bench/oomstorm/internal/slots"
	"github.com/promguard/promguard/bench/oomstorm/internal/storm"
	"github.com/promguard/promguard/bench/oomstorm/internal/targets"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"oomstorm": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true, RequireUniqueNames: true})
}

func TestMetricsAreSummedOverTheirSeries(t *testing.T) {
	text := []byte(`# HELP runs_total Runs.
# TYPE runs_total counter
runs_total{group="/tmp/a b;x"} 3
runs_total{group="{}"} 4 1700000000000
runs_total_created 99
runs_missed_total 1
runs
other{runs_total="5"} 5
`)
	require.Equal(t, 7, sumMetric(text, "runs_total"))
	require.Equal(t, 1, sumMetric(text, "runs_missed_total"))
	require.Zero(t, sumMetric(text, "absent"))
}

func FuzzSumOfAMetricDoesNotPanic(f *testing.F) {
	f.Add("a_total{b=\"c\"} 3\na_total 4 5\n")
	f.Add("a_total}\na_total{ 1\na_total NaN\n")
	f.Fuzz(func(_ *testing.T, text string) { sumMetric([]byte(text), "a_total") })
}

func TestConfigurationScrapesEachTargetUnderItsPath(t *testing.T) {
	dir := t.TempDir()
	file, err := writeConfig(dir, &targets.Set{Addr: "127.0.0.1:1", Paths: []string{"/metrics/a", "/metrics/b"}}, 2*time.Second, time.Second)
	require.NoError(t, err)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, `global:
    scrape_interval: 2s
    scrape_timeout: 2s
    evaluation_interval: 1s
rule_files:
    - `+filepath.Join(dir, "rules.yml")+`
scrape_configs:
    - job_name: live
      static_configs:
        - targets:
            - 127.0.0.1:1
          labels:
            __metrics_path__: /metrics/a
            instance: /metrics/a
        - targets:
            - 127.0.0.1:1
          labels:
            __metrics_path__: /metrics/b
            instance: /metrics/b
`, string(b))
}

// two are results of a server that died and of one that lived.
func two() []stormResult {
	return []stormResult{
		{
			Binary: binary.Binary{Name: "upstream"}, Series: 10, Rest: 100 << 20, Limit: 250 << 20, LimitBy: "250 MiB by a cgroup of version 1",
			Lived: 12.5, How: "signal killed", Peak: peak{HWM: 251 << 20, Anon: 250 << 20},
			Scrapes: slots.Count{Expected: 30, Missed: 4}, Unloaded: probe.Result{Query: probe.Summary{Count: 10, P99: 0.01}},
			Meanwhile: probe.Result{Query: probe.Summary{Count: 60, Failed: 3, P99: 30}},
			Answers:   storm.Result{"series": {Outcomes: map[string]int{"cut": 2, "200": 1}, Bytes: 3 << 20}},
		},
		{
			Binary: binary.Binary{Name: "patched"}, Survived: true, Lived: 120, Rest: 100 << 20, Peak: peak{HWM: 130 << 20},
			Recovered: seconds(2 * time.Second), Terminated: seconds(time.Second),
			Unloaded: probe.Result{Query: probe.Summary{Count: 10, P99: 0.01}}, Meanwhile: probe.Result{Query: probe.Summary{P99: 0.02}},
		},
	}
}

func TestTableShowsBinariesSideBySide(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, writeStorms(&out, stormConfig{common: common{Format: "table"}}, two()))
	for _, want := range []string{
		`(?m)^ +upstream +patched$`,
		`(?m)^storm +ended at second 12.5 +survived 120 s$`,
		`(?m)^ended by +signal killed +-$`,
		`(?m)^peak RSS over rest +151 MiB +30 MiB$`,
		`(?m)^scrapes missed +4 of 30 +0 of 0$`,
		`(?m)^sum\(up\) p99 ratio +3000.0 +2.0$`,
		`(?m)^at rest again after +- +2.0 s$`,
		`(?m)^answers series +200: 1, cut: 2; 3 MiB +-$`,
	} {
		require.Regexp(t, want, out.String())
	}
}

func TestBenchmarkFormatReadsBack(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, writeStorms(&out, stormConfig{common: common{Format: "benchfmt"}, Clients: 3}, two()))
	r := benchfmt.NewReader(&out, "stdout")
	survived := map[string]float64{}
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.Result:
			survived[string(rec.Name)], _ = rec.Value("survived")
			require.Equal(t, "3", rec.GetConfig("clients"))
		case *benchfmt.SyntaxError:
			require.NoError(t, rec)
		}
	}
	require.NoError(t, r.Err())
	require.Equal(t, map[string]float64{"Storm/binary=upstream": 0, "Storm/binary=patched": 1}, survived)
}
