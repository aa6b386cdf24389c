// Who sends how much over the network: counters of iptables rules by team and
// namespace where there are such, and cAdvisor's by namespace. Graphs read records;
// what reads every node or pod asks for one team or namespace, or for now.
local g = import '../lib/grafana.libsonnet';

function(c)
  local n = (import '../lib/records.libsonnet')(c);
  local team = c.trafficTeam, namespace = c.trafficNamespace, direction = c.trafficDirection;
  g.dashboard(
    'promguard / Network',
    'promguard-network',
    'Traffic by team, namespace and direction. docs/grafana.md says how iptables rules get these labels.',
    [
      g.row('Counted by iptables rules', [
        g.timeseries('By team', 'The 20 teams with the most traffic of the direction that is chosen: what is stacked is their sum, not that of all.', 'Bps', [g.query('topk(20, sum by (%s) (%s{%s="$direction"}))' % [team, n.traffic, direction], '{{%s}}' % team)], stacked=true),
        g.timeseries('By namespace', 'The 20 namespaces with the most traffic of the direction that is chosen.', 'Bps', [g.query('topk(20, sum by (%s) (%s{%s="$direction"}))' % [namespace, n.traffic, direction], '{{%s}}' % namespace)], stacked=true),
        g.timeseries('By direction', 'Of all teams. What leaves the cluster is mostly what is paid for.', 'Bps', [g.query('sum by (%s) (%s)' % [direction, n.traffic], '{{%s}}' % direction)], stacked=true),
        // A record is there once a minute.
        g.table('Bytes of the last day', 'By team and namespace, of the direction that is chosen.', 'bytes', 'Traffic', [[team, 'Team'], [namespace, 'Namespace']], g.query('topk(50, sum by (%s, %s) (sum_over_time(%s{%s="$direction"}[1d]) * 60))' % [team, namespace, n.traffic, direction])),
      ]),
      g.row('By node', [
        g.timeseries('Nodes with the most traffic of $team', 'Of the team and the direction that are chosen.', 'Bps', [g.query('topk(10, sum by (instance) (rate(%s{%s="$direction", %s="$team", %s}[$__rate_interval])))' % [c.traffic, direction, team, c.inCluster], '{{instance}}')]),
        g.table('Nodes with the most traffic now', 'Of all teams, in the last 5 minutes.', 'Bps', 'Traffic', [['instance', 'Node']], g.query('topk(20, sum by (instance) (rate(%s{%s="$direction", %s}[5m])))' % [c.traffic, direction, c.inCluster])),
      ]),
      g.row('Of all pods (cAdvisor)', [
        g.timeseries('Received by namespace', 'Without pods on the network of their host: they have its counters.', 'Bps', [g.query('topk(20, %s)' % n.received, '{{namespace}}')], stacked=true),
        g.timeseries('Sent by namespace', 'Without pods on the network of their host.', 'Bps', [g.query('topk(20, %s)' % n.sent, '{{namespace}}')], stacked=true),
        g.timeseries('Packets dropped by namespace', 'Of those that came in: pods that read too slowly, or a node whose network is full.', 'pps', [g.query('topk(20, %s > 0)' % n.dropped, '{{namespace}}')]),
        g.table('Pods that send the most now', 'Of the namespace that is chosen. A pod on the network of its host shows what the node sends.', 'Bps', 'Traffic', [['pod', 'Pod']], g.query('topk(20, sum by (pod) (rate(container_network_transmit_bytes_total{%s, namespace="$namespace"}[5m])))' % c.kubelet)),
      ]),
    ],
    [
      g.choice('direction', direction, n.traffic) + { current::: { text: 'internet-out', value: 'internet-out' } },
      g.choice('team', team, n.traffic),
      g.choice('namespace', 'namespace', n.sent),
    ]
  )
