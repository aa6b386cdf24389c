// Where the server's time for queries goes, as far as metrics tell. Single queries
// are no labels: promguard top has them, /api/v1/status/guard/queries while they
// run, and the query log after.
local g = import '../lib/grafana.libsonnet';

function(c)
  local s = c.prometheus;
  // Of buckets, or of a native histogram where servers scrape those instead.
  local time = 'sum by (handler) (rate(prometheus_http_request_duration_seconds_sum{%(s)s}[1h])) or histogram_sum(sum by (handler) (rate(prometheus_http_request_duration_seconds{%(s)s}[1h])))' % { s: s };
  local requests = 'sum by (handler) (rate(prometheus_http_request_duration_seconds_count{%(s)s}[1h])) or histogram_count(sum by (handler) (rate(prometheus_http_request_duration_seconds{%(s)s}[1h])))' % { s: s };
  g.dashboard(
    'promguard / Top queries',
    'promguard-queries',
    'Which endpoints and rule groups the server spends its time on. Which queries: promguard top; running ones: /api/v1/status/guard/queries; past ones: the query log.',
    [
      g.row('Reads over HTTP', [
        g.table('Time by endpoint', 'Seconds that requests took in the last hour, for each second: how many are under way on average.', 'short', g.query('topk(20, %s)' % time)),
        g.table('Bytes by endpoint', 'Bytes of answers per second in the last hour.', 'Bps', g.query('topk(20, sum by (handler) (rate(prometheus_http_response_size_bytes_sum{%s}[1h])))' % s)),
        g.table('Mean time by endpoint', 'Seconds for each request in the last hour.', 's', g.query('topk(20, (%s) / (%s))' % [time, requests])),
      ]),
      g.row('The engine', [
        g.timeseries('Queries at a time', 'Rules and reads share the engine.', 'short', [
          g.query('sum(prometheus_engine_queries{%s})' % s, 'running'),
          g.query('max(prometheus_engine_queries_concurrent_max{%s})' % s, 'most'),
        ]),
        g.timeseries('Samples read', 'Samples that queries and rules read per second.', 'short', [g.query('sum(rate(prometheus_engine_query_samples_total{%s}[$__rate_interval]))' % s, 'samples')]),
        g.timeseries('Time by step (p90)', 'Summary of the engine: waiting in its queue, preparing, evaluating, sorting.', 's', [g.query('max by (slice) (prometheus_engine_query_duration_seconds{%s, quantile="0.9"})' % s, '{{slice}}')]),
      ]),
      g.row('Rules', [
        g.table('Slowest rule groups', 'Seconds of the last evaluation.', 's', g.query('topk(20, max by (rule_group) (prometheus_rule_group_last_duration_seconds{%s}))' % s)),
        g.table('Groups that take most of their interval', 'Share of the interval that the last evaluation took; beyond 1 evaluations are missed.', 'percentunit', g.query('topk(20, max by (rule_group) (prometheus_rule_group_last_duration_seconds{%s} / prometheus_rule_group_interval_seconds{%s}))' % [s, s])),
        g.timeseries('Evaluations missed', 'Nothing that reads shall cause this.', 'short', [g.query('sum by (rule_group) (rate(prometheus_rule_group_iterations_missed_total{%s}[$__rate_interval])) > 0' % s, '{{rule_group}}')]),
      ]),
    ]
  )
