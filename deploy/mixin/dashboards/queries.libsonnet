// Where the server's time goes, as far as metrics tell. Single queries are no labels:
// promguard top has them, /api/v1/status/guard/queries while they run, and the query
// log after.
local g = import '../lib/grafana.libsonnet';

function(c)
  local s = c.prometheus;
  // Of buckets, or of a native histogram where servers scrape those instead.
  local time = 'sum by (handler) (rate(prometheus_http_request_duration_seconds_sum{%(s)s}[1h])) or histogram_sum(sum by (handler) (rate(prometheus_http_request_duration_seconds{%(s)s}[1h])))' % { s: s };
  local requests = 'sum by (handler) (rate(prometheus_http_request_duration_seconds_count{%(s)s}[1h])) or histogram_count(sum by (handler) (rate(prometheus_http_request_duration_seconds{%(s)s}[1h])))' % { s: s };
  // The server names a group by the path of its file, which all groups share the most
  // of: its end, and the group in it.
  local grouped(expr) = |||
    label_replace(
      label_replace(%s, "group", "$1", "rule_group", ".*;(.+)"),
      "file", "$1", "rule_group", "(?:.*/)?(.*);.*"
    )
  ||| % expr;
  local groups(expr) = 'topk(20, max by (group, file) (%s))' % grouped(expr);
  local columns = [['group', 'Group'], ['file', 'File']];
  g.dashboard(
    'promguard / Reads and rules',
    'promguard-queries',
    'Which endpoints and rule groups the server spends its time on. Which queries: promguard top; running ones: /api/v1/status/guard/queries; past ones: the query log.',
    [
      g.row('Reads over HTTP', [
        g.table('Time by endpoint', 'How many requests were under way on average in the last hour: seconds that they took, for each second. Which queries they were: promguard top.', 'short', 'Under way', [['handler', 'Endpoint']], g.query('topk(20, %s)' % time)),
        g.table('Bytes by endpoint', 'Answers of the last hour, on average.', 'Bps', 'Bytes', [['handler', 'Endpoint']], g.query('topk(20, sum by (handler) (rate(prometheus_http_response_size_bytes_sum{%s}[1h])))' % s)),
        g.table('Mean time by endpoint', 'Of each request in the last hour. A few slow ones do not show: promguard top has the longest.', 's', 'Mean', [['handler', 'Endpoint']], g.query('topk(20, (%s) / ((%s) > 0))' % [time, requests])),
      ]),
      g.row('The engine', [
        g.timeseries('Queries at a time', 'Of each server: rules and reads share its engine. At its limit (--query.max-concurrency) all wait.', 'locale', [
          g.query('prometheus_engine_queries{%s}' % s, '{{pod}} running'),
          g.query('prometheus_engine_queries_concurrent_max{%s}' % s, '{{pod}} limit'),
        ]),
        g.timeseries('Samples read', 'By queries and rules of each server.', 'cps', [g.query('rate(prometheus_engine_query_samples_total{%s}[$__rate_interval])' % s, '{{pod}}')]),
        g.timeseries('Time by step (p90)', 'Of the server that is slowest: waiting in its queue, preparing, evaluating, sorting. Much of queue_time: the engine is at its limit.', 's', [g.query('max by (slice) (prometheus_engine_query_duration_seconds{%s, quantile="0.9"})' % s, '{{slice}}')]),
      ]),
      g.row('Rules', [
        g.table('Slowest rule groups', 'Time of the last evaluation, on the server that is slowest.', 's', 'Time', columns, g.query(groups('prometheus_rule_group_last_duration_seconds{%s}' % s))),
        g.table('Groups that take most of their interval', 'Share of the interval that the last evaluation took; beyond 100 % evaluations are missed: split the group, or give it a longer interval.', 'percentunit', 'Share', columns, g.query(groups('prometheus_rule_group_last_duration_seconds{%s} / prometheus_rule_group_interval_seconds{%s}' % [s, s]))),
        g.timeseries('Evaluations missed', 'Of the 10 minutes before, by group, on the server that missed most. Nothing that reads shall cause this.', 'locale', [g.query('round(max by (group) (%s)) > 0' % grouped('sum by (instance, rule_group) (increase(prometheus_rule_group_iterations_missed_total{%s}[10m]))' % s), '{{group}}')]),
      ]),
    ]
  )
