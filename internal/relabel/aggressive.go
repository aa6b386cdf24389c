// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// virtualInterfaces are network interfaces that carry what a physical one, or a
// pod's own, carries too.
const virtualInterfaces = "(antrea|azv|br-|cali|cilium|cni|docker|dummy|eni|erspan|flannel|genev|gke|gre|gretap|ip6_vti|ip6gre|ip6tnl|ip_vti|kube-ipvs|lxc|nerdctl|nodelocaldns|ovn|sit|tap|tunl|veth|vxlan|weave).*"

// aggressive is for those who run the check on their own dashboards and alerts
// first: it changes results and takes away what published dashboards read.
func aggressive() Profile {
	return Profile{
		Name:    ProfileAggressive,
		Summary: "Changes results: virtual interfaces, states that are false, and names that only some published dashboards read. Check yours first.",
		Rules:   slices.Concat(recommended().Rules, aggressiveRules()),
	}
}

func aggressiveRules() []Rule {
	runtimeBounds := prometheus.ExponentialBuckets(.005, 2.5, 14)
	return []Rule{
		{
			ID:           "cadvisor-virtual-interfaces",
			Class:        ClassValueChanging,
			SourceLabels: []string{"__name__", "interface"},
			Regex:        "container_network_\\w+;" + virtualInterfaces,
			Reason:       "pods on the host network report every interface of the node; sums over namespaces lose what was counted twice",
			Saving:       "8 per virtual interface and pod on the host network",
		},
		{
			ID:           "cadvisor-copied-alerts",
			Class:        ClassValueChanging,
			SourceLabels: []string{"__name__"},
			Regex:        "container_(fs_inodes_(free|total)|fs_limit_bytes|last_seen|spec_memory_limit_bytes)",
			Jobs:         kubeletCadvisorJobs(),
			Reason:       "read by no mixin, but by alerts and dashboards that many have copied, such as absent(container_last_seen)",
			Saving:       "5 per container and per cgroup",
		},
		{
			ID:           "node-virtual-interfaces",
			Class:        ClassValueChanging,
			SourceLabels: []string{"__name__", "device"},
			Regex:        "node_network_\\w+;" + virtualInterfaces,
			Reason:       "one virtual interface per pod; sums over a node's interfaces lose what was counted twice",
			Saving:       "30 per pod and node",
		},
		{
			// SchedulingGated is read behind unless: without it alerts would fire.
			ID:           "ksm-pod-reasons",
			Class:        ClassValueChanging,
			SourceLabels: []string{"__name__", "reason"},
			Regex: "kube_pod_status_reason;" + oneOf("Evicted", "NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError",
				"PreemptingPod", "PreemptionByScheduler", "TerminationByKubelet", "DeletionByTaintManager", "DeletionByPodGC", "EvictionByEvictionAPI"),
			Reason: "one per reason and pod, nearly all of them 0; the core set reads SchedulingGated only, which stays",
			Saving: "5 to 8 per pod",
		},
		{
			ID:           "ksm-pod-not-ready",
			Class:        ClassValueChanging,
			SourceLabels: []string{"__name__", "condition"},
			Regex:        "kube_pod_status_(ready|scheduled);(false|unknown)",
			Reason:       `the negation of condition="true", which stays`,
			Saving:       "4 per pod",
		},
		{
			ID:           "ksm-pod-wide",
			Class:        ClassValueChanging,
			SourceLabels: []string{"__name__"},
			Regex: "kube_pod_" + oneOf("completion_time", "container_info", "container_state_started", "created", "labels", "restart_policy",
				"start_time", "status_qos_class", "container_status_(running|terminated)"),
			Reason: "read by published dashboards, not by the core set",
			Saving: "12 per pod",
		},
		Rule{
			ID:     "kubelet-runtime-bounds",
			Reason: "15 buckets per kind of runtime operation in every kubelet; every second bound stays",
			Saving: "6 of 15 buckets per kind of operation and node",
		}.thinning(Thinning{
			Histograms: []string{"kubelet_runtime_operations_duration_seconds"},
			Drop:       []float64{runtimeBounds[1], runtimeBounds[3], runtimeBounds[5], runtimeBounds[7], runtimeBounds[9], runtimeBounds[11]},
			Bounds:     runtimeBounds,
		}),
		{
			ID:           "apiserver-request-buckets",
			Class:        ClassValueChanging,
			SourceLabels: []string{"__name__"},
			Regex:        "(apiserver_request|etcd_request)_duration_seconds_bucket",
			Reason:       "the core set reads the service level's histogram, which stays; _sum and _count stay",
			Saving:       "a quarter of an API server's series",
		},
		{
			ID:           "kubernetes-go-memory",
			Class:        ClassValueChanging,
			SourceLabels: []string{"__name__"},
			Regex:        "go_(memstats|gc)_\\w+",
			Jobs:         kubernetesJobs(),
			Reason:       "read by Go dashboards, not by the core set",
			Saving:       "30 per process",
		},
	}
}
