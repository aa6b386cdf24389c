// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package kubelike

import "strconv"

// Upper bounds of buckets, in seconds unless the name says bytes.
var (
	apiLatency   = []float64{.005, .025, .05, .1, .2, .4, .6, .8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	sliLatency   = apiLatency[2:]
	watchLatency = []float64{.05, .1, .2, .4, .6, .8, 1, 2, 4, 6, 8, 10, 15, 20, 30, 45, 60}
	admission    = []float64{.005, .025, .1, .5, 1, 2.5}
	doubling     = []float64{.001, .002, .004, .008, .016, .032, .064, .128, .256, .512, 1.024, 2.048, 4.096, 8.192}
	decades      = []float64{1e-8, 1e-7, 1e-6, 1e-5, 1e-4, .001, .01, .1, 1, 10}
	defaults     = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	storageOp    = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
	bodyBytes    = linear(50_000, 100_000, 31)
	sizeBytes    = []float64{1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}
	watchBytes   = []float64{1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072}
)

func linear(from, step float64, n int) []float64 {
	les := make([]float64, n)
	for i := range les {
		les[i] = from + step*float64(i)
	}
	return les
}

// resources are API resources as group,version,resource, those of any cluster
// first: a small cluster uses only the first few.
var resources = []string{
	",v1,pods", ",v1,nodes", "coordination.k8s.io,v1,leases", ",v1,configmaps", ",v1,events",
	",v1,secrets", ",v1,services", ",v1,namespaces", ",v1,endpoints", "discovery.k8s.io,v1,endpointslices",
	"apps,v1,deployments", "apps,v1,replicasets", "apps,v1,daemonsets", "apps,v1,statefulsets", "batch,v1,jobs",
	"batch,v1,cronjobs", ",v1,serviceaccounts", ",v1,persistentvolumeclaims", ",v1,persistentvolumes", ",v1,limitranges",
	",v1,resourcequotas", ",v1,replicationcontrollers", "networking.k8s.io,v1,ingresses", "networking.k8s.io,v1,networkpolicies",
	"policy,v1,poddisruptionbudgets", "autoscaling,v2,horizontalpodautoscalers", "rbac.authorization.k8s.io,v1,roles",
	"rbac.authorization.k8s.io,v1,rolebindings", "rbac.authorization.k8s.io,v1,clusterroles",
	"rbac.authorization.k8s.io,v1,clusterrolebindings", "storage.k8s.io,v1,storageclasses", "storage.k8s.io,v1,csinodes",
	"storage.k8s.io,v1,volumeattachments", "apiextensions.k8s.io,v1,customresourcedefinitions",
	"apiregistration.k8s.io,v1,apiservices", "admissionregistration.k8s.io,v1,validatingwebhookconfigurations",
	"admissionregistration.k8s.io,v1,mutatingwebhookconfigurations", "certificates.k8s.io,v1,certificatesigningrequests",
	"scheduling.k8s.io,v1,priorityclasses", "flowcontrol.apiserver.k8s.io,v1,flowschemas",
	"monitoring.coreos.com,v1,servicemonitors", "monitoring.coreos.com,v1,prometheusrules",
	"cert-manager.io,v1,certificates", "snapshot.storage.k8s.io,v1,volumesnapshots",
}

// apiserverFamilies are what a kube-apiserver exposes that knows so many of
// the resources.
func apiserverFamilies(known int) []family {
	gvr := rows("group,version,resource", resources[:known]...)
	requests := rows("verb,scope", "GET,resource", "LIST,cluster", "POST,resource", "PUT,resource", "PATCH,resource", "DELETE,resource", "WATCH,cluster")
	none := rows("component,dry_run,subresource", "apiserver,,")
	component := rows("component,subresource", "apiserver,")
	writes := of("operation", "CREATE", "UPDATE", "DELETE")
	return []family{
		{name: "apiserver_request_total", help: "Requests answered, by verb, resource and response code.", shape: events, in: scopeTarget, dims: []dim{of("code", "200", "201", "404", "409"), none, gvr, requests}},
		{name: "apiserver_request_duration_seconds", help: "Time to answer a request, by verb and resource.", shape: durations, in: scopeTarget, dims: []dim{none, gvr, requests}, les: apiLatency},
		{name: "apiserver_request_sli_duration_seconds", help: "Time to answer a request without webhooks and queueing.", shape: durations, in: scopeTarget, dims: []dim{component, gvr, requests}, les: sliLatency},
		{name: "etcd_request_duration_seconds", help: "Time etcd took for a request of the API server.", shape: durations, in: scopeTarget, dims: []dim{of("operation", "get", "list", "create", "update", "delete"), rows("group,resource", groupResources(known)...)}, les: apiLatency},
		{name: "apiserver_request_body_size_bytes", help: "Size of request bodies.", shape: durations, in: scopeTarget, dims: []dim{of("verb", "create", "update"), rows("group,resource", groupResources(known)...)}, les: bodyBytes},
		{name: "apiserver_response_sizes", help: "Size of responses in bytes.", shape: durations, in: scopeTarget, dims: []dim{component, gvr, rows("verb,scope", "GET,resource", "LIST,cluster")}, les: sizeBytes},
		{name: "apiserver_watch_events_sizes", help: "Size of watch events in bytes.", shape: durations, in: scopeTarget, dims: []dim{gvr}, les: watchBytes},
		{name: "apiserver_watch_list_duration_seconds", help: "Time to answer a watch that starts with a list.", shape: durations, in: scopeTarget, dims: []dim{gvr, of("scope", "cluster")}, les: watchLatency},
		{name: "apiserver_admission_controller_admission_duration_seconds", help: "Time spent in an admission controller.", shape: durations, in: scopeTarget, dims: []dim{rows("name,type", "LimitRanger,admit", "NodeRestriction,admit", "PodSecurity,validate", "ServiceAccount,admit"), writes, of("rejected", "false")}, les: admission},
		{name: "apiserver_storage_objects", help: "Objects in storage.", shape: level, in: scopeTarget, dims: []dim{rows("group,resource", groupResources(known)...)}},
		{name: "apiserver_longrunning_requests", help: "Watches, execs and proxies open now.", shape: level, in: scopeTarget, dims: []dim{none, gvr, rows("verb,scope", "WATCH,cluster")}},
		{name: "apiserver_current_inflight_requests", help: "Most requests in flight within the last second.", shape: level, in: scopeTarget, dims: []dim{of("request_kind", "mutating", "readOnly")}},
		{name: "apiserver_flowcontrol_request_execution_seconds", help: "Time requests executed under priority and fairness.", shape: durations, in: scopeTarget, dims: []dim{rows("flow_schema,priority_level", "system-nodes,system", "kube-controller-manager,workload-high", "service-accounts,workload-low", "global-default,global-default"), of("type", "regular")}, les: defaults},
		{name: "workqueue_queue_duration_seconds", help: "Time an item waited in a work queue.", shape: durations, in: scopeTarget, dims: []dim{of("name", "autoregister", "crd_finalizer", "open_api_controller")}, les: decades},
		{name: "rest_client_requests_total", help: "Requests made by the API client.", shape: events, in: scopeTarget, dims: []dim{of("code", "200", "201", "409"), of("host", "[::1]:6443"), of("method", "GET", "PUT", "PATCH")}},
		{name: "kubernetes_feature_enabled", help: "Whether a feature is enabled.", shape: always, in: scopeTarget, dims: []dim{featureGates}},
		{name: "go_goroutines", help: "Goroutines that exist now.", shape: level, in: scopeTarget},
		{name: "process_resident_memory_bytes", help: "Resident memory in bytes.", shape: level, in: scopeTarget},
		{name: "process_cpu_seconds_total", help: "User and system CPU time in seconds.", shape: seconds, in: scopeTarget},
	}
}

// groupResources are the known resources as group,resource.
func groupResources(known int) []string {
	rs := make([]string, known)
	for i, r := range rows("", resources[:known]...).rows {
		rs[i] = r[0] + "," + r[2]
	}
	return rs
}

var featureGates = of("name", "APIServerIdentity", "CPUManager", "DevicePlugins", "GracefulNodeShutdown", "InPlacePodVerticalScaling",
	"JobTrackingWithFinalizers", "KubeletTracing", "MemoryManager", "NodeSwap", "PodDisruptionConditions", "SidecarContainers", "TopologyManager")

var etcdFamilies = []family{
	{name: "etcd_server_has_leader", help: "Whether this member knows a leader.", shape: always, in: scopeTarget},
	{name: "etcd_mvcc_db_total_size_in_bytes", help: "Bytes the database takes on disk.", shape: level, in: scopeTarget},
	{name: "etcd_disk_wal_fsync_duration_seconds", help: "Time to sync the log to disk.", shape: durations, in: scopeTarget, les: doubling},
	{name: "etcd_disk_backend_commit_duration_seconds", help: "Time to commit to the backend.", shape: durations, in: scopeTarget, les: doubling},
	{name: "etcd_debugging_disk_backend_commit_rebalance_duration_seconds", help: "Time to rebalance within a commit.", shape: durations, in: scopeTarget, les: doubling},
	{name: "etcd_server_proposals_committed_total", help: "Proposals committed.", shape: events, in: scopeTarget},
	{name: "etcd_network_peer_round_trip_time_seconds", help: "Round trip time between peers.", shape: durations, in: scopeTarget, dims: []dim{of("To", "8e9e05c52164694d", "91bc3c398fb3c146")}, les: doubling},
	{name: "grpc_server_handled_total", help: "RPCs completed, by code.", shape: events, in: scopeTarget, dims: []dim{of("grpc_code", "OK", "Canceled", "DeadlineExceeded", "Unavailable"), rows("grpc_service,grpc_method,grpc_type", "etcdserverpb.KV,Range,unary", "etcdserverpb.KV,Txn,unary", "etcdserverpb.KV,Compact,unary", "etcdserverpb.Lease,LeaseGrant,unary", "etcdserverpb.Watch,Watch,bidi_stream")}},
}

// numbers are the strings "0" to n-1, for labels such as cpu.
func numbers(n int) []string {
	ns := make([]string, n)
	for i := range ns {
		ns[i] = strconv.Itoa(i)
	}
	return ns
}
