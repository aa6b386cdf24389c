// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package kubelike

// ksmFamilies are what kube-state-metrics exposes.
var ksmFamilies = []family{
	{name: "kube_node_info", help: "Facts about a node.", shape: always, in: scopeNode, dims: []dim{rows("kernel_version,os_image,container_runtime_version,kubelet_version", "6.8.0-1015,Ubuntu 24.04 LTS,containerd://2.1.4,v1.35.0")}},
	{name: "kube_node_created", help: "Unix time the node was created.", shape: birth, in: scopeNode},
	{name: "kube_node_spec_unschedulable", help: "Whether the node takes no new pods.", shape: never, in: scopeNode},
	{name: "kube_node_status_condition", help: "Condition of a node.", shape: oneOf, in: scopeNode, dims: []dim{of("condition", "Ready", "MemoryPressure", "DiskPressure", "PIDPressure"), of("status", "true", "false", "unknown")}, on: []string{"Ready/true", "MemoryPressure/false", "DiskPressure/false", "PIDPressure/false"}},
	{name: "kube_node_status_capacity", help: "Resources a node has.", shape: level, in: scopeNode, dims: []dim{nodeResources}},
	{name: "kube_node_status_allocatable", help: "Resources a node can give to pods.", shape: level, in: scopeNode, dims: []dim{nodeResources}},

	{name: "kube_pod_info", help: "Facts about a pod.", shape: always, in: scopePod, dims: []dim{rows("created_by_kind,priority_class,host_network", "ReplicaSet,,false")}, facts: []string{"node", "host_ip", "pod_ip", "created_by_name"}},
	{name: "kube_pod_owner", help: "Who owns the pod.", shape: always, in: scopePod, dims: []dim{rows("owner_kind,owner_is_controller", "ReplicaSet,true")}, facts: []string{"owner_name"}},
	{name: "kube_pod_created", help: "Unix time the pod was created.", shape: birth, in: scopePod},
	{name: "kube_pod_start_time", help: "Unix time the pod started.", shape: birth, in: scopePod},
	{name: "kube_pod_labels", help: "The pod's labels.", shape: always, in: scopePod},
	{name: "kube_pod_annotations", help: "The pod's annotations.", shape: always, in: scopePod},
	{name: "kube_pod_ips", help: "The pod's addresses.", shape: always, in: scopePod, dims: []dim{of("ip_family", "4")}, facts: []string{"ip"}},
	{name: "kube_pod_restart_policy", help: "The pod's restart policy.", shape: always, in: scopePod, dims: []dim{of("type", "Always")}},
	{name: "kube_pod_scheduler", help: "The pod's scheduler.", shape: always, in: scopePod, dims: []dim{of("name", "default-scheduler")}},
	{name: "kube_pod_service_account", help: "The pod's service account.", shape: always, in: scopePod, dims: []dim{of("service_account", "default")}},
	{name: "kube_pod_tolerations", help: "What the pod tolerates.", shape: always, in: scopePod, dims: []dim{of("key", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"), rows("operator,value,effect,toleration_seconds", "Exists,,NoExecute,300")}},
	{name: "kube_pod_status_phase", help: "The pod's phase.", shape: oneOf, in: scopePod, dims: []dim{of("phase", "Pending", "Succeeded", "Failed", "Unknown", "Running")}, on: []string{"Running"}},
	{name: "kube_pod_status_ready", help: "Whether the pod is ready.", shape: oneOf, in: scopePod, dims: []dim{of("condition", "true", "false", "unknown")}, on: []string{"true"}},
	{name: "kube_pod_status_scheduled", help: "Whether the pod is scheduled.", shape: oneOf, in: scopePod, dims: []dim{of("condition", "true", "false", "unknown")}, on: []string{"true"}},
	{name: "kube_pod_status_qos_class", help: "The pod's quality of service.", shape: oneOf, in: scopePod, dims: []dim{of("qos_class", "BestEffort", "Burstable", "Guaranteed")}, on: []string{"Burstable"}},
	{name: "kube_pod_status_reason", help: "Why the pod is in its phase.", shape: oneOf, in: scopePod, dims: []dim{of("reason", "Evicted", "NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError", "SchedulingGated")}},

	{name: "kube_pod_container_info", help: "Facts about a container.", shape: always, in: scopeContainer, facts: []string{"image", "image_id", "container_id"}},
	{name: "kube_pod_container_resource_requests", help: "Resources a container asks for.", shape: level, in: scopeContainer, dims: []dim{containerResources}, facts: []string{"node"}},
	{name: "kube_pod_container_resource_limits", help: "Resources a container may use.", shape: level, in: scopeContainer, dims: []dim{containerResources}, facts: []string{"node"}},
	{name: "kube_pod_container_state_started", help: "Unix time the container started.", shape: birth, in: scopeContainer},
	{name: "kube_pod_container_status_ready", help: "Whether the container is ready.", shape: always, in: scopeContainer},
	{name: "kube_pod_container_status_restarts_total", help: "Restarts of the container.", shape: never, in: scopeContainer},
	{name: "kube_pod_container_status_running", help: "Whether the container runs.", shape: always, in: scopeContainer},
	{name: "kube_pod_container_status_terminated", help: "Whether the container has ended.", shape: never, in: scopeContainer},
	{name: "kube_pod_container_status_waiting", help: "Whether the container waits.", shape: never, in: scopeContainer},

	{name: "kube_configmap_info", help: "Facts about a ConfigMap.", shape: always, in: scopeConfigMap},
}

var (
	nodeResources      = rows("resource,unit", "cpu,core", "memory,byte", "pods,integer", "ephemeral_storage,byte")
	containerResources = rows("resource,unit", "cpu,core", "memory,byte")
)
