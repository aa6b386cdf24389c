// Names of the recorded series, for who records and who reads them.
function(c)
  local of(metric) = std.strReplace(metric, '_total', '');
  {
    received: 'namespace:container_network_receive_bytes:rate5m',
    sent: 'namespace:container_network_transmit_bytes:rate5m',
    dropped: 'namespace:container_network_receive_packets_dropped:rate5m',
    traffic: '%s_%s_%s:%s:rate5m' % [c.trafficTeam, c.trafficNamespace, c.trafficDirection, of(c.traffic)],

    utilization: 'cluster:DCGM_FI_DEV_GPU_UTIL:quantile',
    power: 'cluster:DCGM_FI_DEV_POWER_USAGE:sum',
    idle: 'namespace:DCGM_FI_DEV_GPU_UTIL:idle15m',
    doubleBit: 'gpu:DCGM_FI_DEV_ECC_DBE_VOL_TOTAL:new10m',
    singleBit: 'gpu:DCGM_FI_DEV_ECC_SBE_VOL_TOTAL:new10m',
    xids: 'gpu_xid:DCGM_XID_ERRORS:max1h',

    nodes: 'kubelet_version:kube_node_info:count',
    joined: 'cluster:kube_node_created:count10m',
    left: 'cluster:kube_node_info:left10m',
    conditions: 'condition_status:kube_node_status_condition:sum',
    unscraped: 'exporter:up:missing',
    teamNodes: 'key_value:kube_node_spec_taint:usable',
    taints: 'key_effect:kube_node_spec_taint:sum',

    unschedulable: 'namespace:kube_pod_status_unschedulable:sum',
    gangWaiting: 'namespace_owner:gang_pods_waiting:sum',
    gangRunning: 'namespace_owner:gang_pods_running:sum',
    gangRestarts: 'namespace_owner:gang_restarts:max1h',
    gangInPart: 'namespace_owner:gang_pods_waiting:in_part',

    requests: 'verb_resource_subresource_code:apiserver_request:rate5m',
    slowVerbs: 'verb:apiserver_request_sli_duration_seconds:p99',
  }
