// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package kubelike

// Devices of a node.
var (
	cpus        = of("cpu", numbers(8)...)
	disks       = of("device", "nvme0n1", "nvme1n1", "dm-0")
	nics        = of("device", "eth0", "eth1", "cali0", "lo")
	filesystems = rows("device,fstype,mountpoint", "/dev/nvme0n1p1,ext4,/", "/dev/nvme1n1,xfs,/var/lib/containerd", "tmpfs,tmpfs,/run")
)

// nodeExporterFamilies are what node_exporter exposes.
var nodeExporterFamilies = []family{
	{name: "node_cpu_seconds_total", help: "Seconds each CPU spent in each mode.", shape: seconds, in: scopeTarget, dims: []dim{cpus, of("mode", "idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user")}},
	{name: "node_cpu_guest_seconds_total", help: "Seconds each CPU spent in guests.", shape: never, in: scopeTarget, dims: []dim{cpus, of("mode", "nice", "user")}},
	{name: "node_schedstat_running_seconds_total", help: "Seconds each CPU ran a process.", shape: seconds, in: scopeTarget, dims: []dim{cpus}},
	{name: "node_schedstat_waiting_seconds_total", help: "Seconds processes waited for each CPU.", shape: seconds, in: scopeTarget, dims: []dim{cpus}},
	{name: "node_softnet_processed_total", help: "Packets each CPU processed.", shape: events, in: scopeTarget, dims: []dim{cpus}},
	{name: "node_softnet_dropped_total", help: "Packets each CPU dropped.", shape: events, in: scopeTarget, dims: []dim{cpus}},
	{name: "node_load1", help: "Load average over one minute.", shape: level, in: scopeTarget},
	{name: "node_load5", help: "Load average over five minutes.", shape: level, in: scopeTarget},
	{name: "node_load15", help: "Load average over fifteen minutes.", shape: level, in: scopeTarget},
	{name: "node_memory_MemTotal_bytes", help: "Memory field MemTotal_bytes.", shape: level, in: scopeTarget},
	{name: "node_memory_MemAvailable_bytes", help: "Memory field MemAvailable_bytes.", shape: level, in: scopeTarget},
	{name: "node_memory_MemFree_bytes", help: "Memory field MemFree_bytes.", shape: level, in: scopeTarget},
	{name: "node_memory_Buffers_bytes", help: "Memory field Buffers_bytes.", shape: level, in: scopeTarget},
	{name: "node_memory_Cached_bytes", help: "Memory field Cached_bytes.", shape: level, in: scopeTarget},
	{name: "node_memory_Slab_bytes", help: "Memory field Slab_bytes.", shape: level, in: scopeTarget},
	{name: "node_filesystem_size_bytes", help: "Size of the file system.", shape: level, in: scopeTarget, dims: []dim{filesystems}},
	{name: "node_filesystem_avail_bytes", help: "Space that users without privileges may use.", shape: level, in: scopeTarget, dims: []dim{filesystems}},
	{name: "node_filesystem_files_free", help: "Free file nodes.", shape: level, in: scopeTarget, dims: []dim{filesystems}},
	{name: "node_filesystem_readonly", help: "Whether the file system is read-only.", shape: never, in: scopeTarget, dims: []dim{filesystems}},
	{name: "node_disk_read_bytes_total", help: "Bytes read.", shape: octets, in: scopeTarget, dims: []dim{disks}},
	{name: "node_disk_written_bytes_total", help: "Bytes written.", shape: octets, in: scopeTarget, dims: []dim{disks}},
	{name: "node_disk_reads_completed_total", help: "Reads completed.", shape: events, in: scopeTarget, dims: []dim{disks}},
	{name: "node_disk_writes_completed_total", help: "Writes completed.", shape: events, in: scopeTarget, dims: []dim{disks}},
	{name: "node_disk_io_time_seconds_total", help: "Seconds spent on input and output.", shape: seconds, in: scopeTarget, dims: []dim{disks}},
	{name: "node_network_receive_bytes_total", help: "Bytes received.", shape: octets, in: scopeTarget, dims: []dim{nics}},
	{name: "node_network_transmit_bytes_total", help: "Bytes transmitted.", shape: octets, in: scopeTarget, dims: []dim{nics}},
	{name: "node_network_receive_packets_total", help: "Packets received.", shape: events, in: scopeTarget, dims: []dim{nics}},
	{name: "node_network_transmit_packets_total", help: "Packets transmitted.", shape: events, in: scopeTarget, dims: []dim{nics}},
	{name: "node_network_receive_errs_total", help: "Errors while receiving.", shape: never, in: scopeTarget, dims: []dim{nics}},
	{name: "node_network_transmit_errs_total", help: "Errors while transmitting.", shape: never, in: scopeTarget, dims: []dim{nics}},
	{name: "node_network_receive_drop_total", help: "Packets dropped while receiving.", shape: events, in: scopeTarget, dims: []dim{nics}},
	{name: "node_network_up", help: "Whether the operational state is up.", shape: always, in: scopeTarget, dims: []dim{nics}},
	{name: "node_netstat_Tcp_CurrEstab", help: "TCP connections established.", shape: level, in: scopeTarget},
	{name: "node_netstat_Tcp_RetransSegs_total", help: "TCP segments sent again.", shape: events, in: scopeTarget},
	{name: "node_sockstat_TCP_inuse", help: "TCP sockets in use.", shape: level, in: scopeTarget},
	{name: "node_vmstat_pgmajfault_total", help: "Major page faults.", shape: events, in: scopeTarget},
	{name: "node_context_switches_total", help: "Context switches.", shape: events, in: scopeTarget},
	{name: "node_pressure_cpu_waiting_seconds_total", help: "Seconds processes waited for CPU time.", shape: seconds, in: scopeTarget},
	{name: "node_pressure_memory_stalled_seconds_total", help: "Seconds no process could go on for lack of memory.", shape: seconds, in: scopeTarget},
	{name: "node_boot_time_seconds", help: "Unix time of the boot.", shape: birth, in: scopeTarget},
	{name: "node_time_seconds", help: "Unix time of the system clock.", shape: now, in: scopeTarget},
	{name: "node_timex_sync_status", help: "Whether the clock is synchronised.", shape: always, in: scopeTarget},
}

// kubeletFamilies are what a kubelet exposes on /metrics.
var kubeletFamilies = []family{
	{name: "kubelet_running_pods", help: "Pods with a running sandbox.", shape: level, in: scopeTarget},
	{name: "kubelet_running_containers", help: "Containers by state.", shape: level, in: scopeTarget, dims: []dim{of("container_state", "running", "exited")}},
	{name: "kubelet_node_name", help: "The node's name.", shape: always, in: scopeTarget, facts: []string{"node"}},
	{name: "kubelet_runtime_operations_total", help: "Operations of the container runtime.", shape: events, in: scopeTarget, dims: []dim{runtimeOps}},
	{name: "kubelet_runtime_operations_duration_seconds", help: "Time of operations of the container runtime.", shape: durations, in: scopeTarget, dims: []dim{runtimeOps}, les: defaults},
	{name: "kubelet_pleg_relist_duration_seconds", help: "Time to list the pods again.", shape: durations, in: scopeTarget, les: defaults},
	{name: "kubelet_pod_worker_duration_seconds", help: "Time to sync a pod.", shape: durations, in: scopeTarget, dims: []dim{of("operation_type", "create", "sync", "update")}, les: defaults},
	{name: "kubelet_pod_start_duration_seconds", help: "Time from seeing a pod to running it.", shape: durations, in: scopeTarget, les: defaults},
	{name: "storage_operation_duration_seconds", help: "Time of storage operations.", shape: durations, in: scopeTarget, dims: []dim{of("operation_name", "volume_mount", "volume_unmount", "verify_controller_attached_volume"), of("status", "success"), of("volume_plugin", "kubernetes.io/configmap", "kubernetes.io/csi:ebs.csi.aws.com", "kubernetes.io/projected"), of("migrated", "false")}, les: storageOp},
	{name: "rest_client_requests_total", help: "Requests made by the API client.", shape: events, in: scopeTarget, dims: []dim{of("code", "200", "201", "409"), of("host", "api.cluster.internal"), of("method", "GET", "PATCH")}},
	{name: "kubernetes_feature_enabled", help: "Whether a feature is enabled.", shape: always, in: scopeTarget, dims: []dim{featureGates}},
	{name: "process_cpu_seconds_total", help: "User and system CPU time in seconds.", shape: seconds, in: scopeTarget},
	{name: "process_resident_memory_bytes", help: "Resident memory in bytes.", shape: level, in: scopeTarget},
	{name: "go_goroutines", help: "Goroutines that exist now.", shape: level, in: scopeTarget},
}

var runtimeOps = of("operation_type", "container_status", "create_container", "exec_sync", "list_containers", "list_podsandbox",
	"podsandbox_status", "pull_image", "remove_container", "run_podsandbox", "start_container", "stop_container", "version")
