// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package evaluate

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/check"
	"github.com/promguard/promguard/internal/rules/source"
)

// sharedDir holds real data that is not part of the repository.
const sharedDir = "../../../../shared"

// targets are the labels that kube-prometheus's scrape configs give a component.
var targets = map[string]labels.Labels{
	"api-server.prom":         labels.FromStrings("job", "apiserver", "instance", "192.0.2.1:6443"),
	"cadvisor.prom":           labels.FromStrings("job", "kubelet", "metrics_path", "/metrics/cadvisor", "instance", "192.0.2.1:10250"),
	"controller-manager.prom": labels.FromStrings("job", "kube-controller-manager", "instance", "192.0.2.1:10257"),
	"etcd.prom":               labels.FromStrings("job", "etcd", "instance", "192.0.2.1:2381"),
	"ksm.prom":                labels.FromStrings("job", "kube-state-metrics", "instance", "192.0.2.1:8443"),
	"scheduler.prom":          labels.FromStrings("job", "kube-scheduler", "instance", "192.0.2.1:10259"),
}

func realCluster(t *testing.T, dir string) []Series {
	t.Helper()
	var all []Series
	for file, target := range targets {
		text, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		series, err := ParseExposition(text, target)
		require.NoError(t, err, file)
		all = append(all, series...)
	}
	return all
}

// asPrometheus2 writes bounds as Prometheus 2 stores them.
func asPrometheus2(series []Series) []Series {
	out := make([]Series, 0, len(series))
	for _, s := range series {
		if le, ok := strings.CutSuffix(s.Labels.Get(labels.BucketLabel), ".0"); ok {
			s.Labels = labels.NewBuilder(s.Labels).Set(labels.BucketLabel, le).Labels()
		}
		out = append(out, s)
	}
	return out
}

// kubePrometheus returns the expressions kept beside the repository. Their
// recording rules have lost their labels.
func kubePrometheus(t *testing.T) []source.Expression {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sharedDir, "kube-prometheus", "expressions.json"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no expressions beside the repository")
	}
	require.NoError(t, err)
	var list []struct{ Expr, Kind, Where string }
	require.NoError(t, json.Unmarshal(text, &list))
	kinds := map[string]source.Kind{"alert": source.KindAlert, "record": source.KindRecord, "dashboard": source.KindPanel}
	var out []source.Expression
	for _, l := range list {
		e, err := source.NewParser().ParseExpr(strings.ReplaceAll(l.Expr, "VARX", source.Marker(0)))
		require.NoError(t, err, l.Where)
		x := source.Expression{File: "kube-prometheus", Place: l.Where, Kind: kinds[l.Kind], Text: l.Expr, Queries: []parser.Expr{e}}
		if x.Kind == source.KindRecord {
			x.Record = l.Where
		}
		out = append(out, x)
	}
	return out
}

// TestRecommendedOnRealClusters is what the profile promises, on the clusters at
// hand, with bounds as either version of Prometheus stores them.
func TestRecommendedOnRealClusters(t *testing.T) {
	exprs := kubePrometheus(t)
	dirs, err := filepath.Glob(filepath.Join(sharedDir, "expositions", "*", "ksm.prom"))
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	p, err := relabel.ProfileByName(relabel.ProfileRecommended)
	require.NoError(t, err)
	for i, ksm := range dirs {
		dir := filepath.Dir(ksm)
		series := realCluster(t, dir)
		// One spelling per cluster, as each takes seconds.
		if i%2 == 1 {
			series = asPrometheus2(series)
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			checker, err := check.New(p, Layouts(series))
			require.NoError(t, err)
			results := checker.Check(exprs)
			d, err := Load(p, series, exprs)
			require.NoError(t, err)
			defer d.Close()
			require.Empty(t, d.Unguarded)
			share := float64(d.Dropped) / float64(d.Series)
			t.Logf("%d of %d series dropped, %.1f %%", d.Dropped, d.Series, 100*share)
			require.GreaterOrEqual(t, share, 0.43)
			within := 0
			for i, m := range d.Compare(results) {
				requireAgreement(t, results[i], m)
				require.NotEqual(t, Failed, m.Outcome, "%s: %s", results[i].Expression.Text, m.Why)
				want := check.Invisible
				if m.Outcome == Within {
					within++
				}
				if results[i].Expression.Kind != source.KindAlert && results[i].Verdict == check.Thinned {
					want = check.Thinned
				}
				require.Equal(t, want, results[i].Verdict, "%s: %+v", results[i].Expression.Place, results[i].Findings)
			}
			t.Logf("%d expressions move within the bounds", within)
			require.NotZero(t, within)
		})
	}
}
