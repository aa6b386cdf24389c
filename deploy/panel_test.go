// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"
)

// What panels say of data that is easily misread.
func TestPanelsSayWhatIs(t *testing.T) {
	for _, tc := range []struct {
		name, place, load string
		want              map[string]float64 // By the labels of the series.
	}{
		{
			"errors that no exporter has are no zero", "promguard-gpu.json: With double bit errors",
			`DCGM_FI_DEV_GPU_TEMP{job="dcgm-exporter", Hostname="a", gpu="0"} 50x30`,
			map[string]float64{},
		},
		{
			"no errors are zero", "promguard-gpu.json: With double bit errors",
			`DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{job="dcgm-exporter", Hostname="a", gpu="0"} 0x30`,
			map[string]float64{"{}": 0},
		},
		{
			"another cluster behind the same data source does not count", "promguard-gpu.json: GPUs",
			`DCGM_FI_DEV_GPU_TEMP{job="dcgm-exporter", Hostname="a", gpu="0"} 50x30
			DCGM_FI_DEV_GPU_TEMP{job="dcgm-exporter", cluster="other", Hostname="b", gpu="0"} 50x30`,
			map[string]float64{"{}": 1},
		},
		{
			"an election is one, though each member counts it", "promguard-etcd.json: Leader changes",
			`etcd_server_leader_changes_seen_total{job="etcd", instance="a"} 3x15 4x15
			etcd_server_leader_changes_seen_total{job="etcd", instance="b"} 3x15 4x15
			etcd_server_leader_changes_seen_total{job="etcd", instance="c"} 3x15 4x15`,
			map[string]float64{"{}": 1},
		},
		{
			"a member that does not answer has no leader", "promguard-etcd.json: Members without a leader",
			`up{job="etcd", instance="a"} 1x30
			etcd_server_has_leader{job="etcd", instance="a"} 1x30
			up{job="etcd", instance="b"} 0x30`,
			map[string]float64{"{}": 1},
		},
		{
			"watches are told apart by the label that the version of Kubernetes has", "promguard-apiserver.json: Events sent",
			`apiserver_watch_events_sizes_count{job="apiserver", group="", kind="Endpoints", version="v1"} 0+60x30
			apiserver_watch_events_sizes_count{job="apiserver", group="", resource="endpoints", version="v1"} 0+120x30`,
			map[string]float64{`{kind="Endpoints"}`: 1, `{resource="endpoints"}`: 2},
		},
		{
			"schedulers that stand by do not count", "promguard-scheduling.json: Pods by queue",
			`scheduler_pending_pods{job="kube-scheduler", instance="a", queue="active"} 2x30
			scheduler_schedule_attempts_total{job="kube-scheduler", instance="a", result="scheduled"} 0+60x30
			scheduler_pending_pods{job="kube-scheduler", instance="b", queue="active"} 500x30
			scheduler_schedule_attempts_total{job="kube-scheduler", instance="b", result="scheduled"} 7x30`,
			map[string]float64{`{queue="active"}`: 2},
		},
		{
			"an API server that is dead is no target any more", "promguard-apiserver.json: Servers down",
			`up{job="apiserver", instance="a"} 1x30
			up{job="apiserver", instance="b"} 1x25`,
			map[string]float64{"{}": 1},
		},
		{
			"of no API servers all are down", "promguard-apiserver.json: Servers down",
			`up{job="apiserver", instance="a"} 1x20
			up{job="apiserver", instance="b"} 1x20`,
			map[string]float64{"{}": 2},
		},
		{
			"renewals of leases do not hide that lists fail", "promguard-apiserver.json: Failed",
			`verb_resource_subresource_code:apiserver_request:rate5m{verb="PUT", resource="leases", code="200"} 5000x30
			verb_resource_subresource_code:apiserver_request:rate5m{verb="LIST", resource="pods", code="504"} 3x30`,
			map[string]float64{"{}": 1},
		},
		{
			"one failure of one request is no failure of a verb", "promguard-apiserver.json: Failed",
			`verb_resource_subresource_code:apiserver_request:rate5m{verb="PUT", resource="leases", code="200"} 5000x30
			verb_resource_subresource_code:apiserver_request:rate5m{verb="DELETE", resource="pods", code="500"} 0.1x30`,
			map[string]float64{"{}": 0},
		},
		{
			"resources of two groups are two, and the core group has no name", "promguard-apiserver.json: Objects stored",
			`apiserver_resource_objects{job="apiserver", group="", resource="pods"} 9x30
			apiserver_resource_objects{job="apiserver", group="apps", resource="deployments"} 5x30
			apiserver_resource_objects{job="apiserver", group="example.org", resource="pods"} 2x30
			apiserver_storage_objects{job="apiserver", resource="replicasets.apps"} 4x30`,
			map[string]float64{
				`{group="apps", object="deployments.apps", resource="deployments"}`: 5, `{object="pods", resource="pods"}`: 9,
				`{group="example.org", object="pods.example.org", resource="pods"}`: 2, `{object="replicasets.apps", resource="replicasets.apps"}`: 4,
			},
		},
		{
			"an etcd of which no member answers has no leader", "promguard-etcd.json: Members without a leader",
			`up{job="etcd", instance="a"} 0x30
			up{job="etcd", instance="b"} 0x30`,
			map[string]float64{"{}": 2},
		},
		{
			"without requests nothing is refused", "promguard-proxy.json: Refused",
			`promguard_requests_total{job="promguard", instance="a", code="200"} 7x30
			promguard_refused_total{job="promguard", instance="a", reason="range"} 0x30`,
			map[string]float64{"{}": 0},
		},
		{
			"permits are those of one proxy", "promguard-proxy.json: Permits held",
			`promguard_admission_permits{job="promguard", instance="a", class="panels"} 5x30
			promguard_admission_permits{job="promguard", instance="b", class="panels"} 8x30`,
			map[string]float64{`{class="panels"}`: 8},
		},
		{
			"a server that is down is none that is ready", "promguard-server.json: Ready",
			`up{job="prometheus-k8s", instance="a"} 1x30
			up{job="prometheus-k8s", instance="b"} 1x20 0x9
			up{job="prometheus-k8s", instance="c"} 1x20 0x9
			up{job="prometheus-k8s", instance="reloader"} 1x30
			prometheus_build_info{job="prometheus-k8s", instance="a"} 1x30
			prometheus_build_info{job="prometheus-k8s", instance="b"} 1x20
			prometheus_build_info{job="prometheus-k8s", instance="c"} 1x20
			prometheus_ready{job="prometheus-k8s", instance="a"} 1x30
			prometheus_ready{job="prometheus-k8s", instance="b"} 1x20
			prometheus_ready{job="prometheus-k8s", instance="c"} 1x20`,
			map[string]float64{"{}": 0}, // A third, rounded.
		},
		{
			"both servers drop the same series", "promguard-drop-rules.json: Series dropped",
			`prometheus_guard_drop_rules_dropped_series_total{job="prometheus-k8s", instance="a", profile="p", rule="r", scrape_job="x"} 10x30
			prometheus_guard_drop_rules_dropped_series_total{job="prometheus-k8s", instance="a", profile="p", rule="r", scrape_job="y"} 5x30
			prometheus_guard_drop_rules_dropped_series_total{job="prometheus-k8s", instance="b", profile="p", rule="r", scrape_job="x"} 9x30`,
			map[string]float64{`{profile="p", rule="r"}`: 15},
		},
		{
			"a group of rules is called by its name, not by the path that all share", "promguard-queries.json: Slowest rule groups",
			`prometheus_rule_group_last_duration_seconds{job="prometheus-k8s", instance="a", rule_group="/etc/prometheus/rules/prometheus-k8s-rulefiles-0/monitoring-kubernetes.yaml;nodes"} 3x30
			prometheus_rule_group_last_duration_seconds{job="prometheus-k8s", instance="b", rule_group="/etc/prometheus/rules/prometheus-k8s-rulefiles-0/monitoring-kubernetes.yaml;nodes"} 4x30
			prometheus_rule_group_last_duration_seconds{job="prometheus-k8s", instance="a", rule_group="other.yaml;nodes"} 2x30`,
			map[string]float64{`{file="monitoring-kubernetes.yaml", group="nodes"}`: 4, `{file="other.yaml", group="nodes"}`: 2},
		},
		{
			"an endpoint that was not asked took no time", "promguard-queries.json: Mean time by endpoint",
			`prometheus_http_request_duration_seconds_sum{job="prometheus-k8s", instance="a", handler="/federate"} 3x30
			prometheus_http_request_duration_seconds_count{job="prometheus-k8s", instance="a", handler="/federate"} 3x30`,
			map[string]float64{},
		},
		{
			"two exporters of one GPU's node are one GPU", "promguard-gpu.json: GPUs",
			`DCGM_FI_DEV_GPU_TEMP{job="dcgm-exporter", instance="old", Hostname="a", gpu="0"} 50x30
			DCGM_FI_DEV_GPU_TEMP{job="dcgm-exporter", instance="new", Hostname="a", gpu="0"} 50x30`,
			map[string]float64{"{}": 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := promqltest.LoadedStorage(t, "load 1m\n\t"+tc.load)
			require.Equal(t, tc.want, values(t, store, panel(t, tc.place)))
		})
	}
}

// A record of GPUs that pods have and do not use: the pod is in one of two labels.
func TestAGPUIsTakenWhetherOrNotLabelsAreHonored(t *testing.T) {
	store := promqltest.LoadedStorage(t, `load 1m
	DCGM_FI_DEV_GPU_UTIL{job="nvidia-dcgm-exporter", namespace="gpu-operator", pod="nvidia-dcgm-exporter-x", exported_namespace="ml", exported_pod="train-0", Hostname="a", gpu="0", UUID="a0"} 0x30
	DCGM_FI_DEV_GPU_UTIL{job="nvidia-dcgm-exporter", namespace="gpu-operator", pod="nvidia-dcgm-exporter-x", Hostname="a", gpu="1", UUID="a1"} 0x30
	DCGM_FI_DEV_GPU_UTIL{job="dcgm-exporter", namespace="vision", pod="train-0", Hostname="b", gpu="0", UUID="b0"} 0x30
	DCGM_FI_DEV_GPU_UTIL{job="dcgm-exporter", namespace="vision", pod="train-1", Hostname="b", gpu="1", UUID="b1"} 0x20 90 0x9
	DCGM_FI_DEV_GPU_UTIL{job="dcgm-exporter", Hostname="b", gpu="2", UUID="b2"} 0x30`)
	require.Equal(t, map[string]float64{`{namespace="ml"}`: 1, `{namespace="vision"}`: 1}, values(t, store, recorded(t, "namespace:DCGM_FI_DEV_GPU_UTIL:idle15m")))
}

// A pod on the network of its host has the counters of the node.
func TestPodsOnTheNetworkOfTheirHostAreNotCounted(t *testing.T) {
	const load = `load 1m
	container_network_transmit_bytes_total{job="kubelet", metrics_path="/metrics/cadvisor", namespace="kube-system", pod="proxy", interface="eth0"} 0+6000x30
	container_network_transmit_bytes_total{job="kubelet", metrics_path="/metrics/cadvisor", namespace="ml", pod="train-0", interface="eth0"} 0+60x30
	`
	expr := recorded(t, "namespace:container_network_transmit_bytes:rate5m")
	store := promqltest.LoadedStorage(t, load+`kube_pod_info{job="kube-state-metrics", instance="0", namespace="kube-system", pod="proxy", host_network="true"} 1x30
	kube_pod_info{job="kube-state-metrics", instance="1", namespace="kube-system", pod="proxy", host_network="true"} 1x30`)
	require.Equal(t, map[string]float64{`{namespace="ml"}`: 1}, values(t, store, expr))
	require.Empty(t, values(t, promqltest.LoadedStorage(t, load), expr), "without kube-state-metrics nobody knows which they are")
}

// Ten evaluations were missed, and not ten and a tenth, nor those of both servers.
func TestEvaluationsMissedAreCounted(t *testing.T) {
	store := promqltest.LoadedStorage(t, `load 30s
	prometheus_rule_group_iterations_missed_total{job="prometheus-k8s", instance="a", rule_group="f;g"} 0x20 1+1x9 10x60
	prometheus_rule_group_iterations_missed_total{job="prometheus-k8s", instance="b", rule_group="f;g"} 0x20 1+1x9 10x60`)
	require.Equal(t, map[string]float64{"{}": 10}, exact(t, store, panel(t, "promguard-server.json: Rules missed")))
}

func TestNoPanelMakesAZeroOfNothing(t *testing.T) {
	for _, q := range panels(t, "5m") {
		require.NotContains(t, q.Expr, "vector(0)", q.Place)
	}
}

// panel returns the expression of the first query of a panel, by its place.
func panel(t *testing.T, place string) string {
	t.Helper()
	for _, q := range panels(t, "5m") {
		if q.Place == place {
			return q.Expr
		}
	}
	require.Fail(t, "no panel", place)
	return ""
}

func recorded(t *testing.T, name string) string {
	t.Helper()
	for _, r := range allRules(t) {
		if r.Record == name {
			return r.Expr
		}
	}
	require.Fail(t, "no record", name)
	return ""
}

// values evaluates an expression half an hour into the data, and rounds.
func values(t *testing.T, store storage.Queryable, expr string) map[string]float64 {
	t.Helper()
	found := exact(t, store, expr)
	for name, v := range found {
		found[name] = math.Round(v)
	}
	return found
}

func exact(t *testing.T, store storage.Queryable, expr string) map[string]float64 {
	t.Helper()
	q, err := engine().NewInstantQuery(context.Background(), store, nil, expr, time.Unix(30*60, 0))
	require.NoError(t, err)
	defer q.Close()
	result := q.Exec(context.Background())
	require.NoError(t, result.Err)
	vector, err := result.Vector()
	require.NoError(t, err)
	found := map[string]float64{}
	for _, s := range vector {
		found[strings.TrimSpace(s.Metric.String())] = s.F
	}
	return found
}

func TestALegendTellsSeriesApart(t *testing.T) {
	a, b := labels.FromStrings("class", "query", "instance", "a"), labels.FromStrings("class", "query", "instance", "b")
	for legend, wrong := range map[string]string{
		"__auto":                         "",
		"{{class}} of {{instance}}":      "",
		"{{pod}}{{instance}} of nothing": "",
		"{{ class }}":                    `two series have the legend "query"`,
		"{{class}} {{pod}}":              `the legend has {{pod}}, which {class="query", instance="a"} leaves empty`,
	} {
		err := Panel{Legend: legend}.CheckLegends([]labels.Labels{a, b})
		if wrong == "" {
			require.NoError(t, err, legend)
		} else {
			require.EqualError(t, err, wrong)
		}
	}
}
