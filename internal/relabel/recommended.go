// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// etcdJobs are the jobs that scrape etcd itself. An API server exports names with
// etcd_ too, of its client.
func etcdJobs() []string {
	return []string{"etcd", "kube-etcd"}
}

// recommended changes no value beyond a bound that is stated. It adds to minimal
//
//   - names and buckets that nothing in the checked sets reads, of more families
//     than minimal: also such that grow with API resources and with controllers;
//   - cgroups that no selector of the core set can see;
//   - thinned histograms: of those that are read, no merged bucket above 10 us
//     spans more than a factor of 3, and the bounds 1, 5 and 30, which error
//     budgets read, stay.
//
// Patterns end in _bucket or begin with a subsystem that is one component's own,
// so that what a newer version adds to it goes too.
func recommended() Profile {
	return Profile{
		Name:    ProfileRecommended,
		Summary: "Drops what none of the checked rules and dashboards can see, and thins histograms so that no quantile that they read is more than a factor of 3 off.",
		Rules: slices.Concat(minimal().Rules, apiserverThinning(), apiserverRecommended(), controlPlaneRecommended(),
			kubeletRecommended(), exporterRecommended()),
	}
}

// oneOf returns a regex of alternatives.
func oneOf(alternatives ...string) string {
	return "(" + strings.Join(alternatives, "|") + ")"
}

// apiserverThinning knows the bounds of the API server's histograms since
// Kubernetes 1.23. Each layout has a rule of its own. Of other bounds, as older
// and newer versions may have, nothing is dropped that is not listed.
func apiserverThinning() []Rule {
	long := []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	drop := []float64{0.6, 0.8, 1.25, 1.5, 3, 4, 6, 8, 15, 20, 45}
	queueBounds := prometheus.ExponentialBuckets(10e-9, 10, 10)
	return []Rule{
		Rule{
			ID:     "apiserver-request-bounds",
			Reason: "24 buckets per verb, resource and scope; 0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 1, 2, 5, 10, 30 and 60 stay",
			Saving: "11 of 24 buckets per verb, resource, scope and API server",
			Since:  "1.23",
		}.thinning(Thinning{
			Histograms: []string{"apiserver_request_duration_seconds"},
			Drop:       drop,
			Bounds:     long,
		}),
		Rule{
			ID:     "apiserver-sli-bounds",
			Reason: "22 buckets per verb, resource and scope; 1, 5 and 30, which the error budget reads, stay, and 0.05, 0.1, 0.2, 0.4, 2, 10 and 60",
			Saving: "11 of 22 buckets per verb, resource, scope and API server",
			Since:  "1.26",
		}.thinning(Thinning{
			Histograms: []string{"apiserver_request_sli_duration_seconds", "apiserver_request_slo_duration_seconds"},
			Drop:       drop,
			Bounds:     long[2:],
		}),
		Rule{
			ID:     "apiserver-etcd-bounds",
			Reason: "24 buckets per operation and type of object, custom resources included; nothing checked reads them; 0.025, 0.1, 1, 10 and 60 stay",
			Saving: "18 of 24 buckets per operation, type and API server",
			Since:  "1.23",
		}.thinning(Thinning{
			Histograms: []string{"etcd_request_duration_seconds"},
			Drop:       []float64{0.005, 0.05, 0.2, 0.4, 0.6, 0.8, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 15, 20, 30, 45},
			Bounds:     long,
		}),
		Rule{
			ID:     "workqueue-bounds",
			Reason: "bounds of 10 ns, 100 ns and 1 us for times in a queue: below 10 us quantiles are at most 10 us off, above they are exact",
			Saving: "3 of 11 buckets per work queue and process",
		}.thinning(Thinning{
			Histograms: []string{"workqueue_queue_duration_seconds"},
			Drop:       queueBounds[:3],
			Bounds:     queueBounds,
		}),
	}
}

func apiserverRecommended() []Rule {
	return []Rule{
		{
			ID:           "apiserver-internal-buckets",
			Class:        ClassBucket,
			SourceLabels: []string{"__name__"},
			Regex: "apiserver_" + oneOf(
				"admission_\\w+", "audit_\\w+", "authentication_\\w+", "authorization_\\w+", "cache_list_\\w+", "cel_\\w+", "clusterip_\\w+",
				"crd_\\w+", "delegated_\\w+", "egress_dialer_\\w+", "envelope_\\w+", "flowcontrol_\\w+", "init_events\\w*", "mutating_\\w+",
				"request_body_\\w+", "request_filter_\\w+", "request_timestamp_\\w+", "request_post_\\w+", "request_aborts\\w*",
				"response_sizes", "selfrequest\\w*", "storage_\\w+", "terminated_watchers\\w*", "tls_\\w+", "validating_\\w+",
				"watch_\\w+", "webhooks_\\w+") + "_bucket",
			Reason: "histograms of single stages of a request, priority levels, admission plugins and caches; nothing checked reads their buckets, _sum and _count stay",
			Saving: "about a tenth of an API server's series",
		},
		{
			ID:           "apiserver-library-buckets",
			Class:        ClassBucket,
			SourceLabels: []string{"__name__"},
			Regex: oneOf("apiextensions_\\w+", "apiextensions_apiserver_\\w+", "authentication_\\w+", "authorization_\\w+", "field_validation_\\w+",
				"kubernetes_\\w+", "node_authorizer_\\w+", "pod_security_\\w+", "serviceaccount_\\w+") + "_bucket",
			Jobs:   kubernetesJobs(),
			Reason: "histograms of the server library in every Kubernetes process; nothing checked reads their buckets, _sum and _count stay",
			Saving: "60 to 200 per process",
		},
		{
			ID:           "apiserver-per-type-counters",
			Class:        ClassUnused,
			SourceLabels: []string{"__name__"},
			Regex: oneOf(
				"apiserver_cache_list_(fetched|returned)_objects_total", "apiserver_init_events_total", "apiserver_resource_objects",
				"apiserver_resource_size_estimate_bytes", "apiserver_storage_events_received_total",
				"apiserver_storage_list_(evaluated|fetched|returned)_objects_total", "apiserver_storage_list_total",
				"apiserver_terminated_watchers_total",
				"apiserver_watch_cache_(consistent_read_total|events_dispatched_total|events_received_total|initializations_total|resource_version)",
				"apiserver_watch_events_total", "apiserver_selfrequest_total", "etcd_bookmark_counts", "etcd_requests_total", "watch_cache_capacity(_decrease_total|_increase_total)?"),
			Reason: "one per type of object, custom resources included, mostly of the watch cache; nothing checked reads them, and etcd_request_duration_seconds_count has what etcd_requests_total has",
			Saving: "15 per type of object and API server",
		},
		{
			ID:           "workqueue-unread",
			Class:        ClassUnused,
			SourceLabels: []string{"__name__"},
			Regex:        "workqueue_(work_duration_seconds_bucket|longest_running_processor_seconds|unfinished_work_seconds)",
			Jobs:         kubernetesJobs(),
			Reason:       "per work queue; nothing checked reads them of Kubernetes' own controllers, the time in the queue and the depth stay, and operators keep theirs",
			Saving:       "13 per work queue and process",
		},
		{
			ID:           "rest-client-buckets",
			Class:        ClassBucket,
			SourceLabels: []string{"__name__"},
			Regex:        "rest_client_(rate_limiter_duration_seconds|dns_resolution_duration_seconds|exec_plugin_certificate_rotation_age)_bucket",
			Jobs:         kubernetesJobs(),
			Reason:       "per API host and verb in every Kubernetes process; nothing checked reads them, the request's duration stays",
			Saving:       "13 per verb and process",
		},
		{
			// What client_golang's collector exported before, and what boards
			// read: go_goroutines, go_threads, go_info, go_memstats_*,
			// go_gc_duration_seconds.
			ID:           "go-runtime-copies",
			Class:        ClassUnused,
			SourceLabels: []string{"__name__"},
			Regex: "go_" + oneOf("cgo_\\w+", "cpu_\\w+", "gc_(cleanups|cycles|finalizers|gogc|gomemlimit|heap|limiter|pauses|scan|stack)_\\w+",
				"memory_\\w+", "sched_(gomaxprocs|goroutines|latencies|pauses|threads)_\\w+", "sync_\\w+"),
			Jobs:   kubernetesJobs(),
			Reason: "everything that Go's runtime/metrics has, in every Kubernetes process; nothing checked reads it, the names that Go dashboards read stay",
			Saving: "120 per process",
		},
	}
}

func controlPlaneRecommended() []Rule {
	return []Rule{
		{
			ID:           "scheduler-stage-buckets",
			Class:        ClassBucket,
			SourceLabels: []string{"__name__"},
			Regex: "scheduler_" + oneOf("async_\\w+", "cache_\\w+", "event_handling_\\w+", "framework_extension_point_\\w+", "get_node_hint_\\w+",
				"goroutines_\\w+", "inflight_\\w+", "permit_wait_\\w+", "plugin_\\w+", "pod_scheduled_after_flush_\\w+", "pod_scheduling_attempts",
				"preemption_\\w+", "queue_\\w+", "queueing_hint_\\w+", "resourceclaim_\\w+", "store_schedule_\\w+") + "_bucket",
			Reason: "histograms of single plugins, events and extension points; nothing checked reads them, the durations of attempts, of the algorithm and of pods stay",
			Saving: "a third of a scheduler's series",
		},
		{
			ID:           "controller-buckets",
			Class:        ClassBucket,
			SourceLabels: []string{"__name__"},
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
			ID:           "etcd-unread-buckets",
			Class:        ClassBucket,
			SourceLabels: []string{"__name__"},
			Regex: "etcd_" + oneOf("debugging_\\w+", "disk_backend_(defrag|snapshot)_duration_seconds", "disk_wal_write_duration_seconds",
				"mvcc_hash_(rev_)?duration_seconds", "server_(apply|range)_duration_seconds", "snap_\\w+") + "_bucket",
			Reason: "debugging and maintenance histograms; nothing checked reads them, WAL fsync, backend commit and peer round trip stay with all bounds",
			Saving: "a quarter of an etcd's series",
		},
		{
			ID:           "etcd-grpc-messages",
			Class:        ClassUnused,
			SourceLabels: []string{"__name__"},
			Regex:        "grpc_server_msg_(received|sent)_total",
			Jobs:         etcdJobs(),
			Reason:       "messages per gRPC method; nothing checked reads them, calls started and handled stay",
			Saving:       "two per gRPC method and member",
		},
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

// cadvisorUnread are names of cAdvisor that nothing checked reads, beside those of
// minimal. container_last_seen, container_fs_limit_bytes, container_fs_inodes_* and
// container_spec_memory_limit_bytes are none: alerts and dashboards that many have
// copied read them, one of them behind absent().
func cadvisorUnread() []string {
	return []string{
		"blkio_device_usage_total", "fs_(read|write)_seconds_total",
		"memory_(failcnt|failures_total|kernel_usage|max_usage_bytes|total_(active|inactive)_file_bytes)",
		"processes", "sockets", "spec_memory_(reservation_limit|swap_limit)_bytes", "threads", "ulimits_soft",
	}
}

func kubeletRecommended() []Rule {
	return []Rule{
		{
			ID:           "cadvisor-unread-names",
			Class:        ClassUnused,
			SourceLabels: []string{"__name__"},
			Regex:        "container_" + oneOf(cadvisorUnread()...),
			Jobs:         kubeletCadvisorJobs(),
			Reason:       "per container and cgroup; nothing checked reads them, memory in use, CPU, throttling, network and file system use stay",
			Saving:       "15 per container and per cgroup",
		},
		{
			// The same and those of minimal in whatever job: a cgroup below
			// kubepods is Kubernetes' own, also to a stand-alone cAdvisor.
			ID:           "cadvisor-unread-in-pods",
			Class:        ClassUnused,
			SourceLabels: []string{"__name__", "id"},
			Regex: "container_" + oneOf(append(cadvisorUnread(), "tasks_state", "cpu_load_(average|d_average)_10s", "cpu_(system|user)_seconds_total",
				"fs_io_time_weighted_seconds_total", "fs_(reads|writes)_merged_total", "fs_sector_(reads|writes)_total", "memory_mapped_file",
				"threads_max")...) + ";.*kubepods.*",
			Reason: "per container and cgroup of pods, for jobs by another name; nothing checked reads them",
			Saving: "25 per container and per cgroup of pods",
		},
		{
			// Told by the path first, so that containers stay where the runtime
			// gives the kubelet no labels. Not container_oom_events_total and
			// container_cpu_cfs_periods_total, which are read of all cgroups.
			ID:           "cadvisor-cgroups-above-containers",
			Class:        ClassDisjoint,
			SourceLabels: []string{"__name__", "id", "container", "image"},
			Regex: "container_" + oneOf("cpu_usage_seconds_total", "cpu_cfs_throttled_(periods|seconds)_total", "fs_(reads|writes)(_bytes)?_total",
				"memory_(cache|rss|swap|usage_bytes|working_set_bytes)", "pressure_(cpu|io|memory)_(stalled|waiting)_seconds_total",
				"file_descriptors", "spec_cpu_(period|quota|shares)", "start_time_seconds", "threads_max") +
				";" + notContainer() + ";;",
			Reason:   `pods, QoS classes and system services counted beside their containers; every selector that was checked has container!="" or image!=""`,
			Saving:   "15 to 25 per pod and system service",
			Requires: `container_cpu_usage_seconds_total{container!=""}`,
		},
		{
			ID:           "kubelet-unread-buckets",
			Class:        ClassBucket,
			SourceLabels: []string{"__name__"},
			Regex: oneOf(
				"kubelet_(admission|containers|device_plugin|eviction|evented|http|image|imagemanager|memory_manager|pod_resources|pod_status|pod_start_sli|pod_start_total|pod_worker_start|run_podsandbox|topology_manager|volume_metric)_\\w+",
				"csi_operations_seconds", "plugin_manager_\\w+", "prober_probe_duration_seconds", "volume_manager_\\w+", "dra_\\w+") + "_bucket",
			Jobs:   kubernetesJobs(),
			Reason: "histograms per path, image size, driver and probe in every kubelet; nothing checked reads them, pod start, pod worker, PLEG, cgroup and runtime durations stay",
			Saving: "500 to 1500 per node",
		},
	}
}

func exporterRecommended() []Rule {
	return []Rule{
		{
			ID:           "ksm-pod-details",
			Class:        ClassUnused,
			SourceLabels: []string{"__name__"},
			Regex: "kube_pod_" + oneOf("annotations", "ips", "nodeselectors", "overhead_\\w+", "runtimeclass_name_info", "scheduler", "service_account",
				"spec_volumes_persistentvolumeclaims_readonly", "status_(container_ready|initialized|ready|scheduled|unscheduled)_time"),
			Reason: "one or more constant series for every pod of the cluster; nothing checked reads them",
			Saving: "9 per pod",
		},
		{
			ID:           "ksm-bookkeeping",
			Class:        ClassUnused,
			SourceLabels: []string{"__name__"},
			Regex: "kube_" + oneOf(
				"(configmap|cronjob|endpoint|endpointslice|ingress|job|lease|networkpolicy|replicaset|secret|service)_(annotations|created)",
				"(cronjob|endpoint|endpointslice|ingress|networkpolicy)_metadata_resource_version",
				"endpointslice_(endpoints|endpoints_hints|ports)"),
			Reason: "times of creation, annotations and versions of objects, addresses of endpoint slices; nothing checked reads them",
			Saving: "2 to 4 per object, one per address and port of a service",
		},
	}
}
