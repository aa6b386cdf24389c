// What is refused, by limit. Who asked is in the query log: dashboards and users
// are no labels, because anybody can invent as many as they like.
local g = import '../lib/grafana.libsonnet';

function(c) local s = c.proxy; g.dashboard(
  'promguard / Refusals',
  'promguard-refusals',
  'Requests that a limit of promguard or of the patched server refused, stopped or changed. promguard policy test says which dashboards they come from.',
  [
    g.row('The proxy', [
      g.timeseries('Refused, by reason', 'docs/limits has a page for each, with what to ask in its place.', 'reqps', [g.query('sum by (reason) (rate(promguard_refused_total{%s}[$__rate_interval])) > 0' % s, '{{reason}}')], stacked=true),
      g.timeseries('Shed, by reason', 'Requests for which there was no permit: the same may pass later.', 'reqps', [g.query('sum by (reason) (rate(promguard_shed_total{%s}[$__rate_interval]))' % s, '{{reason}}')], stacked=true),
      g.timeseries('Would be refused', 'Beyond limits in mode observe and warn: what enforcing them would cost.', 'reqps', [g.query('sum by (limit, mode) (rate(promguard_limit_exceeded_total{%s, mode=~"observe|warn"}[$__rate_interval])) > 0' % s, '{{limit}} ({{mode}})')], stacked=true),
      g.timeseries('Changed', 'Requests that a limit gave a start or a number of results.', 'reqps', [g.query('sum by (limit) (rate(promguard_adjusted_total{%s}[$__rate_interval])) > 0' % s, '{{limit}}')], stacked=true),
    ]),
    g.row('The last day', [
      g.table('Refused, by reason', 'Requests in 24 hours. Who asked: promguard policy test, with the query log.', 'locale', 'Requests', [['reason', 'Reason']], g.query('round(sum by (reason) (increase(promguard_refused_total{%s}[1d]))) > 0' % s)),
      g.table('Beyond a limit, by mode', 'Requests in 24 hours. With enforce they were refused; with warn and observe they were answered.', 'locale', 'Requests', [['limit', 'Limit'], ['mode', 'Mode']], g.query('round(sum by (limit, mode) (increase(promguard_limit_exceeded_total{%s}[1d]))) > 0' % s)),
    ]),
    g.row('The patched server', [
      g.timeseries('Refused or stopped, by reason', 'docs/read-limits.md lists the reasons.', 'reqps', [g.query('sum by (reason) (rate(prometheus_guard_api_requests_stopped_total{%s}[$__rate_interval])) > 0' % c.prometheus, '{{reason}}')], stacked=true),
      g.timeseries('Refused or stopped, by endpoint', 'The same requests, by what they asked for.', 'reqps', [g.query('sum by (endpoint) (rate(prometheus_guard_api_requests_stopped_total{%s}[$__rate_interval])) > 0' % c.prometheus, '{{endpoint}}')], stacked=true),
      g.timeseries('Cut off', 'Answers broken off after their first byte.', 'reqps', [g.query('sum by (endpoint) (rate(prometheus_guard_api_responses_aborted_total{%s}[$__rate_interval])) > 0' % c.prometheus, '{{endpoint}}')]),
    ]),
    g.row('Blind spots', [
      g.timeseries('Query log lines lost', 'Requests that are not in the query log because the disk was full or too slow.', 'reqps', [g.query('sum(rate(promguard_query_log_lost_total{%s}[$__rate_interval]))' % s, 'lost')]),
      g.timeseries('Warnings lost', 'Answers without the warning of a limit in mode warn.', 'reqps', [g.query('sum(rate(promguard_warnings_lost_total{%s}[$__rate_interval]))' % s, 'lost')]),
    ]),
  ]
)
