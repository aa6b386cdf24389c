// Nodes that come and go. Hundreds at once load the API servers, the network and
// whatever runs on every node.
local g = import '../lib/grafana.libsonnet';

function(c) local s = c.ksm, n = (import '../lib/records.libsonnet')(c); g.dashboard(
  'promguard / Nodes',
  'promguard-nodes',
  'Nodes that joined and left, and those that cannot be used.',
  [
    g.row('Now', [
      g.stat('Nodes', '', 'locale', [g.query('sum(%s)' % n.nodes)]),
      g.stat('Ready', '', 'locale', [g.query('sum(%s{condition="Ready", status="true"})' % n.conditions)]),
      g.stat('Not ready', '', 'locale', [g.query('sum(%s{condition="Ready", status=~"false|unknown"})' % n.conditions)], [[null, 'green'], [1, 'orange']]),
      g.stat('Cordoned', '', 'locale', [g.query('sum(max by (node) (kube_node_spec_unschedulable{%s}))' % s)]),
    ]),
    g.row('Bursts', [
      g.timeseries('Joined', 'Nodes that were created in the 10 minutes before.', 'locale', [g.query(n.joined, 'joined')]),
      g.timeseries('Left', 'Nodes that were there 10 minutes before and are not any more, also because their kube-state-metrics is not scraped.', 'locale', [g.query(n.left, 'left')]),
      g.timeseries('Nodes', '', 'locale', [g.query('sum(%s)' % n.nodes, 'nodes')]),
      g.timeseries('By team', 'Nodes that a taint gives to a team, and that are ready and not cordoned.', 'locale', [g.query('topk(20, %s)' % n.teamNodes, '{{value}}')]),
    ]),
    g.row('Out of work', [
      g.timeseries('By condition', '', 'locale', [
        g.query('%s{condition!="Ready", status="true"} > 0' % n.conditions, '{{condition}}'),
        g.query('sum(%s{condition="Ready", status=~"false|unknown"})' % n.conditions, 'NotReady'),
      ]),
      g.table('Not ready now', 'Which, and for what reason the kubelet cannot say: false is what it says, unknown that it says nothing.', 'locale', g.query('topk(50, max by (node, status) (kube_node_status_condition{%s, condition="Ready", status=~"false|unknown"}) > 0)' % s)),
      g.timeseries('By taint', '', 'locale', [g.query('topk(20, %s)' % n.taints, '{{key}}: {{effect}}')]),
      g.timeseries('By version of the kubelet', '', 'locale', [g.query(n.nodes, '{{kubelet_version}}')], stacked=true),
    ]),
  ]
)
