function(c)
  local alert(name, severity, wait, expr, summary, description) = (import '../lib/alert.libsonnet')(c, name, severity, wait, expr, summary, description);
  local a = c.apiserver, e = c.etcd, n = (import '../lib/records.libsonnet')(c);
  local etcd = (import '../lib/etcd.libsonnet')(e);
  local seen = '(up{%(e)s} and on (job, instance) last_over_time(etcd_server_has_leader{%(e)s}[1d]))' % { e: e };
  {
    name: 'promguard-control-plane',
    rules: [
      alert(
        'KubeAPIServerRefuses',
        'warning',
        '10m',
        // An eviction is refused with 429 because of a disruption budget, in every drain.
        'sum by (verb, resource) (%s{code="429", subresource!="eviction"}) > 1' % n.requests,
        'API servers refuse requests with 429.',
        '{{ $value | humanize }} requests per second to {{ $labels.verb }} {{ $labels.resource }} are refused: too many at a time.',
      ),
      alert(
        'KubeAPIServerFails',
        'critical',
        '10m',
        // By verb: renewals of leases by every kubelet would hide that all lists fail.
        |||
          sum by (verb) (%(requests)s{code=~"5..", verb!="CONNECT"})
            / sum by (verb) (%(requests)s)
            > 0.03
          and sum by (verb) (%(requests)s{code=~"5..", verb!="CONNECT"}) > 1
        ||| % { requests: n.requests },
        'API servers fail.',
        '{{ $value | humanizePercentage }} of the {{ $labels.verb }} requests to the API servers end with 5xx.',
      ),
      alert(
        'KubeAPIServersRestart',
        'critical',
        '0s',
        // A rollout starts each of them once.
        'sum(changes(process_start_time_seconds{%(a)s}[30m])) > 1.5 * count(up{%(a)s})' % { a: a },
        'API servers start again and again.',
        '{{ $value }} starts of API servers within 30 minutes, more than one of each.',
      ),
      alert(
        'KubeAPIServerMemoryLeaps',
        'warning',
        '5m',
        // Half an hour after a start it is above what it was while it warmed up.
        |||
          process_resident_memory_bytes{%(a)s}
            > 1.5 * (process_resident_memory_bytes{%(a)s} offset 30m)
          and process_resident_memory_bytes{%(a)s} > 8 * 2^30
          and on (instance) time() - process_start_time_seconds{%(a)s} > 7200
        ||| % { a: a },
        'The memory of an API server has leapt.',
        '{{ $labels.instance }} holds {{ $value | humanize1024 }}B, half as much again as half an hour ago.',
      ),
      alert(
        'KubeAPIServerMemoryGrows',
        'warning',
        '30m',
        // Means of an hour: lists come and go. Without Nodes for its servers, as where
        // a provider runs them, only growth is known.
        |||
          process_resident_memory_bytes{%(a)s} > %(large)d * 2^30
          and on (instance) avg_over_time(process_resident_memory_bytes{%(a)s}[1h])
            > 1.15 * avg_over_time(process_resident_memory_bytes{%(a)s}[1h] offset 6h)
          and on (instance) changes(process_start_time_seconds{%(a)s}[8h]) == 0
          or process_resident_memory_bytes{%(a)s}
          and on (instance) (
            label_replace(process_resident_memory_bytes{%(a)s}, "internal_ip", "$1", "instance", "\\[?(.+?)]?:[0-9]+")
              > on (internal_ip) group_left () 0.8 * max by (internal_ip) (
                max by (node, internal_ip) (kube_node_info{%(s)s})
                  * on (node) group_left () max by (node) (kube_node_status_capacity{%(s)s, resource="memory"})
              )
          )
        ||| % { a: a, s: c.ksm, large: c.apiserverGiB },
        'An API server will run out of memory.',
        '{{ $labels.instance }} holds {{ $value | humanize1024 }}B: four fifths of what its node has, or a seventh more than six hours ago.',
      ),
      alert(
        'KubeAPIServerDown',
        'warning',
        '10m',
        // One that is dead is no endpoint of its Service any more, and so no target: as
        // many as there were for most of the day. One more during an upgrade is none.
        'sum(up{%(a)s}) < quantile_over_time(0.5, sum(up{%(a)s})[1d:5m])' % { a: a },
        'An API server is down.',
        '{{ $value }} API servers answer, fewer than for most of the day: the others have its clients.',
      ),
      alert(
        'KubeAPIServerWatchTraffic',
        'warning',
        '10m',
        'sum by (kind, resource) (rate(apiserver_watch_events_sizes_sum{%s}[5m])) > %d' % [a, c.watchBytes],
        'API servers are busy with watches.',
        '{{ $value | humanize }}B per second of {{ $labels.kind }}{{ $labels.resource }} are sent to those that watch them.',
      ),
      alert(
        'KubeAPIServerListsFromEtcd',
        'warning',
        '15m',
        'sum by (resource, type) (rate(etcd_request_duration_seconds_count{%s, operation="list"}[5m])) > 20' % a,
        'Lists pass the cache of the API servers by.',
        '{{ $value | humanize }} lists of {{ $labels.resource }}{{ $labels.type }} per second are read from etcd.',
      ),
      alert(
        'EtcdNoQuorum',
        'critical',
        '3m',
        // Of the clusters of etcd in a job the one that is worst off. Where it is not
        // exported who knows whom, a job is taken for one.
        |||
          min by (job) (
            %(answering)s
            <= 0.5 * %(members)s
          )
          or (count by (job) (etcd_server_has_leader{%(e)s} == 1) or 0 * count by (job) (%(seen)s))
            <= 0.5 * count by (job) (%(seen)s)
            unless on (job) last_over_time(etcd_network_known_peers{%(e)s}[1d])
        ||| % { answering: etcd.answering, members: etcd.members, e: e, seen: seen },
        'etcd has no quorum.',
        '{{ $value }} members of an etcd of {{ $labels.job }} answer and have a leader, less than a majority: nothing can be written to it.',
      ),
      alert(
        'EtcdMemberDown',
        'warning',
        '5m',
        // Of a member that is not found any more there is no up; of one whose peers
        // are not exported there is nothing else.
        |||
          max by (job) (
            %(members)s
            - %(answering)s
            > 0
          )
          or count by (job) (%(seen)s == 0)
        ||| % { answering: etcd.answering, members: etcd.members, seen: seen },
        'A member of etcd is down.',
        '{{ $value }} members of an etcd of {{ $labels.job }} do not answer or have no leader: the others have to bear what comes.',
      ),
      alert(
        'EtcdSlowForAPIServers',
        'critical',
        '10m',
        |||
          1 - sum by (operation) (rate(etcd_request_duration_seconds_bucket{%(a)s, operation!~"list.*", le=~"1(\\.0)?"}[5m]))
            / sum by (operation) (rate(etcd_request_duration_seconds_count{%(a)s, operation!~"list.*"}[5m]))
            > 0.01
          and sum by (operation) (rate(etcd_request_duration_seconds_count{%(a)s, operation!~"list.*"}[5m])) > 1
        ||| % { a: a },
        'API servers wait for etcd.',
        '{{ $value | humanizePercentage }} of the requests to etcd of kind {{ $labels.operation }} take longer than a second.',
      ),
      alert(
        'EtcdSlowDisk',
        'warning',
        '15m',
        'histogram_quantile(0.99, sum by (instance, le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket{%s}[5m]))) > 0.1' % e,
        'The disk of etcd is slow.',
        'One of a hundred fsyncs of {{ $labels.instance }} takes {{ $value | humanizeDuration }} or longer.',
      ),
      alert(
        'EtcdQuotaNearlyUsed',
        'critical',
        '10m',
        'etcd_mvcc_db_total_size_in_bytes{%(e)s} / etcd_server_quota_backend_bytes{%(e)s} > 0.9' % { e: e },
        'etcd is nearly full.',
        'The database of {{ $labels.instance }} has {{ $value | humanizePercentage }} of its quota; at 100 % writes are refused.',
      ),
    ],
  }
