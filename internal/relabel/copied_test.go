// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// Alerts, dashboards and consoles that are in no mixin, but in many installations,
// read these of containers, of pods, of system services and of the root cgroup.
func TestRecommendedKeepsWhatWidelyCopiedAlertsRead(t *testing.T) {
	d := mustCompile(t, mustProfile(t, ProfileRecommended))
	for _, name := range []string{
		"container_last_seen", "container_spec_memory_limit_bytes", "container_fs_inodes_free", "container_fs_inodes_total",
		"container_fs_limit_bytes", "container_fs_usage_bytes", "container_memory_working_set_bytes", "container_cpu_usage_seconds_total",
		"container_memory_failcnt", "container_memory_failures_total", "container_memory_max_usage_bytes", "container_memory_rss",
		"container_processes", "container_sockets", "container_threads", "container_spec_memory_reservation_limit_bytes",
	} {
		for _, job := range []string{"kubelet", "kubernetes-nodes-cadvisor", "cadvisor"} {
			_, dropped := d.Drop(labels.FromStrings("__name__", name, "job", job, "id", "/"))
			require.False(t, dropped, "%s of the root cgroup", name)
			for _, id := range []string{
				"/system.slice", "/system.slice/kubelet.service", "/kubepods.slice", "/kubepods/burstable",
				"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice",
			} {
				_, dropped = d.Drop(labels.FromStrings("__name__", name, "job", job, "id", id, "scope", "hierarchy"))
				require.False(t, dropped, "%s of the cgroup %s", name, id)
			}
			_, dropped = d.Drop(labels.FromStrings("__name__", name, "job", job, "id", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-1.scope",
				"namespace", "x", "pod", "p", "container", "c", "image", "i"))
			require.False(t, dropped, "%s of a container", name)
		}
	}
}

// What is read goes by other names in other versions. Whoever follows must find the
// new one, and whoever runs an old version the old one.
func TestRecommendedKeepsOldAndNewNamesOfWhatIsRead(t *testing.T) {
	d := mustCompile(t, mustProfile(t, ProfileRecommended))
	for _, names := range [][]string{
		{"apiserver_storage_objects", "apiserver_resource_objects"},
		{"etcd_db_total_size_in_bytes", "apiserver_storage_db_total_size_in_bytes", "apiserver_storage_size_bytes"},
		{"apiserver_longrunning_gauge", "apiserver_longrunning_requests"},
		{"apiserver_flowcontrol_request_concurrency_limit", "apiserver_flowcontrol_nominal_limit_seats", "apiserver_flowcontrol_current_limit_seats"},
		{"apiserver_flowcontrol_request_concurrency_in_use", "apiserver_flowcontrol_current_executing_seats"},
		{"apiserver_request_slo_duration_seconds_count", "apiserver_request_sli_duration_seconds_count"},
		{"kube_endpoint_address_available", "kube_endpoint_address", "kube_endpointslice_endpoints"},
		{"scheduler_e2e_scheduling_duration_seconds_bucket", "scheduler_scheduling_attempt_duration_seconds_bucket"},
		{"scheduler_pod_scheduling_duration_seconds_bucket", "scheduler_pod_scheduling_sli_duration_seconds_bucket"},
		{"kubelet_running_pod_count", "kubelet_running_pods"},
		{"kubelet_pod_start_duration_seconds_bucket", "kubelet_pod_start_sli_duration_seconds_bucket"},
		{"node_collector_evictions_number", "node_collector_evictions_total"},
		{"etcd_debugging_mvcc_db_total_size_in_bytes", "etcd_mvcc_db_total_size_in_bytes"},
		{"etcd_debugging_mvcc_keys_total"},
		{"rest_client_request_latency_seconds_bucket", "rest_client_request_duration_seconds_bucket"},
	} {
		for _, name := range names {
			for _, job := range everyJob() {
				rule, dropped := d.Drop(labels.FromStrings("__name__", name, "job", job, "le", "1"))
				require.False(t, dropped, "%s of job %q by rule %d", name, job, rule)
			}
		}
	}
}
