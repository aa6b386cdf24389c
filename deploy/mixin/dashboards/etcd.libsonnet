// etcd: leader, disk, size, peers.
local g = import '../lib/grafana.libsonnet';

function(c) local s = c.etcd; g.dashboard(
  'promguard / etcd',
  'promguard-etcd',
  'Disk latency, size and peers of etcd. A slow disk shows in every write of the cluster.',
  [
    g.row('Now', [
      g.stat('Members without a leader', 'Or that do not answer.', 'short', [g.query('count(up{%(s)s}) - sum(etcd_server_has_leader{%(s)s} and on (job, instance) up{%(s)s} == 1)' % { s: s })], [[null, 'green'], [1, 'red']]),
      g.stat('Leader changes', 'In the last hour, as the member saw them that saw most.', 'short', [g.query('max(increase(etcd_server_leader_changes_seen_total{%s}[1h]))' % s)], [[null, 'green'], [0.5, 'orange'], [4, 'red']]),
      g.stat('Of the quota', 'Size of the largest database against its quota; at 100 % writes are refused.', 'percentunit', [g.query('max(etcd_mvcc_db_total_size_in_bytes{%s} / etcd_server_quota_backend_bytes{%s})' % [s, s])], [[null, 'green'], [0.7, 'orange'], [0.9, 'red']]),
      g.stat('Proposals waiting', '', 'short', [g.query('sum(etcd_server_proposals_pending{%s})' % s)], [[null, 'green'], [5, 'orange']]),
    ]),
    g.row('Disk', [
      g.timeseries('WAL fsync (p99)', 'Below 10 ms on a good disk.', 's', [g.query('histogram_quantile(0.99, sum by (instance, le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket{%s}[$__rate_interval])))' % s, '{{instance}}')]),
      g.timeseries('Backend commit (p99)', 'Below 25 ms on a good disk.', 's', [g.query('histogram_quantile(0.99, sum by (instance, le) (rate(etcd_disk_backend_commit_duration_seconds_bucket{%s}[$__rate_interval])))' % s, '{{instance}}')]),
      g.timeseries('Slow applies', '', 'ops', [g.query('sum by (instance) (rate(etcd_server_slow_apply_total{%s}[$__rate_interval]))' % s, '{{instance}}')]),
    ]),
    g.row('Size', [
      g.timeseries('Database', 'On disk and in use: the difference is what defragmenting gives back.', 'bytes', [
        g.query('etcd_mvcc_db_total_size_in_bytes{%s}' % s, '{{instance}} on disk'),
        g.query('etcd_mvcc_db_total_size_in_use_in_bytes{%s}' % s, '{{instance}} in use'),
      ]),
      g.timeseries('Memory', '', 'bytes', [g.query('process_resident_memory_bytes{%s}' % s, '{{instance}}')]),
      g.timeseries('Bytes to and from clients', '', 'Bps', [
        g.query('sum by (instance) (rate(etcd_network_client_grpc_sent_bytes_total{%s}[$__rate_interval]))' % s, '{{instance}} sent'),
        g.query('sum by (instance) (rate(etcd_network_client_grpc_received_bytes_total{%s}[$__rate_interval]))' % s, '{{instance}} received'),
      ]),
    ]),
    g.row('Peers', [
      g.timeseries('Round trip (p99)', 'From a member to each of its peers.', 's', [g.query('histogram_quantile(0.99, sum by (instance, To, le) (rate(etcd_network_peer_round_trip_time_seconds_bucket{%s}[$__rate_interval])))' % s, '{{instance}} to {{To}}')]),
      g.timeseries('Proposals that failed', '', 'ops', [g.query('sum by (instance) (rate(etcd_server_proposals_failed_total{%s}[$__rate_interval]))' % s, '{{instance}}')]),
      g.timeseries('Leader changes', '', 'short', [g.query('sum by (instance) (increase(etcd_server_leader_changes_seen_total{%s}[$__rate_interval]))' % s, '{{instance}}')]),
    ]),
  ]
)
