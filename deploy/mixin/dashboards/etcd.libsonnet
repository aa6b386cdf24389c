// etcd: leader, disk, size, peers.
local g = import '../lib/grafana.libsonnet';

function(c)
  local s = c.etcd, etcd = (import '../lib/etcd.libsonnet')(s);
  local runbook(alert) = g.runbook(c, alert);
  g.dashboard(
    'promguard / etcd',
    'promguard-etcd',
    'Disk latency, size and peers of etcd. A slow disk shows in every write of the cluster.',
    [
      g.row('Now', [
        // Where it is not exported who knows whom, a member is a target.
        g.stat('Members without a leader', 'Or that do not answer, of the etcd that is worst off. Half of them: nothing can be written.', 'locale', [g.query(|||
          max(%(members)s - %(answering)s)
          or count(up{%(s)s}) - (sum(etcd_server_has_leader{%(s)s} and on (job, instance) up{%(s)s} == 1) or 0 * count(up{%(s)s}))
        ||| % { members: etcd.members, answering: etcd.answering, s: s })], [[null, 'green'], [1, 'red']]) + runbook('EtcdMemberDown'),
        g.stat('Leader changes', 'In the last hour, as the member saw them that saw most. Several: a disk or the network between members is too slow.', 'locale', [g.query('round(max(increase(etcd_server_leader_changes_seen_total{%s}[1h])))' % s)], [[null, 'green'], [1, 'orange'], [4, 'red']]) + runbook('EtcdSlowDisk'),
        g.stat('Of the quota', 'Size of the largest database against its quota; at 100 % writes are refused.', 'percentunit', [g.query('max(etcd_mvcc_db_total_size_in_bytes{%s} / etcd_server_quota_backend_bytes{%s})' % [s, s])], [[null, 'green'], [0.7, 'orange'], [0.9, 'red']]) + runbook('EtcdQuotaNearlyUsed'),
        g.stat('Proposals waiting', 'Of the member that has most. More than a few for minutes: its disk or its peers are too slow.', 'locale', [g.query('max(etcd_server_proposals_pending{%s})' % s)], [[null, 'green'], [5, 'orange']]) + runbook('EtcdSlowDisk'),
      ]),
      g.row('Disk', [
        g.timeseries('WAL fsync (p99)', 'Below 10 ms on a good disk. One member alone: it is that disk; all of them: it is the load.', 's', [g.query('histogram_quantile(0.99, sum by (instance, le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket{%s}[$__rate_interval])))' % s, '{{instance}}')]) + runbook('EtcdSlowDisk'),
        g.timeseries('Backend commit (p99)', 'Below 25 ms on a good disk.', 's', [g.query('histogram_quantile(0.99, sum by (instance, le) (rate(etcd_disk_backend_commit_duration_seconds_bucket{%s}[$__rate_interval])))' % s, '{{instance}}')]),
        g.timeseries('Slow applies', 'Requests that took a member longer than 100 ms to apply: large reads, or a slow disk.', 'ops', [g.query('sum by (instance) (rate(etcd_server_slow_apply_total{%s}[$__rate_interval]))' % s, '{{instance}}')]),
      ]),
      g.row('Size', [
        g.timeseries('Database', 'On disk and in use: the difference is what defragmenting gives back.', 'bytes', [
          g.query('etcd_mvcc_db_total_size_in_bytes{%s}' % s, '{{instance}} on disk'),
          g.query('etcd_mvcc_db_total_size_in_use_in_bytes{%s}' % s, '{{instance}} in use'),
        ]) + runbook('EtcdQuotaNearlyUsed'),
        g.timeseries('Memory', 'Resident memory of each member; lists that pass the cache of the API servers by make it leap.', 'bytes', [g.query('process_resident_memory_bytes{%s}' % s, '{{instance}}')]),
        g.timeseries('Bytes to and from clients', 'What leaps with the memory is what somebody lists: Lists from etcd, of the API servers, says of what.', 'Bps', [
          g.query('sum by (instance) (rate(etcd_network_client_grpc_sent_bytes_total{%s}[$__rate_interval]))' % s, '{{instance}} sent'),
          g.query('sum by (instance) (rate(etcd_network_client_grpc_received_bytes_total{%s}[$__rate_interval]))' % s, '{{instance}} received'),
        ]),
      ]),
      g.row('Peers', [
        g.timeseries('Round trip (p99)', 'From a member to each of its peers, which are named by their identity.', 's', [g.query('histogram_quantile(0.99, sum by (instance, To, le) (rate(etcd_network_peer_round_trip_time_seconds_bucket{%s}[$__rate_interval])))' % s, '{{instance}} to {{To}}')]),
        g.timeseries('Proposals that failed', 'Writes that were lost with a leader, or timed out: API servers answer them with 5xx.', 'ops', [g.query('sum by (instance) (rate(etcd_server_proposals_failed_total{%s}[$__rate_interval]))' % s, '{{instance}}')]),
        g.timeseries('Leader changes', 'Of the 10 minutes before, as each member saw them: one election is one for each.', 'locale', [g.query('round(sum by (instance) (increase(etcd_server_leader_changes_seen_total{%s}[10m])))' % s, '{{instance}}')]),
      ]),
    ]
  )
