// The API servers: what they refuse, what fails, what lists and watches cost them.
local g = import '../lib/grafana.libsonnet';

function(c) local s = c.apiserver; g.dashboard(
  'promguard / API servers',
  'promguard-apiserver',
  'Requests refused and failed, memory, lists and watches of the API servers. At thousands of nodes, 429 and 5xx are the first signs of one component asking for too much.',
  [
    g.row('Refused and failed', [
      g.timeseries('429 by verb and resource', 'Refused because too many were under way.', 'reqps', [g.query('topk(20, sum by (verb, resource) (rate(apiserver_request_total{%s, code="429"}[$__rate_interval])) > 0)' % s, '{{verb}} {{resource}}')]),
      g.timeseries('5xx by verb and resource', '', 'reqps', [g.query('topk(20, sum by (verb, resource, code) (rate(apiserver_request_total{%s, code=~"5.."}[$__rate_interval])) > 0)' % s, '{{code}} {{verb}} {{resource}}')]),
      g.timeseries('Rejected by priority level', 'By API priority and fairness.', 'reqps', [g.query('sum by (priority_level, reason) (rate(apiserver_flowcontrol_rejected_requests_total{%s}[$__rate_interval])) > 0' % s, '{{priority_level}}: {{reason}}')]),
    ]),
    g.row('Load', [
      g.timeseries('Requests by verb', '', 'reqps', [g.query('sum by (verb) (rate(apiserver_request_total{%s}[$__rate_interval]))' % s, '{{verb}}')], stacked=true),
      g.timeseries('In flight', 'By kind, short requests only.', 'short', [g.query('sum by (instance, request_kind) (apiserver_current_inflight_requests{%s, instance=~"$instance"})' % s, '{{instance}} {{request_kind}}')]),
      g.timeseries('Waiting by priority level', '', 'short', [g.query('sum by (priority_level) (apiserver_flowcontrol_current_inqueue_requests{%s}) > 0' % s, '{{priority_level}}')], stacked=true),
      g.timeseries('Slow requests (p99)', 'By verb; watches and the like are not in it.', 's', [g.query('histogram_quantile(0.99, sum by (verb, le) (rate(apiserver_request_sli_duration_seconds_bucket{%s}[$__rate_interval])))' % s, '{{verb}}')]),
    ]),
    g.row('Memory', [
      g.timeseries('Resident memory', 'It grows with the number of objects, and by leaps with lists.', 'bytes', [g.query('process_resident_memory_bytes{%s, instance=~"$instance"}' % s, '{{instance}}')]),
      g.timeseries('Goroutines', 'About one or two for each watch.', 'short', [g.query('go_goroutines{%s, instance=~"$instance"}' % s, '{{instance}}')]),
      g.timeseries('CPU', '', 'short', [g.query('rate(process_cpu_seconds_total{%s, instance=~"$instance"}[$__rate_interval])' % s, '{{instance}}')]),
    ]),
    g.row('Watches', [
      g.timeseries('Open watches', 'By resource. Endpoints and nodes are what grows with the cluster.', 'short', [g.query('topk(20, sum by (resource) (apiserver_longrunning_requests{%s, verb="WATCH"}))' % s, '{{resource}}')]),
      g.timeseries('Events sent', 'To all watches together, by kind.', 'short', [g.query('topk(20, sum by (kind) (rate(apiserver_watch_events_sizes_count{%s}[$__rate_interval])))' % s, '{{kind}}')]),
      g.timeseries('Bytes sent', 'To all watches together, by kind.', 'Bps', [g.query('topk(20, sum by (kind) (rate(apiserver_watch_events_sizes_sum{%s}[$__rate_interval])))' % s, '{{kind}}')]),
    ]),
    g.row('Lists', [
      g.timeseries('Lists by resource', '', 'reqps', [g.query('topk(20, sum by (resource) (rate(apiserver_request_total{%s, verb="LIST"}[$__rate_interval])))' % s, '{{resource}}')]),
      g.timeseries('Bytes of lists by resource', 'Answers to lists, before compression.', 'Bps', [g.query('topk(20, sum by (resource) (rate(apiserver_response_sizes_sum{%s, verb="LIST"}[$__rate_interval])))' % s, '{{resource}}')]),
      g.timeseries('Lists from etcd', 'These pass the cache by.', 'reqps', [g.query('topk(20, sum by (resource, type) (rate(etcd_request_duration_seconds_count{%s, operation="list"}[$__rate_interval])))' % s, '{{resource}}{{type}}')]),
      g.timeseries('Objects stored', 'The largest resources. The metric has another name since Kubernetes 1.34.', 'short', [g.query('topk(10, max by (group, resource) (apiserver_resource_objects{%s} or apiserver_storage_objects{%s}))' % [s, s], '{{resource}}')]),
    ]),
  ],
  [g.variable('instance', 'instance', 'apiserver_request_total{%s}' % s)]
)
