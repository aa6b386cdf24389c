// Nodes that come and go. Hundreds at once load the API servers, the network and
// whatever runs on every node.
local g = import '../lib/grafana.libsonnet';

function(c) local s = c.ksm; g.dashboard(
  'promguard / Nodes',
  'promguard-nodes',
  'Nodes that joined and left, and those that cannot be used.',
  [
    g.row('Now', [
      g.stat('Nodes', '', 'short', [g.query('count(kube_node_info{%s})' % s)]),
      g.stat('Ready', '', 'short', [g.query('sum(kube_node_status_condition{%s, condition="Ready", status="true"})' % s)]),
      g.stat('Not ready', '', 'short', [g.query('sum(kube_node_status_condition{%s, condition="Ready", status=~"false|unknown"})' % s)], [[null, 'green'], [1, 'orange']]),
      g.stat('Cordoned', '', 'short', [g.query('sum(kube_node_spec_unschedulable{%s})' % s)]),
    ]),
    g.row('Bursts', [
      g.timeseries('Joined', 'Nodes that were created in the 10 minutes before.', 'short', [g.query('count(time() - kube_node_created{%s} < 600) or vector(0)' % s, 'joined')]),
      g.timeseries('Left', 'Nodes that were there 10 minutes before and are not any more, also because their kube-state-metrics is not scraped.', 'short', [g.query('count(kube_node_info{%s} offset 10m unless on (node) kube_node_info{%s}) or vector(0)' % [s, s], 'left')]),
      g.timeseries('Nodes', '', 'short', [g.query('count(kube_node_info{%s})' % s, 'nodes')]),
    ]),
    g.row('Out of work', [
      g.timeseries('By condition', '', 'short', [
        g.query('sum by (condition) (kube_node_status_condition{%s, condition!="Ready", status="true"}) > 0' % s, '{{condition}}'),
        g.query('sum(kube_node_status_condition{%s, condition="Ready", status=~"false|unknown"})' % s, 'NotReady'),
      ]),
      g.timeseries('By taint', '', 'short', [g.query('topk(20, sum by (key, effect) (kube_node_spec_taint{%s}))' % s, '{{key}}: {{effect}}')]),
      g.timeseries('By version of the kubelet', '', 'short', [g.query('count by (kubelet_version) (kube_node_info{%s})' % s, '{{kubelet_version}}')], stacked=true),
    ]),
  ]
)
