// The patched server: memory, reads and their budget, the replay of the WAL.
local g = import '../lib/grafana.libsonnet';

function(c) local s = c.prometheus, runbook(alert) = g.runbook(c, alert); g.dashboard(
  'promguard / Server',
  'promguard-server',
  'Memory, the budget of reads, queues, and the replay of the write-ahead log of the patched Prometheus.',
  [
    g.row('Now', [
      // One that is down has no other series, and what is scraped beside it is no server.
      g.stat('Ready', 'Servers that answer queries, of those that are to be scraped. Less than all: the others have the reads of all.', 'percentunit', [g.query('(sum(prometheus_ready{%(s)s}) or 0 * count(up{%(s)s})) / count(up{%(s)s} and on (instance) last_over_time(prometheus_build_info{%(s)s}[1d]))' % { s: s })], [[null, 'red'], [1, 'green']]) + runbook('PrometheusNotReady'),
      g.stat('Replayed', 'By the server that is farthest from being ready, as another one sees it; empty if all are ready.', 'percentunit', [g.query('min(prometheus_guard_wal_replay_progress_ratio{%(s)s} and on (instance) prometheus_ready{%(s)s} == 0)' % { s: s })]) + { fieldConfig+: { defaults+: { noValue: 'none replays' } } },
      g.stat('Stopped', 'Reads refused or stopped per second, on all servers. Stopped, by reason, says why.', 'reqps', [g.query(g.measured('sum(rate(prometheus_guard_api_requests_stopped_total{%(s)s}[5m]))' % { s: s }, 'prometheus_guard_read_memory_budget_bytes{%s}' % s))], [[null, 'green'], [0.1, 'orange']]) + runbook('PrometheusReadsShed'),
      g.stat('Rules missed', 'Evaluations left out in the last hour, by the server that left out most. Which: the dashboard Reads and rules.', 'locale', [g.query('round(max(sum by (instance) (increase(prometheus_rule_group_iterations_missed_total{%s}[1h]))))' % s)], [[null, 'green'], [1, 'red']]),
    ]),
    g.row('Memory', [
      g.timeseries('Memory', 'What the kernel counts, pages of mapped files included; what Go holds; what of it is no garbage; the limit that Go keeps to, and that of the server (--guard.memory-limit).', 'bytes', [
        g.query('process_resident_memory_bytes{%s, pod=~"$pod"}' % s, '{{pod}} resident'),
        g.query('go_memstats_heap_inuse_bytes{%s, pod=~"$pod"}' % s, '{{pod}} heap'),
        g.query('go_gc_heap_live_bytes{%s, pod=~"$pod"}' % s, '{{pod}} live'),
        // Without a limit it is the largest number there is.
        g.query('go_gc_gomemlimit_bytes{%s, pod=~"$pod"} < 2^60' % s, '{{pod}} GOMEMLIMIT'),
        g.query('prometheus_guard_memory_limit_bytes{%s, pod=~"$pod"} > 0' % s, '{{pod}} limit'),
      ]) + runbook('PrometheusMemoryTight'),
      g.timeseries('Budget of reads', 'Memory that reads have reserved, and what they may have (--guard.read-memory-budget).', 'bytes', [
        g.query('prometheus_guard_read_memory_reserved_bytes{%s, pod=~"$pod"}' % s, '{{pod}} reserved'),
        g.query('prometheus_guard_read_memory_budget_bytes{%s, pod=~"$pod"}' % s, '{{pod}} budget'),
      ]),
      g.timeseries('Series and chunks in memory', 'What the memory is for. Series that leap are new ones: the dashboard Drop rules has them by job.', 'short', [
        g.query('prometheus_tsdb_head_series{%s, pod=~"$pod"}' % s, '{{pod}} series'),
        g.query('prometheus_tsdb_head_chunks{%s, pod=~"$pod"}' % s, '{{pod}} chunks'),
      ]),
    ]),
    g.row('New series', [
      g.timeseries('Short of memory', '1 while the memory of a server is tight, and reads get less, or critical, and new series are refused.', 'locale', [g.query('prometheus_guard_memory_state{%s, pod=~"$pod", state!="ok"}' % s, '{{pod}} {{state}}')], max=1) + runbook('PrometheusMemoryCritical'),
      g.timeseries('Refused', 'New series that were refused, by where they come from and why: docs/memory-contract.md.', 'cps', [g.query('sum by (source, reason) (rate(prometheus_guard_series_refused_total{%s, pod=~"$pod"}[$__rate_interval]))' % s, '{{source}}: {{reason}}')], stacked=true) + runbook('PrometheusSeriesRefused'),
      g.timeseries('Who adds series', 'New series of the last minutes, created and refused, by those who add most. /api/v1/status/guard has the label that explodes, and the rule that drops it.', 'locale', [g.query('label_join(prometheus_guard_new_series{%s, pod=~"$pod"}, "culprit", " ", "culprit_job", "culprit_namespace", "culprit_metric")' % s, '{{pod}}: {{culprit}}')]),
    ]),
    g.row('Reads', [
      g.timeseries('In flight and waiting', 'Reads of each server that run or wait, and those of them that wait for their turn, by pool.', 'locale', [
        g.query('prometheus_guard_api_requests_in_flight{%s, pod=~"$pod"}' % s, '{{pod}} in flight'),
        g.query('prometheus_guard_api_requests_queued{%s, pod=~"$pod"}' % s, '{{pod}} waiting: {{pool}}'),
      ]),
      g.timeseries('Wait (p99)', 'For a place in a pool and for memory, on all servers.', 's', [g.query('histogram_quantile(0.99, sum by (pool, le) (rate(prometheus_guard_api_queue_duration_seconds_bucket{%s, pod=~"$pod"}[$__rate_interval])))' % s, '{{pool}}')]),
      g.timeseries('Stopped', 'Reads refused or stopped, by reason: docs/read-limits.md lists them, and their flags.', 'reqps', [g.query('sum by (reason) (rate(prometheus_guard_api_requests_stopped_total{%s, pod=~"$pod"}[$__rate_interval])) > 0' % s, '{{reason}}')], stacked=true) + runbook('PrometheusReadsShed'),
      g.timeseries('Spare connections', 'In use only when --web.max-connections are taken.', 'cps', [
        g.query('sum(rate(prometheus_guard_spare_connections_accepted_total{%s, pod=~"$pod"}[$__rate_interval]))' % s, 'accepted'),
        g.query('sum(rate(prometheus_guard_spare_connections_refused_total{%s, pod=~"$pod"}[$__rate_interval]))' % s, 'refused'),
      ]) + runbook('PrometheusConnectionsUsedUp'),
    ]),
    g.row('Starts and replay', [
      g.timeseries('Replay', 'Share of the checkpoint and the WAL that is replayed. While a server replays, only another one can scrape it.', 'percentunit', [g.query('prometheus_guard_wal_replay_progress_ratio{%s, pod=~"$pod"} and on (instance) prometheus_ready{%s} == 0' % [s, s], '{{pod}}')], max=1) + runbook('PrometheusReplayStalled'),
      g.timeseries('Last replay took', 'How long a server was away at its last start: as long as a startup probe has to wait.', 's', [g.query('prometheus_tsdb_data_replay_duration_seconds{%s, pod=~"$pod"}' % s, '{{pod}}')]),
      g.timeseries('Processors of the replay', 'How many the last replay could use (--guard.wal-replay-gomaxprocs).', 'locale', [g.query('prometheus_guard_wal_replay_gomaxprocs{%s, pod=~"$pod"}' % s, '{{pod}}')]),
      g.timeseries('Log to replay', 'Size of the write-ahead log: what a start after a crash has to read.', 'bytes', [g.query('prometheus_tsdb_wal_storage_size_bytes{%s, pod=~"$pod"}' % s, '{{pod}}')]),
    ]),
    g.row('What must not suffer', [
      g.timeseries('Scrapes', 'Quantile 0.99 of the time between scrapes, by their interval: steady if nothing holds them up.', 's', [g.query('max by (interval) (prometheus_target_interval_length_seconds{%s, pod=~"$pod", quantile="0.99"})' % s, '{{interval}}')]),
      g.timeseries('Rules missed', 'Evaluations of rule groups that were left out in the 10 minutes before, by each server.', 'locale', [g.query('round(sum by (pod) (increase(prometheus_rule_group_iterations_missed_total{%s, pod=~"$pod"}[10m])))' % s, '{{pod}}')]),
      g.timeseries('Samples', 'Written by each server. A fall is scrapes that fail, a leap is new series.', 'cps', [g.query('sum by (pod) (rate(prometheus_tsdb_head_samples_appended_total{%s, pod=~"$pod"}[$__rate_interval]))' % s, '{{pod}}')]),
    ]),
  ],
  [g.variable('pod', 'pod', 'prometheus_build_info{%s}' % s)]
)
