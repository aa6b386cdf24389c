// The API servers: what they refuse, what fails, what lists and watches cost them.
local g = import '../lib/grafana.libsonnet';

function(c)
  local s = c.apiserver, n = (import '../lib/records.libsonnet')(c);
  local runbook(alert) = g.runbook(c, alert);
  // One that is dead is no target any more: as many as there were for most of the day.
  local usual = 'quantile_over_time(0.5, sum(up{%s})[1d:5m])' % s;
  local failed = 'sum by (verb) (%s{code=~"5..", verb!="CONNECT"})' % n.requests;
  g.dashboard(
    'promguard / API servers',
    'promguard-apiserver',
    'Requests refused and failed, memory, lists and watches of the API servers. At thousands of nodes, 429 and 5xx are the first signs of one component asking for too much.',
    [
      g.row('Now', [
        g.stat('Servers up', 'API servers that answer scrapes.', 'locale', [g.query('sum(up{%s})' % s)]),
        g.stat('Servers down', 'How many fewer answer than for most of the last day: the others have their clients.', 'locale', [g.query('clamp_min(ceil(%(usual)s - (sum(up{%(s)s}) or 0 * %(usual)s)), 0)' % { usual: usual, s: s })], [[null, 'green'], [1, 'red']]) + runbook('KubeAPIServerDown'),
        g.stat('Starts', 'Of API servers in the last hour; a rollout is one of each, more is a crash. Resident memory shows whether that is why.', 'locale', [g.query('sum(changes(process_start_time_seconds{%s}[1h]))' % s)], [[null, 'green'], [1, 'orange']]) + runbook('KubeAPIServersRestart'),
        g.stat('Refused', '429 per second, without evictions that a disruption budget refuses. Rejected by flow says whose requests they are.', 'reqps', [g.query(g.measured('sum(%s{code="429", subresource!="eviction"})' % n.requests, n.requests))], [[null, 'green'], [1, 'orange']]) + runbook('KubeAPIServerRefuses'),
        // By verb: renewals of leases by every kubelet would hide that all lists fail.
        g.stat('Failed', 'Share of its requests that end with 5xx, of the verb that fails most, if they are more than one per second.', 'percentunit', [g.query(g.measured('max(%(failed)s / sum by (verb) (%(requests)s) and %(failed)s > 1)' % { failed: failed, requests: n.requests }, n.requests))], [[null, 'green'], [0.01, 'orange'], [0.03, 'red']]) + runbook('KubeAPIServerFails'),
      ]),
      g.row('Refused and failed', [
        g.timeseries('429 by verb and resource', 'Refused because too many were under way; without evictions.', 'reqps', [g.query('topk(20, sum by (verb, resource) (%s{code="429", subresource!="eviction"}) > 0)' % n.requests, '{{verb}} {{resource}}')]) + runbook('KubeAPIServerRefuses'),
        g.timeseries('5xx by verb and resource', '504 are requests that took too long, mostly in etcd; 500 of one resource alone are mostly of its webhook.', 'reqps', [g.query('topk(20, sum by (verb, resource, code) (%s{code=~"5.."}) > 0)' % n.requests, '{{code}} {{verb}} {{resource}}')]) + runbook('KubeAPIServerFails'),
        g.timeseries('Rejected by flow', 'By API priority and fairness: the flow schema says whose requests they are.', 'reqps', [g.query('topk(20, sum by (flow_schema, priority_level, reason) (rate(apiserver_flowcontrol_rejected_requests_total{%s}[$__rate_interval])) > 0)' % s, '{{flow_schema}} ({{priority_level}}): {{reason}}')]),
        g.timeseries('Evictions refused', '429 because of disruption budgets: drains that wait. They harm nothing but the drain.', 'reqps', [g.query('sum(%s{code="429", subresource="eviction"})' % n.requests, 'evictions')]),
      ]),
      g.row('Load', [
        g.timeseries('Requests by verb', 'Of all API servers. A verb that leaps is one client that asks too much: the panels of lists and watches say for what.', 'reqps', [g.query('sum by (verb) (%s)' % n.requests, '{{verb}}')], stacked=true),
        g.timeseries('In flight', 'Of each server, by kind, short requests only. If one has most, its clients do not spread: restart those.', 'locale', [g.query('sum by (instance, request_kind) (apiserver_current_inflight_requests{%s, instance=~"$instance"})' % s, '{{instance}} {{request_kind}}')]),
        g.timeseries('Waiting by flow', 'Requests in the queues of all servers: before anything is rejected, it waits here.', 'locale', [g.query('topk(20, sum by (flow_schema, priority_level) (apiserver_flowcontrol_current_inqueue_requests{%s}) > 0)' % s, '{{flow_schema}} ({{priority_level}})')], stacked=true),
        g.timeseries('Slow requests (p99)', 'By verb, without watches and CONNECT. With the drop rules its steps are 0.05, 0.2, 1, 5, 10, 30 and 60 s.', 's', [g.query(n.slowVerbs, '{{verb}}')]),
        g.timeseries('Lists under way', 'How many are on average: seconds that lists took, for each second. Each holds its answer in memory.', 'short', [g.query('topk(10, sum by (resource) (rate(apiserver_request_sli_duration_seconds_sum{%s, verb="LIST"}[$__rate_interval])))' % s, '{{resource}}')]),
      ]),
      g.row('Memory', [
        g.timeseries('Resident memory', 'It grows with the number of objects, and by leaps with lists.', 'bytes', [g.query('process_resident_memory_bytes{%s, instance=~"$instance"}' % s, '{{instance}}')]) + runbook('KubeAPIServerMemoryLeaps'),
        g.timeseries('Goroutines', 'About one or two for each watch.', 'short', [g.query('go_goroutines{%s, instance=~"$instance"}' % s, '{{instance}}')]),
        g.timeseries('CPU', 'Processors that each server keeps busy.', 'short', [g.query('rate(process_cpu_seconds_total{%s, instance=~"$instance"}[$__rate_interval])' % s, '{{instance}}')]),
      ]),
      g.row('Watches', [
        g.timeseries('Open watches', 'By resource. Endpoints and nodes are what grows with the cluster.', 'short', [g.query('topk(20, sum by (resource) (apiserver_longrunning_requests{%s, verb="WATCH"}))' % s, '{{resource}}')]),
        g.timeseries('Events sent', 'To all watches together, by resource (by kind until Kubernetes 1.34).', 'eps', [g.query('topk(20, sum by (kind, resource) (rate(apiserver_watch_events_sizes_count{%s}[$__rate_interval])))' % s, '{{kind}}{{resource}}')]),
        g.timeseries('Bytes sent', 'To all watches together, by resource (by kind until Kubernetes 1.34).', 'Bps', [g.query('topk(20, sum by (kind, resource) (rate(apiserver_watch_events_sizes_sum{%s}[$__rate_interval])))' % s, '{{kind}}{{resource}}')]) + runbook('KubeAPIServerWatchTraffic'),
      ]),
      g.row('Lists', [
        g.timeseries('Lists by resource', 'Who asks for them is in the audit log only.', 'reqps', [g.query('topk(20, sum by (resource) (%s{verb="LIST"}))' % n.requests, '{{resource}}')]),
        g.timeseries('Bytes of lists by resource', 'Answers to lists as they are sent, compressed: what the server has encoded may be ten times as much.', 'Bps', [g.query('topk(20, sum by (resource) (rate(apiserver_response_sizes_sum{%s, verb="LIST"}[$__rate_interval])))' % s, '{{resource}}')]),
        g.timeseries('Lists from etcd', 'These pass the cache by.', 'reqps', [g.query('topk(20, sum by (resource, type) (rate(etcd_request_duration_seconds_count{%s, operation="list"}[$__rate_interval])))' % s, '{{resource}}{{type}}')]) + runbook('KubeAPIServerListsFromEtcd'),
        // Until 1.33 the group is a part of the resource.
        g.timeseries('Objects stored', "The largest resources. kube-prometheus's own rules drop the metric that Kubernetes has until 1.33: docs/grafana.md.", 'short', [g.query(|||
          topk(10, label_replace(
            label_join(
              max by (group, resource) (apiserver_resource_objects{%(s)s} or apiserver_storage_objects{%(s)s}),
              "object", ".", "resource", "group"
            ),
            "object", "$1", "object", "(.+)\\."
          ))
        ||| % { s: s }, '{{object}}')]),
      ]),
    ],
    [g.variable('instance', 'instance', 'apiserver_request_total{%s}' % s)]
  )
