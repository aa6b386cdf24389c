// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/teststorage"
)

// loadRules returns the groups of a rule file, none of which is evaluated.
func loadRules(t *testing.T, text string) []*rules.Group {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	m := rules.NewManager(&rules.ManagerOptions{Logger: promslog.NewNopLogger(), Parser: parser.NewParser(parser.Options{})})
	groups, errs := m.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, file)
	require.Empty(t, errs)
	return slices.SortedFunc(maps.Values(groups), func(a, b *rules.Group) int { return strings.Compare(a.Name(), b.Name()) })
}

func TestRulesThatReadNothingButWhatIsDroppedAreToldOnce(t *testing.T) {
	groups := loadRules(t, `groups:
- name: blind
  rules:
  - {record: body:p99, expr: 'histogram_quantile(0.99, sum by (le) (rate(apiserver_request_body_size_bytes_bucket[5m])))'}
  - {alert: Body, expr: 'rate(apiserver_request_body_size_bytes_bucket{le="100"}[5m]) > 1 or rate(apiserver_request_body_size_bytes_bucket{le="200"}[5m]) > 1'}
  - {alert: NoTolerations, expr: absent(kube_pod_tolerations)}
  - {alert: PodsWithout, expr: 'kube_pod_info unless on (pod) kube_pod_tolerations'}
  - {alert: Tasks, expr: container_tasks_state > 1}
- name: seeing
  rules:
  - {record: body:mean, expr: 'rate(apiserver_request_body_size_bytes_sum[5m]) / rate(apiserver_request_body_size_bytes_count[5m])'}
  - {record: kubernetes_feature_enabled, expr: vector(1)}
  - {alert: Recorded, expr: kubernetes_feature_enabled == 0}
  - {alert: MyTasks, expr: 'container_tasks_state{job="my-cadvisor"} > 1'}
`)
	var logged bytes.Buffer
	reg := prometheus.NewPedanticRegistry()
	f, _, err := parse(t, "--guard.drop-rules=minimal")
	require.NoError(t, err)
	_, err = f.DropRules(slog.New(slog.NewTextHandler(&logged, nil)), reg)
	require.NoError(t, err)
	require.Regexp(t, `Default drop rules discard series.* scrapes=minimal remote_write=minimal otlp=minimal profile=minimal rules=\d+ why="Drops only .*" off="--guard.drop-rules=off"`, logged.String())

	db := teststorage.New(t)
	told := func() (lines []string) {
		logged.Reset()
		f.JudgeRules(func() []*rules.Group { return groups }, db)
		for _, line := range regexp.MustCompile(`(fires)?.*group=(\S+) rule=(\S+) .*drop_rule=(\S+) jobs=(\S+)`).FindAllStringSubmatch(logged.String(), -1) {
			lines = append(lines, strings.Join(line[2:], " "))
		}
		return lines
	}
	require.Equal(t, []string{
		"blind body:p99 apiserver-body-size-buckets every",
		"blind Body apiserver-body-size-buckets every",
		"blind Body apiserver-body-size-buckets every",
		"blind NoTolerations ksm-pod-tolerations every",
		"blind PodsWithout ksm-pod-tolerations every",
		"blind Tasks cadvisor-always-zero kubelet,kubernetes-cadvisor,kubernetes-nodes-cadvisor,integrations/kubernetes/cadvisor",
	}, told())
	require.Equal(t, 2, strings.Count(logged.String(), "A rule fires where series are absent"))
	require.Equal(t, 4, strings.Count(logged.String(), "there is nothing for it to read"))
	require.Equal(t, 6, strings.Count(logged.String(), "rules.yml"))
	require.Empty(t, told(), "the same rules are told of once")

	const help = `# HELP prometheus_guard_blind_rules Recording and alerting rules with a selector that can match nothing but what a default drop rule discards, and matches nothing now, by drop rule and effect. The log names them.
# TYPE prometheus_guard_blind_rules gauge
`
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(help+`prometheus_guard_blind_rules{drop_rule="apiserver-body-size-buckets",effect="empty"} 2
prometheus_guard_blind_rules{drop_rule="cadvisor-always-zero",effect="empty"} 1
prometheus_guard_blind_rules{drop_rule="ksm-pod-tolerations",effect="absent"} 2
`), "prometheus_guard_blind_rules"))

	// A target that keeps its series gives the rules something to read.
	app := db.AppenderV2(context.Background())
	for _, name := range []string{"kube_pod_tolerations", "container_tasks_state"} {
		_, err := app.Append(0, labels.FromStrings("__name__", name, "job", "kept"), 0, time.Now().UnixMilli(), 1, nil, nil, storage.AppendV2Options{})
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(help+`prometheus_guard_blind_rules{drop_rule="apiserver-body-size-buckets",effect="empty"} 2
`), "prometheus_guard_blind_rules"))
}

func TestEffectOfASelectorWithoutSeriesFollowsFromWhereItStands(t *testing.T) {
	for query, want := range map[string]string{
		"gone":                                   "empty",
		"sum(rate(gone[5m]))":                    "empty",
		"absent(gone)":                           "absent",
		"absent(sum(gone))":                      "absent",
		"absent_over_time(gone[5m])":             "absent",
		"kept unless gone":                       "absent",
		"kept unless on (a) (gone > 1)":          "absent",
		"gone unless kept":                       "empty",
		"kept or gone":                           "empty",
		"(kept unless kept) and gone":            "empty",
		"count(gone) > 0 and absent(kept)":       "empty",
		"kept unless (kept and sum by(a)(gone))": "absent",
	} {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
		require.NoError(t, err)
		found := ""
		parser.Inspect(expr, func(n parser.Node, path []parser.Node) error {
			if vs, ok := n.(*parser.VectorSelector); ok && vs.Name == "gone" {
				found = effectOf(n, path)
			}
			return nil
		})
		require.Equal(t, want, found, query)
	}
}
