// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import "slices"

// virtualInterfaces are network interfaces that carry what a physical one, or a
// pod's own, carries too.
const virtualInterfaces = "(antrea|azv|br-|cali|cilium|cni|docker|dummy|eni|erspan|flannel|genev|gke|gre|gretap|ip6_vti|ip6gre|ip6tnl|ip_vti|kube-ipvs|lxc|nerdctl|nodelocaldns|ovn|sit|tap|tunl|veth|vxlan|weave).*"

// etcdJobs are the jobs that scrape etcd itself. An API server exports names with
// etcd_ too, of its client.
func etcdJobs() []string {
	return []string{"etcd", "kube-etcd"}
}

// aggressive is for those who run the check on their own dashboards and alerts
// first: it changes results and takes away what published dashboards read.
func aggressive() Profile {
	return Profile{
		Name:    ProfileAggressive,
		Summary: "Changes results: virtual interfaces, states that are false, and names that only some published dashboards read. Check yours first.",
		Rules:   slices.Concat(recommended().Rules, aggressiveRules(), thinnedRules(coarseBounds())),
	}
}

// notContainer is a regex of the paths of cgroups that hold no container
// directly: the kubelet's and systemd's own, and those of pods, under cgroupfs
// and systemd, also where the kubelet runs in a container itself. A container is
// one element below. The root cgroup, "/", is none of them.
func notContainer() string {
	const (
		quality = "(besteffort|burstable)"
		above   = "(/[^/;]+)*"
	)
	return oneOf(
		above+"/kubepods(/"+quality+")?(/pod[0-9a-f-]+)?",
		above+`/(kubelet-)?kubepods\.slice(/(kubelet-)?kubepods-`+quality+`\.slice)?(/(kubelet-)?kubepods(-`+quality+`)?-pod[0-9a-f_]+\.slice)?`,
		`/system\.slice(/[^/;]+\.(mount|service|slice|socket|swap))*`,
	)
}

func aggressiveRules() []Rule {
	return onNames([]Rule{
		{
			ID:           "cadvisor-virtual-interfaces",
			Class:        ClassValueChanging,
			SourceLabels: []string{"__name__", "interface"},
			Regex:        "container_network_\\w+;" + virtualInterfaces,
			Reason:       "pods on the host network report every interface of the node; sums over namespaces lose what was counted twice",
			Saving:       "8 per virtual interface and pod on the host network",
		},
		{
			// Told by the path first, so that containers stay where the runtime
			// gives the kubelet no labels. Not container_oom_events_total and
			// container_cpu_cfs_periods_total, which are read of all cgroups.
			ID:           "cadvisor-cgroups-above-containers",
			Class:        ClassValueChanging,
			SourceLabels: []string{"__name__", "id", "container", "image"},
			Regex: "container_" + oneOf("cpu_usage_seconds_total", "cpu_cfs_throttled_(periods|seconds)_total", "fs_(reads|writes)(_bytes)?_total",
				"memory_(cache|rss|swap|usage_bytes|working_set_bytes)", "pressure_(cpu|io|memory)_(stalled|waiting)_seconds_total",
				"file_descriptors", "spec_cpu_(period|quota|shares)", "start_time_seconds", "threads_max") +
				";" + notContainer() + ";;",
			Reason:   `pods, QoS classes and system services counted beside their containers; rules of OpenShift and its console read container="", and what sums without a matcher for the container counts less`,
			Saving:   "15 to 25 per pod and system service",
			Requires: `container_cpu_usage_seconds_total{container!=""}`,
		},
		{
			ID:           "cadvisor-memory-failures-hierarchy",
			Class:        ClassValueChanging,
			SourceLabels: []string{"__name__", "scope"},
			Regex:        "container_memory_failures_total;hierarchy",
			Jobs:         kubeletCadvisorJobs(),
			Reason:       "page faults counted a second time, children included; sums over both scopes become smaller; scope=\"container\" stays",
		},
		{
			ID:    "cadvisor-copied-alerts",
			Class: ClassValueChanging,
			Regex: "container_" + oneOf("cpu_(system|user)_seconds_total", "fs_inodes_(free|total)", "fs_limit_bytes", "fs_(read|write)_seconds_total", "last_seen",
				"memory_(failcnt|failures_total|max_usage_bytes)", "processes", "sockets", "spec_memory_(limit|reservation_limit)_bytes", "threads"),
			Jobs:   kubeletCadvisorJobs(),
			Reason: "read by no mixin, but by alerts and dashboards that many have copied, such as absent(container_last_seen)",
			Saving: "15 per container and per cgroup",
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
			ID:    "ksm-pod-wide",
			Class: ClassValueChanging,
			Regex: "kube_pod_" + oneOf("annotations", "completion_time", "container_info", "container_state_started", "created", "labels", "restart_policy",
				"runtimeclass_name_info", "start_time", "status_qos_class", "status_(container_ready|initialized|ready|scheduled|unscheduled)_time",
				"container_status_(running|terminated)"),
			Reason: "read by published dashboards, not by the core set",
			Saving: "18 per pod",
		},
		{
			ID:    "ksm-object-times",
			Class: ClassValueChanging,
			Regex: "kube_(configmap|cronjob|endpoint|endpointslice|ingress|job|lease|networkpolicy|replicaset|secret|service)_(annotations|created)" +
				"|kube_endpointslice_endpoints",
			Reason: "times of creation and annotations of objects, addresses of services; read by published dashboards that count objects, not by the core set",
			Saving: "1 or 2 per object, one per address of a service",
		},
		{
			ID:     "etcd-grpc-messages",
			Class:  ClassValueChanging,
			Regex:  "grpc_server_msg_(received|sent)_total",
			Jobs:   etcdJobs(),
			Reason: "messages per gRPC method; read by KubeSphere, not by the core set; calls started and handled stay",
			Saving: "two per gRPC method and member",
		},
		{
			ID:    "apiserver-published-buckets",
			Class: ClassValueChanging,
			Regex: "apiserver_" + oneOf("admission_(controller|step)_admission_duration_seconds", "flowcontrol_demand_seats", "request_filter_duration_seconds",
				"response_sizes", "watch_cache_read_wait_seconds", "watch_events_sizes") + "_bucket",
			Reason: "read by OpenShift's recording rules, Kubernetes' perf-tests, kube-burner and Gardener, not by the core set; _sum and _count stay",
			Saving: "a tenth of an API server's series",
		},
		{
			ID:    "apiserver-published-counters",
			Class: ClassValueChanging,
			Regex: oneOf("apiserver_flowcontrol_demand_seats_(high_watermark|smoothed)", "apiserver_init_events_total", "apiserver_resource_size_estimate_bytes",
				"apiserver_selfrequest_total", "apiserver_watch_cache_(events_dispatched_total|initializations_total|resource_version)",
				"apiserver_watch_events_total", "etcd_requests_total"),
			Reason: "read by OpenShift's recording rules, Kubernetes' perf-tests, kube-burner and Gardener, not by the core set",
			Saving: "7 per type of object and API server",
		},
		{
			ID:     "apiserver-request-buckets",
			Class:  ClassValueChanging,
			Regex:  "(apiserver_request|etcd_request)_duration_seconds_bucket",
			Reason: "the core set reads the service level's histogram, which stays; _sum and _count stay",
			Saving: "a quarter of an API server's series",
		},
		{
			ID:     "kubernetes-go-memory",
			Class:  ClassValueChanging,
			Regex:  "go_(memstats|gc)_\\w+",
			Jobs:   kubernetesJobs(),
			Reason: "read by Go dashboards, not by the core set",
			Saving: "30 per process",
		},
	})
}
