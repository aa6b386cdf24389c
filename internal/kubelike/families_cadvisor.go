// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package kubelike

// Devices that cAdvisor sees.
var (
	interfaces = of("interface", "eth0", "tunl0")
	blockDevs  = of("device", "/dev/nvme0n1")
	blkio      = rows("device,major,minor", "/dev/nvme0n1,259,0")
)

// cadvisorFamilies are what a kubelet exposes on /metrics/cadvisor. Every one
// of them carries container, id, image, name, namespace and pod, empty where the
// cgroup is no container's.
var cadvisorFamilies = []family{
	{name: "container_cpu_usage_seconds_total", help: "CPU time used in seconds.", shape: seconds, in: scopeAnyCgroup, dims: []dim{of("cpu", "total")}},
	{name: "container_cpu_user_seconds_total", help: "CPU time in user mode in seconds.", shape: seconds, in: scopeAnyCgroup},
	{name: "container_cpu_system_seconds_total", help: "CPU time in the kernel in seconds.", shape: seconds, in: scopeAnyCgroup},
	{name: "container_cpu_load_average_10s", help: "Load average over ten seconds.", shape: never, in: scopeAnyCgroup},
	{name: "container_cpu_cfs_periods_total", help: "Enforcement periods that passed.", shape: events, in: scopePodCgroup | scopeWorkload},
	{name: "container_cpu_cfs_throttled_periods_total", help: "Enforcement periods with throttling.", shape: events, in: scopePodCgroup | scopeWorkload},
	{name: "container_cpu_cfs_throttled_seconds_total", help: "Seconds throttled.", shape: seconds, in: scopePodCgroup | scopeWorkload},
	{name: "container_pressure_cpu_waiting_seconds_total", help: "Seconds tasks waited for CPU time.", shape: seconds, in: scopeAnyCgroup},
	{name: "container_pressure_memory_waiting_seconds_total", help: "Seconds tasks waited for memory.", shape: seconds, in: scopeAnyCgroup},
	{name: "container_pressure_io_waiting_seconds_total", help: "Seconds tasks waited for input and output.", shape: seconds, in: scopeAnyCgroup},
	{name: "container_memory_working_set_bytes", help: "Working set in bytes.", shape: level, in: scopeAnyCgroup},
	{name: "container_memory_rss", help: "Resident set in bytes.", shape: level, in: scopeAnyCgroup},
	{name: "container_memory_cache", help: "Page cache in bytes.", shape: level, in: scopeAnyCgroup},
	{name: "container_memory_swap", help: "Swap in bytes.", shape: never, in: scopeAnyCgroup},
	{name: "container_memory_usage_bytes", help: "Memory in use in bytes, page cache included.", shape: level, in: scopeAnyCgroup},
	{name: "container_memory_max_usage_bytes", help: "Most memory ever in use in bytes.", shape: level, in: scopeAnyCgroup},
	{name: "container_memory_mapped_file", help: "Memory-mapped files in bytes.", shape: level, in: scopeAnyCgroup},
	{name: "container_memory_failcnt", help: "Times a memory limit was hit.", shape: never, in: scopeAnyCgroup},
	{name: "container_memory_failures_total", help: "Page faults.", shape: events, in: scopeAnyCgroup, dims: []dim{of("failure_type", "pgfault", "pgmajfault"), of("scope", "container", "hierarchy")}},
	{name: "container_oom_events_total", help: "Times the container ran out of memory.", shape: never, in: scopeAnyLeaf},
	{name: "container_tasks_state", help: "Tasks by state.", shape: never, in: scopeAnyCgroup, dims: []dim{of("state", "iowaiting", "running", "sleeping", "stopped", "uninterruptible")}},
	{name: "container_processes", help: "Processes.", shape: level, in: scopeAnyCgroup},
	{name: "container_threads", help: "Threads.", shape: level, in: scopeAnyCgroup},
	{name: "container_sockets", help: "Open sockets.", shape: level, in: scopeAnyCgroup},
	{name: "container_file_descriptors", help: "Open file descriptors.", shape: level, in: scopeAnyCgroup},
	{name: "container_last_seen", help: "Unix time the container was last seen.", shape: now, in: scopeAnyCgroup},
	{name: "container_start_time_seconds", help: "Unix time the container started.", shape: birth, in: scopeAnyCgroup},
	{name: "container_spec_cpu_period", help: "CPU period of the container.", shape: always, in: scopeAnyCgroup},
	{name: "container_spec_cpu_quota", help: "CPU quota of the container.", shape: level, in: scopePodCgroup | scopeWorkload},
	{name: "container_spec_cpu_shares", help: "CPU shares of the container.", shape: level, in: scopeAnyCgroup},
	{name: "container_spec_memory_limit_bytes", help: "Memory limit in bytes.", shape: level, in: scopeAnyCgroup},
	{name: "container_spec_memory_swap_limit_bytes", help: "Swap limit in bytes.", shape: never, in: scopeAnyCgroup},
	{name: "container_network_receive_bytes_total", help: "Bytes received.", shape: octets, in: scopeNetworked, dims: []dim{interfaces}},
	{name: "container_network_receive_packets_total", help: "Packets received.", shape: events, in: scopeNetworked, dims: []dim{interfaces}},
	{name: "container_network_receive_packets_dropped_total", help: "Packets dropped while receiving.", shape: never, in: scopeNetworked, dims: []dim{interfaces}},
	{name: "container_network_receive_errors_total", help: "Errors while receiving.", shape: never, in: scopeNetworked, dims: []dim{interfaces}},
	{name: "container_network_transmit_bytes_total", help: "Bytes transmitted.", shape: octets, in: scopeNetworked, dims: []dim{interfaces}},
	{name: "container_network_transmit_packets_total", help: "Packets transmitted.", shape: events, in: scopeNetworked, dims: []dim{interfaces}},
	{name: "container_network_transmit_packets_dropped_total", help: "Packets dropped while transmitting.", shape: never, in: scopeNetworked, dims: []dim{interfaces}},
	{name: "container_network_transmit_errors_total", help: "Errors while transmitting.", shape: never, in: scopeNetworked, dims: []dim{interfaces}},
	{name: "container_fs_reads_total", help: "Reads completed.", shape: events, in: scopeWithStorage, dims: []dim{blockDevs}},
	{name: "container_fs_reads_bytes_total", help: "Bytes read.", shape: octets, in: scopeWithStorage, dims: []dim{blockDevs}},
	{name: "container_fs_writes_total", help: "Writes completed.", shape: events, in: scopeWithStorage, dims: []dim{blockDevs}},
	{name: "container_fs_writes_bytes_total", help: "Bytes written.", shape: octets, in: scopeWithStorage, dims: []dim{blockDevs}},
	{name: "container_fs_usage_bytes", help: "Bytes in use on the file system.", shape: level, in: scopeWithStorage, dims: []dim{blockDevs}},
	{name: "container_blkio_device_usage_total", help: "Bytes by block device and operation.", shape: octets, in: scopeWithStorage, dims: []dim{blkio, of("operation", "Read", "Write")}},
	{name: "container_ulimits_soft", help: "Soft limit of open files.", shape: level, in: scopeAnyLeaf, dims: []dim{of("ulimit", "max_open_files")}},
}
