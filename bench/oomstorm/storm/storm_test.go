// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"

	"github.com/promguard/promguard/bench/internal/benchout"
	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/oomstorm/internal/clients"
	"github.com/promguard/promguard/bench/oomstorm/internal/scenario"
	"github.com/promguard/promguard/bench/oomstorm/internal/targets"
	"github.com/promguard/promguard/internal/cli"
)

func TestConfigurationScrapesEachTargetUnderItsPath(t *testing.T) {
	dir := t.TempDir()
	set := &targets.Set{Addr: "127.0.0.1:1", Jobs: map[string][]string{"steady": {"/steady/a", "/steady/b"}}}
	file, err := writeConfig(dir, "127.0.0.1:2", set, 2*time.Second, time.Second)
	require.NoError(t, err)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, `global:
  scrape_interval: 2s
  scrape_timeout: 2s
  evaluation_interval: 1s
rule_files: [rules.yml]
scrape_configs:
- job_name: prometheus
  static_configs: [{targets: ['127.0.0.1:2']}]
- job_name: steady
  metric_relabel_configs: [{source_labels: [__name__], target_label: metric}]
  static_configs:
  - {targets: ['127.0.0.1:1'], labels: {__metrics_path__: '/steady/a', instance: '/steady/a'}}
  - {targets: ['127.0.0.1:1'], labels: {__metrics_path__: '/steady/b', instance: '/steady/b'}}
`, string(b))
}

// two are results of a server that died and of one that lived.
func two() []result {
	return []result{
		{
			binary: binary.Binary{Name: "upstream"}, rest: 100 << 20, limitBy: "250 MiB by a cgroup of version 1",
			phases: []phaseResult{{
				name: "storm", figures: map[string]float64{"alive": 0, "over-rest-bytes": 151 << 20, "dashboards-sec": 10},
				families: map[string]clients.Outcomes{"series": {clients.Cut: 2}, "labels": {"200": 1}},
			}},
			ended: "signal killed", endedIn: "storm", lastWords: []string{"a last word"},
		},
		{
			binary: binary.Binary{Name: "patched"}, rest: 100 << 20,
			phases: []phaseResult{
				{name: "storm", figures: map[string]float64{"alive": 1, "over-rest-bytes": 30 << 20, "storm-cut": 0, "dashboards-sec": 11}},
				{name: "after", figures: map[string]float64{"alive": 1}, queries: map[string]float64{"up": 3}},
			},
		},
	}
}

func read(t *testing.T, expect string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse([]byte("series: 5000\nphases: [{name: storm, for: 1s}, {name: after, for: 1s}]\nexpect:\n" + expect))
	require.NoError(t, err)
	return s
}

func TestExpectationsThatAreNotMetAreListed(t *testing.T) {
	for _, tc := range []struct{ expect, unmet string }{
		{"{name: x, binary: patched, figure: alive, at_least: 1}", ""},
		{"{name: x, binary: upstream, phase: storm, figure: alive, at_most: 0}", ""},
		{"{name: x, figure: alive, at_least: 1}", "x (upstream): alive in storm is 0, less than 1"},
		{"{name: x, binary: upstream, phase: after, figure: peak-bytes, at_least: 1}", "x (upstream): not measured"},
		{"{name: x, binary: patched, figure: over-rest-bytes, at_most: 20971520}", "x (patched): over-rest-bytes in storm is 30 MiB, more than 20 MiB"},
		{"{name: x, binary: patched, figure: slow-cut, at_most: 0}", "x (patched): not measured"},
		{"{name: x, binary: patched, phase: after, query: up, at_least: 3}", ""},
		{"{name: x, binary: patched, phase: after, query: up, at_most: 2}", "x (patched): up in after is 3, more than 2"},
		{"{name: x, binary: patched, phase: storm, figure: dashboards-sec, at_most: 1.2, times: upstream}", ""},
		{"{name: x, binary: patched, phase: storm, figure: dashboards-sec, at_most: 1.05, times: upstream}", "x (patched): dashboards-sec in storm is 11, more than 10.5"},
		{"{name: x, binary: patched, phase: after, figure: alive, at_most: 1, times: upstream}", "x (patched): upstream has no alive in after"},
		{"{name: x, binary: other, figure: alive, at_least: 1}", ""},
	} {
		var out bytes.Buffer
		err := judge(&out, read(t, "- "+tc.expect+"\n"), two())
		if tc.unmet == "" {
			require.NoError(t, err, tc.expect)
			require.NotContains(t, out.String(), "UNMET")
			continue
		}
		require.ErrorIs(t, err, cli.Exit(1), tc.expect)
		require.Contains(t, out.String(), ", 1 not\nUNMET: "+tc.unmet+"\n")
	}
}

func TestTableShowsBinariesSideBySideAndHowOneEnded(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, judge(&out, read(t, " []\n"), two()))
	for _, want := range []string{
		`(?m)^ +upstream +patched$`,
		`(?m)^storm alive +0 +1$`,
		`(?m)^storm over-rest-bytes +151 MiB +30 MiB$`,
		`(?m)^after alive +- +1$`,
		`(?m)^upstream ended in storm: signal killed; cut: series\n  a last word$`,
	} {
		require.Regexp(t, want, out.String())
	}
	require.NotContains(t, out.String(), "storm-cut", "nobody has anything but 0")
}

func TestBenchmarkFormatReadsBack(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, writeFigures(benchout.New(&out, cli.Text), read(t, " []\n"), two()))
	require.Equal(t, map[string]float64{
		"Oomstorm/phase=storm/binary=upstream": 0, "Oomstorm/phase=storm/binary=patched": 1, "Oomstorm/phase=after/binary=patched": 1,
	}, figure(t, &out, "alive"))
}

// figure reads one from the benchmark format, by the name of the line.
func figure(t *testing.T, out *bytes.Buffer, name string) map[string]float64 {
	t.Helper()
	r := benchfmt.NewReader(bytes.NewReader(out.Bytes()), "stdout")
	values := map[string]float64{}
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.Result:
			if v, ok := rec.Value(name); ok {
				values[string(rec.Name)] = v
			}
		case *benchfmt.SyntaxError:
			require.NoError(t, rec)
		}
	}
	require.NoError(t, r.Err())
	return values
}
