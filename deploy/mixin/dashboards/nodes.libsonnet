// Nodes that come and go. Hundreds at once load the API servers, the network and
// whatever runs on every node.
local g = import '../lib/grafana.libsonnet';

function(c) local s = c.ksm, n = (import '../lib/records.libsonnet')(c), runbook(alert) = g.runbook(c, alert); g.dashboard(
  'promguard / Nodes',
  'promguard-nodes',
  'Nodes that joined and left, and those that cannot be used.',
  [
    g.row('Now', [
      g.stat('Nodes', 'That the API servers know.', 'locale', [g.query('sum(%s)' % n.nodes)]),
      g.stat('Ready', 'Whose kubelet says so.', 'locale', [g.query('sum(%s{condition="Ready", status="true"})' % n.conditions)]),
      g.stat('Not ready', 'A few always are, among thousands. Which: the table below.', 'locale', [g.query('sum(%s{condition="Ready", status=~"false|unknown"})' % n.conditions)], [[null, 'green'], [1, 'orange']]) + runbook('NodesNotReady'),
      g.stat('Cordoned', 'Somebody, or something, has put them out of use.', 'locale', [g.query('sum(max by (node) (kube_node_spec_unschedulable{%s}))' % s)]),
    ]),
    g.row('Bursts', [
      g.timeseries('Joined', 'Nodes that were created in the 10 minutes before.', 'locale', [g.query(n.joined, 'joined')]) + runbook('NodesJoinedInBurst'),
      g.timeseries('Left', 'Nodes that were there 10 minutes before and are not any more, also because their kube-state-metrics is not scraped.', 'locale', [g.query(n.left, 'left')]) + runbook('NodesLeftInBurst'),
      g.timeseries('Nodes', 'That the API servers know.', 'locale', [g.query('sum(%s)' % n.nodes, 'nodes')]),
      g.timeseries('By team', 'Nodes that a taint gives to a team, and that are ready and not cordoned.', 'locale', [g.query('topk(20, %s)' % n.teamNodes, '{{key}}={{value}}')]) + runbook('TeamHasFewerNodes'),
    ]),
    g.row('Out of work', [
      g.timeseries('By condition', 'Nodes that have a condition which they should not have. NotReady is what the scheduler avoids; the others say why.', 'locale', [
        g.query('%s{condition!="Ready", status="true"} > 0' % n.conditions, '{{condition}}'),
        g.query('sum(%s{condition="Ready", status=~"false|unknown"})' % n.conditions, 'NotReady'),
      ]),
      g.table('Not ready now', 'Whether its kubelet is ready: false is what it says itself, unknown that nothing is heard of it: the node, or its network, is gone.', 'locale', null, [['node', 'Node'], ['status', 'Ready']], g.query('topk(50, max by (node, status) (kube_node_status_condition{%s, condition="Ready", status=~"false|unknown"}) > 0)' % s)),
      g.timeseries('By taint', 'Nodes that only those use who tolerate it. One that is to go when a node is found to be good, and stays, is an alert.', 'locale', [g.query('topk(20, %s)' % n.taints, '{{key}}: {{effect}}')]) + runbook('NodesStuckInTaint'),
      g.timeseries('By version of the kubelet', 'How far an upgrade is.', 'locale', [g.query(n.nodes, '{{kubelet_version}}')], stacked=true),
    ]),
  ]
)
