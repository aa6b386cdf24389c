// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/evaluate"
)

var update = flag.Bool("update", false, "read the facts anew from the expositions beside the repository")

const expositions = "../../../shared/expositions"

// jobs are those of kube-prometheus.
var jobs = map[string]string{
	"api-server.prom": "apiserver", "cadvisor.prom": "kubelet", "controller-manager.prom": "kube-controller-manager",
	"etcd.prom": "etcd", "ksm.prom": "kube-state-metrics", "scheduler.prom": "kube-scheduler",
}

func scrape(t *testing.T, cluster string) []evaluate.Series {
	t.Helper()
	var out []evaluate.Series
	for _, file := range slices.Sorted(maps.Keys(jobs)) {
		text, err := os.ReadFile(filepath.Join(expositions, "nri-k8s-"+strings.Replace(cluster, ".", "_", 1), file))
		require.NoError(t, err)
		series, err := evaluate.ParseExposition(text, labels.FromStrings("job", jobs[file]))
		require.NoError(t, err)
		out = append(out, series...)
	}
	return out
}

// TestTheFactsAreThoseOfTheExpositions writes them with -update. Without expositions
// beside the repository it says nothing.
func TestTheFactsAreThoseOfTheExpositions(t *testing.T) {
	if _, err := os.Stat(expositions); err != nil {
		t.Skip("no expositions beside the repository")
	}
	scrapes := map[string][]evaluate.Series{}
	for _, c := range clusters {
		scrapes[c] = scrape(t, c)
	}
	for file, text := range map[string]string{"families.txt": familiesText(scrapes), "rows.txt": rowsText(t, scrapes)} {
		path := filepath.Join("testdata", file)
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		have, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(have), text, "%s: run with -update", file)
	}
}

func familiesText(scrapes map[string][]evaluate.Series) string {
	n := map[string][]int{}
	for i, c := range clusters {
		for _, s := range scrapes[c] {
			key := s.Labels.Get("job") + " " + s.Labels.Get(labels.MetricName)
			if n[key] == nil {
				n[key] = make([]int, len(clusters))
			}
			n[key][i]++
		}
	}
	b := "# Series by job and metric in one scrape of every component of two single-node clusters,\n# Kubernetes " + strings.Join(clusters, " and ") + ".\n"
	for _, key := range slices.Sorted(maps.Keys(n)) {
		b += strings.Trim(fmt.Sprintln(key, n[key]), "\n[]") + "\n"
	}
	return strings.NewReplacer(" [", " ", "]\n", "\n").Replace(b)
}

// drawnPattern takes a line of drawn.txt apart.
var drawnPattern = regexp.MustCompile(`^([0-9.,]+) ([a-z0-9_]+)(\{.*\}) by \((.*)\)$`)

func rowsText(t *testing.T, scrapes map[string][]evaluate.Series) string {
	t.Helper()
	text, err := os.ReadFile("testdata/drawn.txt")
	require.NoError(t, err)
	p, err := relabel.ProfileByName(relabel.ProfileRecommended)
	require.NoError(t, err)
	var thinned []string
	for _, r := range p.Rules {
		if r.Thinning != nil {
			thinned = append(thinned, r.Thinning.Histograms...)
		}
	}
	times := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		m := drawnPattern.FindStringSubmatch(strings.TrimSpace(line))
		require.NotNil(t, m, line)
		if !slices.Contains(thinned, m[2]) {
			continue
		}
		matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(m[2] + "_bucket" + m[3])
		require.NoError(t, err, line)
		for _, c := range clusters {
			for _, counts := range grouped(t, scrapes[c], matchers, append(strings.Split(m[4], ","), "job")) {
				times[strings.Join([]string{c, m[2], "%d", m[1], counts}, " ")]++
			}
		}
	}
	b := "# The histograms of which published panels and alerts draw quantiles, in one scrape of\n" +
		"# every component of two single-node clusters: version, name, how many rows that are drawn\n" +
		"# are just this one, the quantiles, and the number of values by upper bound.\n"
	for _, line := range slices.Sorted(maps.Keys(times)) {
		b += fmt.Sprintf(line, times[line]) + "\n"
	}
	return b
}

// grouped sums buckets by labels and returns the counts of each group, written down.
// Groups without any value are left out.
func grouped(t *testing.T, samples []evaluate.Series, matchers []*labels.Matcher, by []string) []string {
	t.Helper()
	groups := map[string]map[float64]float64{}
	for _, s := range samples {
		if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels.Get(m.Name)) }) {
			continue
		}
		le, err := strconv.ParseFloat(s.Labels.Get("le"), 64)
		require.NoError(t, err)
		key := s.Labels.MatchLabels(true, by...).String()
		if groups[key] == nil {
			groups[key] = map[float64]float64{}
		}
		groups[key][le] += s.Value
	}
	var out []string
	for _, g := range groups {
		var counts []string
		below := 0.0
		for _, le := range slices.Sorted(maps.Keys(g)) {
			if n := g[le] - below; n != 0 {
				counts = append(counts, fmt.Sprintf("%g:%g", le, n))
			}
			below = g[le]
		}
		if len(counts) > 0 {
			out = append(out, strings.Join(counts, " "))
		}
	}
	return out
}
