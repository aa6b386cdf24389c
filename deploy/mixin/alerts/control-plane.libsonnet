function(c)
  local alert(name, severity, wait, expr, summary, description) = (import '../lib/alert.libsonnet')(c, name, severity, wait, expr, summary, description);
  local s = c.apiserver, e = c.etcd;
  {
    name: 'promguard-control-plane',
    rules: [
      alert(
        'KubeAPIServerRefuses',
        'warning',
        '10m',
        'sum by (verb, resource) (rate(apiserver_request_total{%s, code="429"}[5m])) > 1' % s,
        'API servers refuse requests with 429.',
        '{{ $value | humanize }} requests per second to {{ $labels.verb }} {{ $labels.resource }} are refused: too many at a time.',
      ),
      alert(
        'KubeAPIServerFails',
        'critical',
        '10m',
        |||
          sum(rate(apiserver_request_total{%(s)s, code=~"5.."}[5m]))
            / sum(rate(apiserver_request_total{%(s)s}[5m]))
            > 0.03
        ||| % { s: s },
        'API servers fail.',
        '{{ $value | humanizePercentage }} of the requests to the API servers end with 5xx.',
      ),
      alert(
        'KubeAPIServerMemoryLeaps',
        'warning',
        '5m',
        |||
          process_resident_memory_bytes{%(s)s}
            > 1.5 * (process_resident_memory_bytes{%(s)s} offset 30m)
          and process_resident_memory_bytes{%(s)s} > 8 * 2^30
        ||| % { s: s },
        'The memory of an API server has leapt.',
        '{{ $labels.instance }} holds {{ $value | humanize1024 }}B, half as much again as half an hour ago.',
      ),
      alert(
        'KubeAPIServerListsFromEtcd',
        'warning',
        '15m',
        'sum by (resource, type) (rate(etcd_request_duration_seconds_count{%s, operation="list"}[5m])) > 20' % s,
        'Lists pass the cache of the API servers by.',
        '{{ $value | humanize }} lists of {{ $labels.resource }}{{ $labels.type }} per second are read from etcd.',
      ),
      alert(
        'EtcdSlowDisk',
        'warning',
        '15m',
        'histogram_quantile(0.99, sum by (instance, le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket{%s}[5m]))) > 0.5' % e,
        'The disk of etcd is slow.',
        'One of a hundred fsyncs of {{ $labels.instance }} takes {{ $value | humanizeDuration }} or longer.',
      ),
      alert(
        'EtcdQuotaNearlyUsed',
        'critical',
        '10m',
        'etcd_mvcc_db_total_size_in_bytes{%(s)s} / etcd_server_quota_backend_bytes{%(s)s} > 0.9' % { s: e },
        'etcd is nearly full.',
        'The database of {{ $labels.instance }} has {{ $value | humanizePercentage }} of its quota; at 100 % writes are refused.',
      ),
    ],
  }
