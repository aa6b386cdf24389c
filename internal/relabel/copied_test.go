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
