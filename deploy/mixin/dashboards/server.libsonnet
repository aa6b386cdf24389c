// The patched server: memory, reads and their budget, the replay of the WAL.
local g = import '../lib/grafana.libsonnet';

function(c) local s = c.prometheus; g.dashboard(
  'promguard / Server',
  'promguard-server',
  'Memory, the budget of reads, queues, and the replay of the write-ahead log of the patched Prometheus.',
  [
    g.row('Now', [
      g.stat('Ready', 'Servers that answer queries, of those that are scraped.', 'percentunit', [g.query('sum(prometheus_ready{%(s)s}) / count(up{%(s)s} and on (instance) prometheus_build_info{%(s)s})' % { s: s })], [[null, 'red'], [1, 'green']]),
      g.stat('Replayed', 'By the server that is farthest from being ready, as another one sees it; empty if all are ready.', 'percentunit', [g.query('min(promguard_wal_replay_progress_ratio{%(s)s} and on (instance) prometheus_ready{%(s)s} == 0)' % { s: s })]) + { fieldConfig+: { defaults+: { noValue: 'none replays' } } },
      g.stat('Stopped', 'Reads refused or stopped per second.', 'reqps', [g.query(g.measured('sum(rate(promguard_api_requests_stopped_total{%(s)s}[5m]))' % { s: s }, 'promguard_read_memory_budget_bytes{%s}' % s))], [[null, 'green'], [0.1, 'orange']]),
      g.stat('Rules missed', 'Evaluations left out in the last hour.', 'short', [g.query('sum(increase(prometheus_rule_group_iterations_missed_total{%s}[1h]))' % s)], [[null, 'green'], [0.5, 'red']]),
    ]),
    g.row('Memory', [
      g.timeseries('Memory', 'What the kernel counts, pages of mapped files included; what Go holds; what of it is no garbage; and the limit that Go keeps to.', 'bytes', [
        g.query('process_resident_memory_bytes{%s, pod=~"$pod"}' % s, '{{pod}} resident'),
        g.query('go_memstats_heap_inuse_bytes{%s, pod=~"$pod"}' % s, '{{pod}} heap'),
        g.query('go_gc_heap_live_bytes{%s, pod=~"$pod"}' % s, '{{pod}} live'),
        // Without a limit it is the largest number there is.
        g.query('go_gc_gomemlimit_bytes{%s, pod=~"$pod"} < 2^60' % s, '{{pod}} GOMEMLIMIT'),
      ]),
      g.timeseries('Budget of reads', 'Memory that reads have reserved, and what they may have (--guard.read-memory-budget).', 'bytes', [
        g.query('promguard_read_memory_reserved_bytes{%s, pod=~"$pod"}' % s, '{{pod}} reserved'),
        g.query('promguard_read_memory_budget_bytes{%s, pod=~"$pod"}' % s, '{{pod}} budget'),
      ]),
      g.timeseries('Series and chunks in memory', '', 'short', [
        g.query('prometheus_tsdb_head_series{%s, pod=~"$pod"}' % s, '{{pod}} series'),
        g.query('prometheus_tsdb_head_chunks{%s, pod=~"$pod"}' % s, '{{pod}} chunks'),
      ]),
    ]),
    g.row('Reads', [
      g.timeseries('In flight and waiting', '', 'short', [
        g.query('sum(promguard_api_requests_in_flight{%s, pod=~"$pod"})' % s, 'in flight'),
        g.query('sum by (pool) (promguard_api_requests_queued{%s, pod=~"$pod"})' % s, 'waiting: {{pool}}'),
      ]),
      g.timeseries('Wait (p99)', 'For a place in a pool and for memory.', 's', [g.query('histogram_quantile(0.99, sum by (pool, le) (rate(promguard_api_queue_duration_seconds_bucket{%s, pod=~"$pod"}[$__rate_interval])))' % s, '{{pool}}')]),
      g.timeseries('Stopped', 'Reads refused or stopped, by reason.', 'reqps', [g.query('sum by (reason) (rate(promguard_api_requests_stopped_total{%s, pod=~"$pod"}[$__rate_interval])) > 0' % s, '{{reason}}')], stacked=true),
      g.timeseries('Spare connections', 'In use only when --web.max-connections are taken.', 'cps', [
        g.query('sum(rate(promguard_spare_connections_accepted_total{%s, pod=~"$pod"}[$__rate_interval]))' % s, 'accepted'),
        g.query('sum(rate(promguard_spare_connections_refused_total{%s, pod=~"$pod"}[$__rate_interval]))' % s, 'refused'),
      ]),
    ]),
    g.row('Starts and replay', [
      g.timeseries('Replay', 'Share of the checkpoint and the WAL that is replayed. While a server replays, only another one can scrape it.', 'percentunit', [g.query('promguard_wal_replay_progress_ratio{%s, pod=~"$pod"} and on (instance) prometheus_ready{%s} == 0' % [s, s], '{{pod}}')], max=1),
      g.timeseries('Last replay took', '', 's', [g.query('prometheus_tsdb_data_replay_duration_seconds{%s, pod=~"$pod"}' % s, '{{pod}}')]),
      g.timeseries('Processors of the replay', '', 'short', [g.query('promguard_wal_replay_gomaxprocs{%s, pod=~"$pod"}' % s, '{{pod}}')]),
      g.timeseries('Log to replay', 'Size of the write-ahead log: what a start after a crash has to read.', 'bytes', [g.query('prometheus_tsdb_wal_storage_size_bytes{%s, pod=~"$pod"}' % s, '{{pod}}')]),
    ]),
    g.row('What must not suffer', [
      g.timeseries('Scrapes', 'Quantile 0.99 of the time between scrapes, by their interval: steady if nothing holds them up.', 's', [g.query('max by (interval) (prometheus_target_interval_length_seconds{%s, pod=~"$pod", quantile="0.99"})' % s, '{{interval}}')]),
      g.timeseries('Rules missed', 'Evaluations of rule groups that were left out.', 'short', [g.query('sum(rate(prometheus_rule_group_iterations_missed_total{%s, pod=~"$pod"}[$__rate_interval]))' % s, 'missed')]),
      g.timeseries('Samples', 'Samples written per second.', 'short', [g.query('sum by (pod) (rate(prometheus_tsdb_head_samples_appended_total{%s, pod=~"$pod"}[$__rate_interval]))' % s, '{{pod}}')]),
    ]),
  ],
  [g.variable('pod', 'pod', 'prometheus_build_info{%s}' % s)]
)
