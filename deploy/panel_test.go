// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"context"
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
	q, err := engine().NewInstantQuery(context.Background(), store, nil, expr, time.Unix(30*60, 0))
	require.NoError(t, err)
	defer q.Close()
	result := q.Exec(context.Background())
	require.NoError(t, result.Err)
	vector, err := result.Vector()
	require.NoError(t, err)
	found := map[string]float64{}
	for _, s := range vector {
		found[strings.TrimSpace(s.Metric.String())] = float64(int(s.F + 0.5))
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
