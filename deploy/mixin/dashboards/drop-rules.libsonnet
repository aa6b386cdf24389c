// What the drop rules keep out.
local g = import '../lib/grafana.libsonnet';

function(c) local s = c.prometheus, all = c.scraped; g.dashboard(
  'promguard / Drop rules',
  'promguard-drop-rules',
  "Series that the drop rules keep out of the patched Prometheus. A series counts when a target's scrapes meet it for the first time.",
  [
    g.row('Savings', [
      g.stat('Samples dropped', 'Share of scraped samples that relabelling and drop rules leave out, over all targets.', 'percentunit', [g.query('1 - sum(scrape_samples_post_metric_relabeling{%s}) / sum(scrape_samples_scraped{%s})' % [all, all])]),
      g.stat('Samples scraped', 'Samples of one round of scrapes.', 'short', [g.query('sum(scrape_samples_scraped{%s})' % all)]),
      g.stat('Series in memory', '', 'short', [g.query('sum(prometheus_tsdb_head_series{%s})' % s)]),
      g.stat('Rules in force', 'Drop rules of the profile or file, and of profiles that targets name.', 'short', [g.query('count(count by (profile, rule) (promguard_drop_rule_info{%s}))' % s)]),
    ]),
    g.row('By rule', [
      // No rate: a counter is there from the first series on that its rule drops, mostly all of them in one scrape.
      g.timeseries('Series dropped', 'Since the servers started, of the scrape pools that there are. Steps are targets that are new or began anew.', 'short', [g.query('sum by (profile, rule) (promguard_drop_rules_dropped_series_total{%s})' % s, '{{profile}}: {{rule}}')], stacked=true),
      g.table('Since the start', 'Series dropped since the servers started; targets that begin anew count again.', 'short', g.query('sum by (profile, rule) (promguard_drop_rules_dropped_series_total{%s})' % s)),
      g.table('Rules that drop nothing', 'Since the start: without them nothing would change.', 'short', g.query('count by (profile, rule, class) (promguard_drop_rule_info{%s}) unless on (profile, rule) sum by (profile, rule) (promguard_drop_rules_dropped_series_total{%s}) unless on (profile, rule) sum by (profile, rule) (prometheus_guard_drop_rules_dropped_samples_total{%s})' % [s, s, s])),
      g.table('Received and dropped', 'Samples per second that came by remote write or OTLP.', 'short', g.query('sum by (path, rule) (rate(prometheus_guard_drop_rules_dropped_samples_total{%s}[5m]))' % s)),
    ]),
    g.row('By job', [
      g.table('Dropped', 'Samples of one round of scrapes that are left out.', 'short', g.query('topk(20, sum by (job) (scrape_samples_scraped{%s} - scrape_samples_post_metric_relabeling{%s}))' % [all, all])),
      g.table('Kept', 'Samples of one round of scrapes that are stored.', 'short', g.query('topk(20, sum by (job) (scrape_samples_post_metric_relabeling{%s}))' % all)),
      g.table('Series dropped', 'By scrape pool, since the servers started.', 'short', g.query('topk(20, sum by (scrape_job) (promguard_drop_rules_dropped_series_total{%s}))' % s)),
      g.table('New series', 'Series in the last hour that were not there before: churn.', 'short', g.query('topk(20, sum by (job) (sum_over_time(scrape_series_added{%s}[1h])))' % all)),
    ]),
  ]
)
