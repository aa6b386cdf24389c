// What the drop rules keep out.
local g = import '../lib/grafana.libsonnet';

function(c)
  local s = c.prometheus, all = c.scraped;
  // Two servers that scrape the same drop the same: no sum over servers.
  local dropped(labels) = 'max by (%(labels)s) (sum by (instance, %(labels)s) (prometheus_guard_drop_rules_dropped_series_total{%(s)s}))' % { labels: labels, s: s };
  g.dashboard(
    'promguard / Drop rules',
    'promguard-drop-rules',
    "Series that the drop rules keep out of the patched Prometheus. A series counts when a target's scrapes meet it for the first time.",
    [
      g.row('Savings', [
        g.stat('Samples dropped', 'Share of scraped samples that relabelling and drop rules leave out, over all targets.', 'percentunit', [g.query('1 - sum(scrape_samples_post_metric_relabeling{%(all)s}) / (sum(scrape_samples_scraped{%(all)s}) > 0)' % { all: all })]),
        g.stat('Samples scraped', 'Samples of one round of scrapes, before any is left out.', 'short', [g.query('sum(scrape_samples_scraped{%s})' % all)]),
        g.stat('Series in memory', 'Of the server that has most.', 'short', [g.query('max(prometheus_tsdb_head_series{%s})' % s)]),
        g.stat('Rules in force', 'Drop rules of the profile or file, and of profiles that targets name.', 'locale', [g.query('count(count by (profile, rule) (prometheus_guard_drop_rule_info{%s}))' % s)]),
      ]),
      g.row('By rule', [
        // No rate: a counter is there from the first series on that its rule drops, mostly all of them in one scrape.
        g.timeseries('Series dropped', 'Since its start, by the server that has dropped most, of the scrape pools that there are. Steps are targets that are new or began anew.', 'short', [g.query(dropped('profile, rule'), '{{profile}}: {{rule}}')], stacked=true),
        g.table('Since the start', 'Series dropped by the server that has dropped most; targets that begin anew count again.', 'short', 'Series', [['rule', 'Rule'], ['profile', 'Profile']], g.query(dropped('profile, rule'))),
        g.table('Rules that drop nothing', 'Since the start, on any server: without them nothing would change, so they can go.', 'locale', null, [['rule', 'Rule'], ['profile', 'Profile'], ['class', 'Class']], g.query('count by (profile, rule, class) (prometheus_guard_drop_rule_info{%s}) unless on (profile, rule) sum by (profile, rule) (prometheus_guard_drop_rules_dropped_series_total{%s}) unless on (profile, rule) sum by (profile, rule) (prometheus_guard_drop_rules_dropped_samples_total{%s})' % [s, s, s])),
        g.table('Received and dropped', 'Samples that came by remote write or OTLP, in the last 5 minutes.', 'cps', 'Samples', [['path', 'By'], ['rule', 'Rule']], g.query('sum by (path, rule) (rate(prometheus_guard_drop_rules_dropped_samples_total{%s}[5m]))' % s)),
      ]),
      g.row('By job', [
        g.table('Dropped', 'Samples of one round of scrapes that are left out.', 'short', 'Samples', [['job', 'Job']], g.query('topk(20, sum by (job) (scrape_samples_scraped{%s} - scrape_samples_post_metric_relabeling{%s}))' % [all, all])),
        g.table('Kept', 'Samples of one round of scrapes that are stored: where to look for more to drop, with promguard rules suggest.', 'short', 'Samples', [['job', 'Job']], g.query('topk(20, sum by (job) (scrape_samples_post_metric_relabeling{%s}))' % all)),
        g.table('Series dropped by scrape pool', 'Since its start, by the server that has dropped most.', 'short', 'Series', [['scrape_job', 'Scrape pool']], g.query('topk(20, %s)' % dropped('scrape_job'))),
        g.table('New series', 'Series in the last hour that were not there before: churn, which costs memory as long as the head is not truncated.', 'short', 'Series', [['job', 'Job']], g.query('topk(20, sum by (job) (sum_over_time(scrape_series_added{%s}[1h])))' % all)),
      ]),
    ]
  )
