// The API servers: what they refuse, what fails, what lists and watches cost them.
local g = import '../lib/grafana.libsonnet';

function(c) local s = c.apiserver, n = (import '../lib/records.libsonnet')(c); g.dashboard(
  'promguard / API servers',
  'promguard-apiserver',
  'Requests refused and failed, memory, lists and watches of the API servers. At thousands of nodes, 429 and 5xx are the first signs of one component asking for too much.',
  [
    g.row('Now', [
      g.stat('Servers up', '', 'short', [g.query('sum(up{%s})' % s)], [[null, 'red'], [1, 'green']]),
      g.stat('Starts', 'Of API servers in the last hour; a rollout is one of each.', 'short', [g.query('sum(changes(process_start_time_seconds{%s}[1h]))' % s)], [[null, 'green'], [1, 'orange']]),
      g.stat('Refused', '429 per second, without evictions that a disruption budget refuses.', 'reqps', [g.query(g.measured('sum(%s{code="429", subresource!="eviction"})' % n.requests, n.requests))], [[null, 'green'], [1, 'orange']]),
      g.stat('Failed', 'Share of all requests that end with 5xx.', 'percentunit', [g.query('(%s) / sum(%s)' % [g.measured('sum(%s{code=~"5.."})' % n.requests, n.requests), n.requests])], [[null, 'green'], [0.01, 'orange'], [0.03, 'red']]),
    ]),
    g.row('Refused and failed', [
      g.timeseries('429 by verb and resource', 'Refused because too many were under way; without evictions.', 'reqps', [g.query('topk(20, sum by (verb, resource) (%s{code="429", subresource!="eviction"}) > 0)' % n.requests, '{{verb}} {{resource}}')]),
      g.timeseries('5xx by verb and resource', '', 'reqps', [g.query('topk(20, sum by (verb, resource, code) (%s{code=~"5.."}) > 0)' % n.requests, '{{code}} {{verb}} {{resource}}')]),
      g.timeseries('Rejected by flow', 'By API priority and fairness: the flow schema says whose requests they are.', 'reqps', [g.query('topk(20, sum by (flow_schema, priority_level, reason) (rate(apiserver_flowcontrol_rejected_requests_total{%s}[$__rate_interval])) > 0)' % s, '{{flow_schema}} ({{priority_level}}): {{reason}}')]),
      g.timeseries('Evictions refused', '429 because of disruption budgets: drains that wait.', 'reqps', [g.query('sum(%s{code="429", subresource="eviction"})' % n.requests, 'evictions')]),
    ]),
    g.row('Load', [
      g.timeseries('Requests by verb', '', 'reqps', [g.query('sum by (verb) (%s)' % n.requests, '{{verb}}')], stacked=true),
      g.timeseries('In flight', 'By kind, short requests only.', 'short', [g.query('sum by (instance, request_kind) (apiserver_current_inflight_requests{%s, instance=~"$instance"})' % s, '{{instance}} {{request_kind}}')]),
      g.timeseries('Waiting by flow', '', 'short', [g.query('topk(20, sum by (flow_schema, priority_level) (apiserver_flowcontrol_current_inqueue_requests{%s}) > 0)' % s, '{{flow_schema}} ({{priority_level}})')], stacked=true),
      g.timeseries('Slow requests (p99)', 'By verb, without watches and CONNECT. With the drop rules its steps are 0.05, 0.2, 1, 5, 10, 30 and 60 s.', 's', [g.query(n.slowVerbs, '{{verb}}')]),
      g.timeseries('Time in lists', 'Seconds that lists took, for each second: how many are under way on average.', 'short', [g.query('topk(10, sum by (resource) (rate(apiserver_request_sli_duration_seconds_sum{%s, verb="LIST"}[$__rate_interval])))' % s, '{{resource}}')]),
    ]),
    g.row('Memory', [
      g.timeseries('Resident memory', 'It grows with the number of objects, and by leaps with lists.', 'bytes', [g.query('process_resident_memory_bytes{%s, instance=~"$instance"}' % s, '{{instance}}')]),
      g.timeseries('Goroutines', 'About one or two for each watch.', 'short', [g.query('go_goroutines{%s, instance=~"$instance"}' % s, '{{instance}}')]),
      g.timeseries('CPU', '', 'short', [g.query('rate(process_cpu_seconds_total{%s, instance=~"$instance"}[$__rate_interval])' % s, '{{instance}}')]),
    ]),
    g.row('Watches', [
      g.timeseries('Open watches', 'By resource. Endpoints and nodes are what grows with the cluster.', 'short', [g.query('topk(20, sum by (resource) (apiserver_longrunning_requests{%s, verb="WATCH"}))' % s, '{{resource}}')]),
      g.timeseries('Events sent', 'To all watches together, by resource (by kind until Kubernetes 1.34).', 'short', [g.query('topk(20, sum by (kind, resource) (rate(apiserver_watch_events_sizes_count{%s}[$__rate_interval])))' % s, '{{kind}}{{resource}}')]),
      g.timeseries('Bytes sent', 'To all watches together, by resource (by kind until Kubernetes 1.34).', 'Bps', [g.query('topk(20, sum by (kind, resource) (rate(apiserver_watch_events_sizes_sum{%s}[$__rate_interval])))' % s, '{{kind}}{{resource}}')]),
    ]),
    g.row('Lists', [
      g.timeseries('Lists by resource', '', 'reqps', [g.query('topk(20, sum by (resource) (%s{verb="LIST"}))' % n.requests, '{{resource}}')]),
      g.timeseries('Bytes of lists by resource', 'Answers to lists as they are sent, compressed: what the server has encoded may be ten times as much.', 'Bps', [g.query('topk(20, sum by (resource) (rate(apiserver_response_sizes_sum{%s, verb="LIST"}[$__rate_interval])))' % s, '{{resource}}')]),
      g.timeseries('Lists from etcd', 'These pass the cache by.', 'reqps', [g.query('topk(20, sum by (resource, type) (rate(etcd_request_duration_seconds_count{%s, operation="list"}[$__rate_interval])))' % s, '{{resource}}{{type}}')]),
      g.timeseries('Objects stored', "The largest resources. kube-prometheus's own rules drop the metric that Kubernetes has until 1.33: docs/grafana.md.", 'short', [g.query('topk(10, max by (group, resource) (apiserver_resource_objects{%s} or apiserver_storage_objects{%s}))' % [s, s], '{{resource}}')]),
    ]),
  ],
  [g.variable('instance', 'instance', 'apiserver_request_total{%s}' % s)]
)
