// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"slices"
	"strings"
)

// recommended changes no value beyond a bound that is stated. It adds to minimal
//
//   - names and buckets that nothing in the checked sets reads, of more families
//     than minimal: also such that grow with API resources and with controllers;
//   - thinned histograms, of which some are read: a quantile moves by a factor of 4
//     at most, and the bounds that something reads stay.
//
// A cgroup is in none of its rules: pods, QoS classes and system services are read
// by published rules and consoles, and by all that sum without a matcher for the
// container.
//
// Patterns end in _bucket or begin with a subsystem that is one component's own,
// so that what a newer version adds to it goes too.
func recommended() Profile {
	return Profile{
		Name:    ProfileRecommended,
		Summary: "Drops what none of the checked rules and dashboards can see, and thins histograms: quantiles move by a factor of 4 at most.",
		Rules: slices.Concat(minimal().Rules, thinnedRules(keptBounds()), apiserverRecommended(), controlPlaneRecommended(),
			kubeletRecommended(), exporterRecommended()),
	}
}

// oneOf returns a regex of alternatives.
func oneOf(alternatives ...string) string {
	return "(" + strings.Join(alternatives, "|") + ")"
}

func apiserverRecommended() []Rule {
	return onNames([]Rule{
		{
			ID:    "apiserver-internal-buckets",
			Class: ClassBucket,
			Regex: "apiserver_" + oneOf(
				"admission_match_\\w+", "audit_\\w+", "authentication_\\w+", "authorization_\\w+", "cache_list_\\w+", "cel_\\w+", "clusterip_\\w+",
				"crd_\\w+", "delegated_\\w+", "egress_dialer_\\w+", "envelope_\\w+",
				"flowcontrol_(dispatch|next|nominal|priority|read|seat|target|watch|work)_\\w+", "flowcontrol_request_(concurrency|dispatch)_\\w+",
				"init_events\\w*", "mutating_\\w+",
				"request_body_\\w+", "request_timestamp_\\w+", "request_post_\\w+", "request_aborts\\w*",
				"selfrequest\\w*", "storage_\\w+", "terminated_watchers\\w*", "tls_\\w+", "validating_\\w+", "webhooks_\\w+",
			) + "_bucket",
			Reason: "histograms of single stages of a request, seats and caches; filters, admission, webhooks, sizes of responses and events and the time that flow control takes stay, as do _sum and _count",
			Saving: "200 to 400 per API server",
		},
		{
			ID:    "apiserver-library-buckets",
			Class: ClassBucket,
			Regex: oneOf("apiextensions_\\w+", "apiextensions_apiserver_\\w+", "authentication_\\w+", "authorization_\\w+", "etcd_lease_object_counts",
				"field_validation_\\w+", "kube_apiserver_\\w+", "kubernetes_\\w+", "node_authorizer_\\w+", "pod_security_\\w+", "serviceaccount_\\w+") + "_bucket",
			Jobs:   kubernetesJobs(),
			Reason: "histograms of the server library in every Kubernetes process; nothing checked reads their buckets, _sum and _count stay",
			Saving: "60 to 200 per process",
		},
		{
			ID:    "apiserver-per-type-counters",
			Class: ClassUnused,
			Regex: oneOf(
				"apiserver_cache_list_((fetched|returned)_objects_)?total", "apiserver_storage_events_received_total",
				"apiserver_storage_list_(evaluated|fetched|returned)_objects_total", "apiserver_storage_list_total",
				"apiserver_watch_cache_(consistent_read_total|events_received_total)",
				"etcd_bookmark_counts", "watch_cache_capacity(_decrease_total|_increase_total)?",
			),
			Reason: "one per type of object, custom resources included, of lists and the watch cache; nothing checked reads them, what OpenShift, perf-tests and Gardener read of the watch cache stays",
			Saving: "10 per type of object and API server",
		},
		{
			ID:    "apiserver-flowcontrol-internals",
			Class: ClassUnused,
			Regex: "apiserver_" + oneOf("flowcontrol_(current_r|dispatch_r|latest_s|(next|next_discounted)_s_bounds)",
				"flowcontrol_demand_seats_(average|stdev)", "admission_step_admission_duration_seconds_summary(_count|_sum)?"),
			Reason: "what fair queueing and the borrowing of seats reckon with, and a summary beside a histogram; nothing checked reads them, limits, queues, waits and rejections stay",
			Saving: "7 per priority level and API server",
		},
		{
			ID:     "workqueue-unread",
			Class:  ClassUnused,
			Regex:  "workqueue_(longest_running_processor_seconds|unfinished_work_seconds)",
			Jobs:   kubernetesJobs(),
			Reason: "per work queue; those checked read them of operators, which keep theirs, and not of Kubernetes' own controllers, of which the times in the queue and at work and the depth stay",
			Saving: "2 per work queue and process",
		},
		{
			ID:     "rest-client-buckets",
			Class:  ClassBucket,
			Regex:  "rest_client_(rate_limiter_duration_seconds|dns_resolution_duration_seconds|exec_plugin_certificate_rotation_age)_bucket",
			Jobs:   kubernetesJobs(),
			Reason: "per API host and verb in every Kubernetes process; nothing checked reads them, the request's duration stays",
			Saving: "13 per verb and process",
		},
		{
			// What client_golang's collector exported before, and what boards
			// read: go_goroutines, go_threads, go_info, go_memstats_*,
			// go_gc_duration_seconds.
			ID:    "go-runtime-copies",
			Class: ClassUnused,
			Regex: "go_" + oneOf("cgo_\\w+", "cpu_\\w+", "gc_(cleanups|cycles|finalizers|gogc|gomemlimit|heap|limiter|pauses|scan|stack)_\\w+",
				"memory_\\w+", "sched_(gomaxprocs|goroutines|latencies|pauses|threads)_\\w+", "sync_\\w+"),
			Jobs:   kubernetesJobs(),
			Reason: "everything that Go's runtime/metrics has, in every Kubernetes process; nothing checked reads it, the names that Go dashboards read stay",
			Saving: "120 per process",
		},
	})
}

func controlPlaneRecommended() []Rule {
	return onNames([]Rule{
		{
			ID:    "scheduler-stage-buckets",
			Class: ClassBucket,
			Regex: "scheduler_" + oneOf("async_\\w+", "cache_\\w+", "event_handling_\\w+", "get_node_hint_\\w+",
				"goroutines_\\w+", "inflight_\\w+", "permit_wait_\\w+", "plugin_\\w+", "pod_scheduled_after_flush_\\w+", "pod_scheduling_attempts",
				"preemption_\\w+", "queue_\\w+", "queueing_hint_\\w+", "resourceclaim_\\w+", "store_schedule_\\w+") + "_bucket",
			Reason: "histograms of single plugins and events; nothing checked reads them, the durations of attempts, of the algorithm, of extension points and of pods stay",
			Saving: "a quarter of a scheduler's series",
		},
		{
			ID:    "controller-buckets",
			Class: ClassBucket,
			Regex: oneOf("attach_detach_controller_\\w+", "attachdetach_controller_\\w+", "cronjob_controller_\\w+", "device_taint_eviction_controller_\\w+",
				"endpoint_slice_controller_\\w+", "endpoint_slice_mirroring_controller_\\w+", "ephemeral_volume_controller_\\w+", "garbagecollector_controller_\\w+",
				"horizontal_pod_autoscaler_controller_\\w+", "job_controller_\\w+", "node_collector_\\w+", "node_ipam_controller_\\w+",
				"pod_gc_collector_\\w+", "pv_collector_\\w+", "replicaset_controller_\\w+", "resourceclaim_controller_\\w+", "root_ca_cert_publisher_\\w+",
				"selinux_warning_controller_\\w+", "service_controller_\\w+", "statefulset_controller_\\w+", "taint_eviction_controller_\\w+",
				"ttl_after_finished_controller_\\w+", "volume_operation_total_seconds") + "_bucket",
			Reason: "histograms of single controllers; nothing checked reads them, _sum and _count stay",
			Saving: "300 per controller manager",
		},
		{
			ID:    "etcd-unread-buckets",
			Class: ClassBucket,
			Regex: "etcd_" + oneOf("debugging_(disk|lease|server|snap|store)_\\w+", "debugging_mvcc_(db_compaction_total|index)_\\w+", "disk_backend_(defrag|snapshot)_duration_seconds", "disk_wal_write_duration_seconds",
				"mvcc_hash_(rev_)?duration_seconds", "server_range_duration_seconds", "snap_\\w+") + "_bucket",
			Reason: "debugging and maintenance histograms; nothing checked reads them, WAL fsync, backend commit and peer round trip stay with all bounds",
			Saving: "a quarter of an etcd's series",
		},
	})
}

// cadvisorUnread are names of cAdvisor that nothing checked reads, beside those of
// minimal. Counts of processes, threads and sockets, page faults, failed
// allocations, peaks and limits of memory and of file systems are none of them:
// they are in no mixin, but in many dashboards and alerts that people have copied.
func cadvisorUnread() []string {
	return []string{"blkio_device_usage_total", "memory_(kernel_usage|total_(active|inactive)_file_bytes)", "spec_memory_swap_limit_bytes", "ulimits_soft"}
}

func kubeletRecommended() []Rule {
	return onNames([]Rule{
		{
			ID:     "cadvisor-unread-names",
			Class:  ClassUnused,
			Regex:  "container_" + oneOf(cadvisorUnread()...),
			Jobs:   kubeletCadvisorJobs(),
			Reason: "per container and cgroup; nothing checked reads them, what containers use, wait for and may use stays",
			Saving: "6 per container and per cgroup",
		},
		{
			// The same and most of minimal's in whatever job: a cgroup below
			// kubepods is Kubernetes' own, also to a stand-alone cAdvisor. Not the
			// system and user CPU time, which dashboards of that one read.
			ID:           "cadvisor-unread-in-pods",
			Class:        ClassUnused,
			SourceLabels: []string{"__name__", "id"},
			Regex: "container_" + oneOf(append(cadvisorUnread(), "tasks_state", "cpu_load_(average|d_average)_10s",
				"fs_io_time_weighted_seconds_total", "fs_(reads|writes)_merged_total", "fs_sector_(reads|writes)_total", "memory_mapped_file",
				"threads_max")...) + ";.*kubepods.*",
			Reason: "per container and cgroup of pods, for jobs by another name; nothing checked reads them",
			Saving: "18 per container and per cgroup of pods",
		},
		{
			ID:    "kubelet-unread-buckets",
			Class: ClassBucket,
			Regex: oneOf(
				"kubelet_(admission|containers|device_plugin|eviction|evented|http|image|imagemanager|memory_manager|pod_resources|pod_status|pod_worker_start|run_podsandbox|topology_manager|volume_metric)_\\w+",
				"plugin_manager_\\w+", "prober_probe_duration_seconds", "volume_manager_\\w+", "dra_\\w+",
			) + "_bucket",
			Jobs:   kubernetesJobs(),
			Reason: "histograms per path, image size and probe in every kubelet; nothing checked reads them, pod start, pod worker, PLEG, cgroup, runtime and volume durations stay",
			Saving: "500 to 1500 per node",
		},
	})
}

func exporterRecommended() []Rule {
	return onNames([]Rule{
		{
			ID:    "ksm-pod-details",
			Class: ClassUnused,
			// Not annotations, which an exporter gives only to those who ask for
			// them, nor the times of a pod's conditions, which benchmarks read.
			Regex:  "kube_pod_" + oneOf("ips", "nodeselectors", "overhead_\\w+", "scheduler", "service_account", "spec_volumes_persistentvolumeclaims_readonly"),
			Reason: "one or more constant series for every pod of the cluster; nothing checked reads them",
			Saving: "3 per pod",
		},
		{
			ID:    "ksm-bookkeeping",
			Class: ClassUnused,
			// Not times of creation: they are counted to count objects.
			Regex: "kube_" + oneOf(
				"(cronjob|endpoint|endpointslice|ingress|lease|networkpolicy|replicaset)_metadata_resource_version",
				"endpointslice_(endpoints_hints|ports)",
			),
			Reason: "versions of objects, hints and ports of endpoint slices; nothing checked reads them",
			Saving: "one per object, one per port and zone of a service",
		},
	})
}
