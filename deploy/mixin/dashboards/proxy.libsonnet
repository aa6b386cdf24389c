// The proxy at a glance: is it there, what does it let through, how fast.
local g = import '../lib/grafana.libsonnet';

function(c)
  local s = c.proxy;
  local runbook(alert) = g.runbook(c, alert);
  // Of buckets, or of a native histogram where the server scrapes those instead.
  local quantile(q, class) = g.query(
    |||
      histogram_quantile(%(q)s, sum by (le) (rate(promguard_request_duration_seconds_bucket{%(s)s, class="%(class)s"}[$__rate_interval])))
      or histogram_quantile(%(q)s, sum(rate(promguard_request_duration_seconds{%(s)s, class="%(class)s"}[$__rate_interval])))
    ||| % { q: q, s: s, class: class },
    'p' + q
  );
  g.dashboard(
    'promguard / Proxy',
    'promguard-proxy',
    'Reads that pass promguard, how long they take and wait, and what is refused.',
    [
      g.row('Now', [
        g.stat('Pods that serve', 'Proxies whose metrics are scraped. With one, its end is the end of all dashboards.', 'locale', [g.query('sum(up{%s})' % s)], [[null, 'red'], [1, 'orange'], [2, 'green']]) + runbook('PromguardDown'),
        g.stat('Upstream server', 'Share of the proxies that get an answer from the upstream server. With none, Grafana shows nothing.', 'percentunit', [g.query('avg(promguard_upstream_up{%s})' % s)], [[null, 'red'], [1, 'green']]) + runbook('PromguardUpstreamUnreachable'),
        g.stat('Policy in force', 'No: a proxy could not load its policy and goes on with the old one.', 'bool_yes_no', [g.query('min(promguard_config_last_reload_successful{%s})' % s)], [[null, 'red'], [1, 'green']]) + runbook('PromguardPolicyNotLoaded'),
        g.stat('Policies in use', 'More than one while a new policy is rolled out; for longer, the same request is let through or refused by chance.', 'locale', [g.query('count(count_values("hash", promguard_config_hash{%s}))' % s)], [[null, 'green'], [2, 'orange']]) + runbook('PromguardPoliciesDiffer'),
        g.stat('Refused', 'Share of the requests of the last 15 minutes that a limit refused. The dashboard Refusals says which.', 'percentunit', [g.query(g.measured('sum(rate(promguard_refused_total{%(s)s}[15m])) / (sum(rate(promguard_requests_total{%(s)s}[15m])) > 0)' % { s: s }, 'promguard_requests_total{%s}' % s))], [[null, 'green'], [0.05, 'orange'], [0.2, 'red']]) + runbook('PromguardRefusesMuch'),
      ]),
      g.row('Requests', [
        g.timeseries('Requests by status', 'Answers by status code; 499 are clients that left.', 'reqps', [g.query('sum by (code) (rate(promguard_requests_total{%s}[$__rate_interval]))' % s, '{{code}}')], stacked=true),
        g.timeseries('Requests by class', 'What kind of endpoint is asked; bulk is federation and remote read.', 'reqps', [g.query('sum by (class) (rate(promguard_requests_total{%s}[$__rate_interval]))' % s, '{{class}}')], stacked=true),
        g.timeseries('In flight', 'Of all proxies, from the headers of a request to the last byte of its answer.', 'locale', [g.query('sum by (class) (promguard_requests_in_flight{%s})' % s, '{{class}}')], stacked=true),
      ]),
      g.row('Time', [
        g.timeseries('Queries', 'Quantiles of how long requests of class query take, the upstream server included.', 's', [
          quantile(q, 'query')
          for q in ['0.5', '0.9', '0.99']
        ]),
        g.timeseries('Metadata', 'The same for series, labels and label values.', 's', [
          quantile(q, 'metadata')
          for q in ['0.5', '0.9', '0.99']
        ]),
        g.timeseries('Wait for a permit (p99)', 'How long requests wait in the queue, by class of admission.', 's', [g.query('histogram_quantile(0.99, sum by (class, le) (rate(promguard_admission_wait_seconds_bucket{%s}[$__rate_interval])))' % s, '{{class}}')]),
      ]),
      g.row('Admission', [
        g.timeseries('Permits held', 'Of the proxy that has given most: the permits of the policy are those of one proxy.', 'locale', [g.query('max by (class) (promguard_admission_permits{%s})' % s, '{{class}}')]),
        g.timeseries('Waiting', 'Of the proxy where most wait, as the queue of the policy is that of one proxy. With a full one requests are shed.', 'locale', [g.query('max by (class) (promguard_admission_queued{%s})' % s, '{{class}}')]) + runbook('PromguardSaturated'),
        g.timeseries('Answers shared', 'Requests that got the answer of an identical one and cost the server nothing.', 'reqps', [
          g.query('sum(rate(promguard_collapsed_total{%s}[$__rate_interval]))' % s, 'shared'),
        ]),
      ]),
      g.row('Trouble', [
        g.timeseries('State of the upstream servers', 'How many proxies see a server in a state: reads go to one that is ready.', 'locale', [g.query('sum by (server, state) (promguard_upstream_state{%s}) > 0' % s, '{{state}}: {{server}}')], stacked=true) + runbook('PromguardServersDiffer'),
        g.timeseries('Errors of the upstream server', 'Requests that it did not answer in full, by reason: unreachable is the network or a server that is down, deadline one that is too slow.', 'reqps', [g.query('sum by (reason) (rate(promguard_upstream_errors_total{%s}[$__rate_interval]))' % s, '{{reason}}')]) + runbook('PromguardUpstreamErrors'),
        g.timeseries('Clients that left', 'Before the end of their answer: people who reload, or a timeout of Grafana below that of the proxy.', 'reqps', [g.query('sum by (class) (rate(promguard_client_gone_total{%s}[$__rate_interval]))' % s, '{{class}}')]),
      ]),
      g.row('Instances of promguard', [
        g.timeseries('Memory', 'Resident memory of each proxy.', 'bytes', [g.query('process_resident_memory_bytes{%s}' % s, '{{pod}}')]),
        g.timeseries('CPU', 'Processors that each proxy keeps busy.', 'short', [g.query('rate(process_cpu_seconds_total{%s}[$__rate_interval])' % s, '{{pod}}')]),
      ]),
    ]
  )
