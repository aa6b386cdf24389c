// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// everyJob are the jobs that a series of Kubernetes' own may come from, those of
// the scopes included.
func everyJob() []string {
	jobs := []string{"etcd", "kube-etcd", "kube-state-metrics", "node-exporter", "coredns", "prometheus-k8s", "cadvisor", ""}
	return slices.Concat(jobs, kubernetesJobs(), kubeletCadvisorJobs())
}

// requireKept fails if minimal drops the series in any job.
func requireKept(t *testing.T, d *Dropper, name string, pairs ...string) {
	t.Helper()
	for _, job := range everyJob() {
		lset := labels.FromStrings(append([]string{"__name__", name, "job", job}, pairs...)...)
		rule, drop := d.Drop(lset)
		if drop {
			t.Fatalf("%s is dropped by %s", lset, d.Profile().Rules[rule].ID)
		}
	}
}

func TestMinimalDropsWhatEachRuleIsForAndNotItsNeighbour(t *testing.T) {
	const (
		container = "/kubepods/burstable/pod4aa017de-86c6-41cd-b4ad-21b66575685c/a5fbda005ab8218a44f2335225caeba6"
		scope     = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-a5fbda005ab8.scope"
	)
	minimal := mustCompile(t, mustProfile(t, ProfileMinimal))
	tested := map[string]bool{}
	for _, tc := range []struct {
		rule   string
		series labels.Labels
		drop   bool
	}{
		{"apiserver-body-size-buckets", labels.FromStrings("__name__", "apiserver_request_body_size_bytes_bucket", "le", "50000"), true},
		{"apiserver-body-size-buckets", labels.FromStrings("__name__", "apiserver_request_body_size_bytes_bucket", "le", "50000.0"), true},
		{"apiserver-body-size-buckets", labels.FromStrings("__name__", "apiserver_request_body_size_bytes_sum"), false},
		{"apiserver-body-size-buckets", labels.FromStrings("__name__", "apiserver_request_body_size_bytes_count"), false},
		{"apiserver-body-size-buckets", labels.FromStrings("__name__", "apiserver_request_body_size_bytes"), false},
		{"apiserver-watch-buckets", labels.FromStrings("__name__", "apiserver_watch_list_duration_seconds_bucket", "le", "+Inf"), true},
		{"apiserver-watch-buckets", labels.FromStrings("__name__", "apiserver_watch_list_duration_seconds_count"), false},
		{"rest-client-size-buckets", labels.FromStrings("__name__", "rest_client_response_size_bytes_bucket", "job", "kubelet"), true},
		{"rest-client-size-buckets", labels.FromStrings("__name__", "rest_client_response_size_bytes_bucket", "job", "my-operator"), false},
		{"rest-client-size-buckets", labels.FromStrings("__name__", "rest_client_request_size_bytes_bucket", "job", "kubelet"), false},
		{"rest-client-size-buckets", labels.FromStrings("__name__", "rest_client_request_duration_seconds_bucket", "job", "kubelet"), false},
		{"kubernetes-feature-gates", labels.FromStrings("__name__", "kubernetes_feature_enabled", "name", "SidecarContainers"), true},
		{"go-godebug-counters", labels.FromStrings("__name__", "go_godebug_non_default_behavior_http2client_events_total", "job", "kubelet"), true},
		{"go-godebug-counters", labels.FromStrings("__name__", "go_godebug_non_default_behavior_http2client_events_total", "job", "shop"), false},
		{"go-godebug-counters", labels.FromStrings("__name__", "go_goroutines", "job", "kubelet"), false},
		{"cadvisor-always-zero", labels.FromStrings("__name__", "container_tasks_state", "job", "kubelet"), true},
		{"cadvisor-always-zero", labels.FromStrings("__name__", "container_tasks_state", "job", "cadvisor"), false},
		{"cadvisor-unread", labels.FromStrings("__name__", "container_cpu_user_seconds_total", "job", "kubelet"), false},
		{"cadvisor-unread", labels.FromStrings("__name__", "container_fs_reads_merged_total", "job", "cadvisor"), false},
		{"cadvisor-unread", labels.FromStrings("__name__", "container_fs_io_time_weighted_seconds_total", "job", "kubelet"), true},
		{"cadvisor-unread", labels.FromStrings("__name__", "container_fs_io_time_seconds_total", "job", "kubelet"), false},
		{"cadvisor-unread", labels.FromStrings("__name__", "container_fs_io_current", "job", "kubelet"), false},
		{"cadvisor-unread", labels.FromStrings("__name__", "container_file_descriptors", "job", "kubelet"), false},
		{"cadvisor-unread", labels.FromStrings("__name__", "container_cpu_usage_seconds_total", "job", "kubelet"), false},
		{"cadvisor-unread", labels.FromStrings("__name__", "container_memory_failures_total", "scope", "container", "job", "kubelet"), false},
		{"cadvisor-unread", labels.FromStrings("__name__", "container_last_seen", "id", "/", "job", "kubelet"), false},
		// A runtime that gives the kubelet no container, pod or image label.
		{"cadvisor-unread", labels.FromStrings("__name__", "container_spec_memory_limit_bytes", "id", container, "job", "kubelet"), false},
		{"cadvisor-unread", labels.FromStrings("__name__", "container_spec_memory_limit_bytes", "id", scope, "job", "kubelet"), false},
		{"cadvisor-unread", labels.FromStrings("__name__", "container_spec_memory_limit_bytes", "id", "/system.slice/docker-a5fbda.scope", "job", "kubelet"), false},
		{"cadvisor-unread", labels.FromStrings("__name__", "container_spec_memory_limit_bytes", "id", "/kubepods", "pod", "p", "job", "kubelet"), false},
		{"cadvisor-unread", labels.FromStrings("__name__", "container_memory_working_set_bytes", "id", "/kubepods", "job", "kubelet"), false},
		{"cadvisor-unread", labels.FromStrings("__name__", "container_spec_cpu_shares", "id", "/kubepods", "job", "kubelet"), false},
		{"ksm-endpoint-ports", labels.FromStrings("__name__", "kube_endpoint_ports"), true},
		{"ksm-endpoint-ports", labels.FromStrings("__name__", "kube_endpoint_address"), false},
		{"ksm-endpoint-ports", labels.FromStrings("__name__", "kube_endpoint_address_available"), false},
		{"ksm-endpoint-ports", labels.FromStrings("__name__", "kube_endpoint_address_not_ready"), false},
		{"ksm-pod-tolerations", labels.FromStrings("__name__", "kube_pod_tolerations"), true},
		{"node-network-constants", labels.FromStrings("__name__", "node_network_iface_link", "device", "veth0"), true},
		{"node-network-constants", labels.FromStrings("__name__", "node_network_up", "device", "eth0"), false},
		{"node-network-constants", labels.FromStrings("__name__", "node_network_carrier_changes_total", "device", "eth0"), false},
	} {
		rule, drop := minimal.Drop(tc.series)
		require.Equal(t, tc.drop, drop, "%s", tc.series)
		if drop {
			require.Equal(t, tc.rule, minimal.Profile().Rules[rule].ID, "%s", tc.series)
		}
		tested[tc.rule+strconv.FormatBool(tc.drop)] = true
	}
	for _, r := range minimal.Profile().Rules {
		require.True(t, tested[r.ID+"true"], "no series shows what rule %s drops", r.ID)
	}
}

// The shipped drop rules of kube-prometheus and its chart have been wrong in
// five ways. One test each, on the profile that every scrape pool gets.

func TestMinimalDropsABoundUnderBothSpellingsOrUnderNone(t *testing.T) {
	d := mustCompile(t, mustProfile(t, ProfileMinimal))
	for _, r := range d.Profile().Rules {
		require.NotContains(t, r.SourceLabels, "le", "rule %s", r.ID)
	}
	for _, c := range []string{"apiserver_request_body_size_bytes_bucket", "apiserver_watch_list_duration_seconds_bucket"} {
		for _, le := range []string{"1024", "1024.0", "+Inf"} {
			_, drop := d.Drop(labels.FromStrings("__name__", c, "le", le))
			require.True(t, drop, "%s le=%s", c, le)
		}
	}
}

func TestMinimalKeepsEveryBoundOfEveryHistogramThatIsRead(t *testing.T) {
	d := mustCompile(t, mustProfile(t, ProfileMinimal))
	buckets := 0
	for _, s := range coreSelectors(t) {
		if !strings.HasSuffix(s.name, "_bucket") {
			continue
		}
		buckets++
		for _, le := range []string{"0.005", "1", "1.0", "5", "5.0", "30", "30.0", "300", "600", "600.0", "+Inf"} {
			requireKept(t, d, s.name, "le", le, "verb", "GET", "scope", "cluster")
		}
	}
	require.NotZero(t, buckets)
}

func TestMinimalKeepsMemorySwap(t *testing.T) {
	d := mustCompile(t, mustProfile(t, ProfileMinimal))
	requireKept(t, d, "container_memory_swap", "id", "/kubepods", "scope", "hierarchy")
	requireKept(t, d, "container_memory_swap", "container", "app", "pod", "app-0")
}

func TestMinimalTreatsAHistogramAlikeInEveryJob(t *testing.T) {
	// Buckets that only some jobs lose must not be those of a histogram that
	// somebody sums over jobs.
	read := map[string]bool{}
	for _, s := range coreSelectors(t) {
		read[s.name] = true
	}
	d := mustCompile(t, mustProfile(t, ProfileMinimal))
	for i, r := range d.Profile().Rules {
		if len(r.Jobs) == 0 || r.Class != ClassBucket {
			continue
		}
		for _, name := range d.rules[i].parts[0].SetMatches() {
			require.False(t, read[name], "rule %s, name %s", r.ID, name)
		}
	}
}

func TestMinimalKeepsEtcdInEveryJob(t *testing.T) {
	d := mustCompile(t, mustProfile(t, ProfileMinimal))
	etcd := 0
	for _, s := range coreSelectors(t) {
		if strings.HasPrefix(s.name, "etcd_") {
			etcd++
			requireKept(t, d, s.name, "le", "0.512")
		}
	}
	require.GreaterOrEqual(t, etcd, 6)
	requireKept(t, d, "etcd_debugging_mvcc_db_total_size_in_bytes")
	requireKept(t, d, "etcd_request_duration_seconds_bucket", "le", "0.005")
}

func TestMinimalKeepsProcessStartTimeAndStatusReason(t *testing.T) {
	d := mustCompile(t, mustProfile(t, ProfileMinimal))
	requireKept(t, d, "process_start_time_seconds")
	requireKept(t, d, "process_start_time_seconds", "metrics_path", "/metrics/slis")
	requireKept(t, d, "kube_pod_status_reason", "reason", "SchedulingGated")
	requireKept(t, d, "kube_pod_status_reason", "reason", "Evicted")
}
