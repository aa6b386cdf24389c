// Recording rules: what dashboards and alerts would otherwise read of every pod, node
// and GPU at every step of a graph. At 7,500 nodes a server refuses that. Names are
// level:metric:operations.
local gangs = import 'lib/gangs.libsonnet';
local names = import 'lib/records.libsonnet';

function(c)
  local record(name, expr, labels={}) = { record: name, expr: expr, [if labels != {} then 'labels']: labels };
  local group(name, rules) = { name: 'promguard-records-' + name, interval: '1m', rules: rules };
  local s = c.ksm, d = c.dcgm, a = c.apiserver, n = names(c);
  local gpu = 'Hostname, gpu, UUID';

  // A pod on the host's network has the counters of its node, as often as there are
  // such pods. Without kube-state-metrics nobody knows which those are.
  local ofPods(metric) = |||
    sum by (namespace) (
      rate(%(metric)s{%(kubelet)s, %(interfaces)s, namespace!=""}[5m])
      unless on (namespace, pod) kube_pod_info{%(ksm)s, host_network="true"}
    )
    and on () count(kube_pod_info{%(ksm)s, host_network="true"})
  ||| % { metric: metric, kubelet: c.kubelet, interfaces: c.podInterfaces, ksm: s };

  // Errors of the last ten minutes, of GPUs that had some. No increase(): an error
  // ends the pod that had the GPU, and so the series with its labels, in the same
  // scrape in which the count goes up.
  local newErrors(metric) = |||
    max by (%(gpu)s) (%(metric)s{%(d)s})
      - min by (%(gpu)s) (min_over_time(%(metric)s{%(d)s}[10m]))
      > 0
  ||| % { gpu: gpu, metric: metric, d: d };

  // The pod that has a GPU is in pod, or in exported_pod where the exporter's own
  // labels were put before it.
  local taken(range='', offset='') =
    local own = 'DCGM_FI_DEV_GPU_UTIL{%s, exported_pod="", pod!~"|.*dcgm-exporter.*"}%s%s' % [d, range, offset];
    local exported = 'DCGM_FI_DEV_GPU_UTIL{%s, exported_pod!=""}%s%s' % [d, range, offset];
    local over(x) = if range == '' then x else 'max_over_time(%s)' % x;
    'max by (%s, namespace, pod) (%s or label_replace(label_replace(%s, "namespace", "$1", "exported_namespace", "(.+)"), "pod", "$1", "exported_pod", "(.+)"))' % [gpu, over(own), over(exported)];

  [
    group('network', [
      record(n.received, ofPods('container_network_receive_bytes_total')),
      record(n.sent, ofPods('container_network_transmit_bytes_total')),
      record(n.dropped, ofPods('container_network_receive_packets_dropped_total')),
      record(n.traffic, 'sum by (%s, %s, %s) (rate(%s{%s!=""}[5m]))' % [c.trafficTeam, c.trafficNamespace, c.trafficDirection, c.traffic, c.trafficDirection]),
    ]),
    group('gpus', [
      record(n.utilization, 'quantile(%s, max by (%s) (DCGM_FI_DEV_GPU_UTIL{%s}))' % [q, gpu, d], { quantile: q })
      for q in ['0.1', '0.5', '0.9']
    ] + [
      record(n.power, 'sum(max by (%s) (DCGM_FI_DEV_POWER_USAGE{%s}))' % [gpu, d]),
      record(n.idle, 'count by (namespace) (%s == 0 and %s)' % [taken('[15m]'), taken('', ' offset 15m')]),
      record(n.doubleBit, newErrors('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL')),
      record(n.singleBit, newErrors('DCGM_FI_DEV_ECC_SBE_VOL_TOTAL')),
      // The gauge has the last Xid only, mostly one that follows from the one that
      // matters; the count has all of some minutes, where it is exported.
      record(n.xids, |||
        max by (%(gpu)s, xid) (max_over_time(DCGM_EXP_XID_ERRORS_COUNT{%(d)s}[1h])) > 0
        or count_values by (%(gpu)s) ("xid", DCGM_FI_DEV_XID_ERRORS{%(d)s} > 0)
      ||| % { gpu: gpu, d: d }),
    ]),
    group('nodes', [
      record(n.nodes, 'count by (kubelet_version) (max by (node, kubelet_version) (kube_node_info{%s}))' % s),
      record(n.joined, 'count(max by (node) (kube_node_created{%(s)s}) > time() - 600) or 0 * count(kube_node_created{%(s)s})' % { s: s }),
      record(n.left, 'count(max by (node) (kube_node_info{%(s)s} offset 10m) unless on (node) kube_node_info{%(s)s}) or 0 * count(kube_node_info{%(s)s})' % { s: s }),
      record(n.conditions, 'sum by (condition, status) (max by (node, condition, status) (kube_node_status_condition{%s}))' % s),
      record(n.taints, 'sum by (key, effect) (max by (node, key, effect) (kube_node_spec_taint{%s}))' % s),
      // Numbers alone: what a target's labels say of its node is configured. What is
      // scraped nowhere is not meant to be.
      record(n.unscraped, |||
        label_replace(
          sum(max by (node) (kube_node_status_condition{%(s)s, condition="Ready", status="true"})) - sum(max by (instance) (up{%(kubelet)s})),
          "exporter", "kubelet", "", ""
        )
        or
        sum by (exporter) (label_replace(max by (namespace, daemonset) (kube_daemonset_status_number_ready{%(s)s, daemonset=~".*%(exporters)s"}), "exporter", "$1", "daemonset", ".*?(%(exporters)s)"))
          - sum by (exporter) (label_replace(max by (job, instance) (up{job=~".*%(exporters)s"}), "exporter", "$1", "job", ".*?(%(exporters)s)"))
      ||| % { s: s, kubelet: c.kubelet, exporters: c.exporters }),
      // Values of other taints may be as many as there are nodes: times, for example.
      record(n.teamNodes, |||
        count by (key, value) (
          max by (node, key, value) (kube_node_spec_taint{%(s)s, %(team)s})
          unless on (node) (
            max by (node) (kube_node_spec_unschedulable{%(s)s}) == 1
            or max by (node) (kube_node_status_condition{%(s)s, condition="Ready", status="true"}) == 0
          )
        )
      ||| % { s: s, team: c.team }),
    ]),
    group('scheduling', [
      record(n.unschedulable, 'sum by (namespace) (max by (namespace, pod) (kube_pod_status_unschedulable{%s}))' % s),
      record(n.gangWaiting, gangs.waiting(c)),
      record(n.gangRunning, gangs.running(c)),
      record(n.gangRestarts, gangs.restarts(c, n.gangRunning)),
      record(n.gangInPart, gangs.inPart(c, n.gangWaiting, n.gangRunning)),
    ]),
    group('apiservers', [
      record(n.requests, 'sum by (verb, resource, subresource, code) (rate(apiserver_request_total{%s}[5m]))' % a),
      record(n.slowVerbs, 'histogram_quantile(0.99, sum by (verb, le) (rate(apiserver_request_sli_duration_seconds_bucket{%s, verb!="CONNECT"}[5m])))' % a),
    ]),
  ]
