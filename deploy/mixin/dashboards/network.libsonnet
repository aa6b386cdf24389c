// Who sends how much over the network: counters of iptables rules by team and
// namespace where there are such, and cAdvisor's by namespace.
local g = import '../lib/grafana.libsonnet';

function(c)
  local rate(selector) = 'rate(%s{%s="$direction"%s}[$__rate_interval])' % [c.traffic, c.trafficDirection, selector];
  g.dashboard(
    'promguard / Network',
    'promguard-network',
    'Traffic by team, namespace and direction. docs/grafana.md says how iptables rules get these labels.',
    [
      g.row('Counted by iptables rules', [
        g.timeseries('By team', '', 'Bps', [g.query('topk(20, sum by (%s) (%s))' % [c.trafficTeam, rate('')], '{{%s}}' % c.trafficTeam)], stacked=true),
        g.timeseries('By namespace', '', 'Bps', [g.query('topk(20, sum by (%s) (%s))' % [c.trafficNamespace, rate('')], '{{%s}}' % c.trafficNamespace)], stacked=true),
        g.table('Bytes of the last day', 'By team and namespace.', 'bytes', g.query('topk(50, sum by (%s, %s) (increase(%s{%s="$direction"}[1d])))' % [c.trafficTeam, c.trafficNamespace, c.traffic, c.trafficDirection])),
      ]),
      g.row('By node', [
        g.timeseries('Nodes with the most traffic', '', 'Bps', [g.query('topk(10, sum by (instance) (%s))' % rate(''), '{{instance}}')]),
        g.timeseries('By direction', '', 'Bps', [g.query('sum by (%s) (rate(%s{%s=~".+"}[$__rate_interval]))' % [c.trafficDirection, c.traffic, c.trafficDirection], '{{%s}}' % c.trafficDirection)], stacked=true),
      ]),
      g.row('Of all pods (cAdvisor)', [
        g.timeseries('Received by namespace', '', 'Bps', [g.query('topk(20, sum by (namespace) (rate(container_network_receive_bytes_total{%s, namespace!=""}[$__rate_interval])))' % c.kubelet, '{{namespace}}')], stacked=true),
        g.timeseries('Sent by namespace', '', 'Bps', [g.query('topk(20, sum by (namespace) (rate(container_network_transmit_bytes_total{%s, namespace!=""}[$__rate_interval])))' % c.kubelet, '{{namespace}}')], stacked=true),
        g.timeseries('Packets dropped by namespace', '', 'pps', [g.query('topk(20, sum by (namespace) (rate(container_network_receive_packets_dropped_total{%s, namespace!=""}[$__rate_interval])) > 0)' % c.kubelet, '{{namespace}}')]),
      ]),
    ],
    [g.variable('direction', c.trafficDirection, c.traffic, multi=false) + { includeAll: false, allValue: null, current: { text: 'internet-out', value: 'internet-out' } }]
  )
