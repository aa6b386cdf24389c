// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import "slices"

// kubeletCadvisorJobs are the jobs that scrape the kubelet's built-in cAdvisor.
// A stand-alone cAdvisor exports the same names with other things switched on,
// and is usually scraped as "cadvisor": it is not in the list. An installation
// that names its jobs otherwise keeps the series.
func kubeletCadvisorJobs() []string {
	return []string{"kubelet", "kubernetes-cadvisor", "kubernetes-nodes-cadvisor", "integrations/kubernetes/cadvisor"}
}

// kubernetesJobs are the jobs that scrape the components of Kubernetes itself.
func kubernetesJobs() []string {
	return []string{
		"apiserver",
		"kube-apiserver",
		"kubernetes-apiservers",
		"kube-controller-manager",
		"kube-scheduler",
		"kube-proxy",
		"kubelet",
		"kubernetes-nodes",
		"integrations/kubernetes/kubelet",
	}
}

// minimal is the profile of a default build, applied to every scrape pool, so a
// rule is here only if
//
//   - no rule, dashboard or adapter configuration of the core set names its
//     metric at all (testdata/core_selectors.txt), nor does any of the further
//     alerts, dashboards and vendors' allow lists (testdata/wider_names.txt), or
//     of the wide set (testdata/wide_selectors.txt);
//   - the name belongs to one exporter, or the rule is scoped by job;
//   - it reads no le: a histogram loses all its buckets or none, so the
//     spelling of a bound (30 before Prometheus 3, 30.0 since) cannot matter.
func minimal() Profile {
	return Profile{
		Name:    ProfileMinimal,
		Summary: "Drops only series that none of the widely used Kubernetes rules and dashboards that were checked can see.",
		Rules:   slices.Concat(kubernetesRules(), cadvisorRules(), exporterRules()),
	}
}

// onNames has the rules that say nothing else see the name of a metric.
func onNames(rules []Rule) []Rule {
	for i := range rules {
		if rules[i].SourceLabels == nil {
			rules[i].SourceLabels = []string{"__name__"}
		}
	}
	return rules
}

func kubernetesRules() []Rule {
	return onNames([]Rule{
		{
			ID:     "apiserver-body-size-buckets",
			Class:  ClassBucket,
			Regex:  "apiserver_request_body_size_bytes_bucket",
			Reason: "32 buckets per resource and verb that nothing checked reads; _sum and _count stay and give the mean size",
		},
		{
			ID:    "apiserver-watch-buckets",
			Class: ClassBucket,
			// Not the waits for the watch cache and the sizes of events: perf-tests
			// and Gardener read them.
			Regex:  "apiserver_watch_list_duration_seconds_bucket",
			Reason: "alpha histogram of the watch path, buckets per resource that nothing checked reads; _sum and _count stay",
		},
		{
			ID:     "rest-client-size-buckets",
			Class:  ClassBucket,
			Regex:  "rest_client_response_size_bytes_bucket",
			Jobs:   kubernetesJobs(),
			Reason: "alpha histogram per API host and verb in every Kubernetes process, buckets that nothing checked reads; _sum and _count stay",
		},
		{
			ID:     "kubernetes-feature-gates",
			Class:  ClassUnused,
			Regex:  "kubernetes_feature_enabled",
			Reason: "one constant series per feature gate in every Kubernetes process, kubelets included; nothing checked reads it",
		},
		{
			ID:     "go-godebug-counters",
			Class:  ClassUnused,
			Regex:  "go_godebug_non_default_behavior_[a-z0-9_]+_events_total",
			Jobs:   kubernetesJobs(),
			Reason: "the Go runtime's GODEBUG counters, repeated by every Kubernetes process; nothing checked reads them",
		},
	})
}

func cadvisorRules() []Rule {
	return onNames([]Rule{
		{
			ID:    "cadvisor-always-zero",
			Class: ClassUnused,
			Regex: "container_tasks_state" +
				"|container_cpu_load_(average|d_average)_10s" +
				"|container_network_(tcp|tcp6|udp|udp6)_usage_total" +
				"|container_network_advance_tcp_stats_total",
			Jobs:   kubeletCadvisorJobs(),
			Reason: "the kubelet's cAdvisor runs without the collectors behind these names: exported as zeros or not at all",
		},
		{
			ID:    "cadvisor-unread",
			Class: ClassUnused,
			// Not the system and user CPU time, which Rancher's dashboards read.
			Regex: "container_fs_io_time_weighted_seconds_total" +
				"|container_fs_(reads|writes)_merged_total" +
				"|container_fs_sector_(reads|writes)_total" +
				"|container_memory_mapped_file" +
				"|container_threads_max",
			Jobs:   kubeletCadvisorJobs(),
			Reason: "per container and cgroup, read by nothing checked; kube-prometheus-stack drops most of them by default too",
		},
	})
}

func exporterRules() []Rule {
	return onNames([]Rule{
		{
			ID:     "ksm-endpoint-ports",
			Class:  ClassUnused,
			Regex:  "kube_endpoint_ports",
			Reason: "deprecated by kube-state-metrics and read by nothing checked; kube_endpoint_address and its deprecated forms, which alerts read, stay",
		},
		{
			ID:     "ksm-pod-tolerations",
			Class:  ClassUnused,
			Regex:  "kube_pod_tolerations",
			Reason: "two or more constant series for every pod of the cluster; nothing checked reads them",
		},
		{
			ID:    "node-network-constants",
			Class: ClassUnused,
			Regex: "node_network_(address_assign_type|device_id|iface_id|iface_link|iface_link_mode" +
				"|name_assign_type|net_dev_group|protocol_type)",
			Reason: "constants of a network interface, one of each per pod and node because every pod brings a virtual interface; nothing checked reads them",
		},
	})
}
