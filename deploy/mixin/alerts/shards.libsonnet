// Of shards and of Thanos over them: docs/sharded.md.
function(c)
  local alert(name, severity, wait, expr, summary, description) = (import '../lib/alert.libsonnet')(c, name, severity, wait, expr, summary, description);
  {
    name: 'promguard-shards',
    rules: [
      alert(
        'PrometheusShardLost',
        'critical',
        '2m',
        |||
          kube_statefulset_status_replicas_ready{%(ksm)s, statefulset=~"prometheus-.+"} == 0
          and on (namespace, statefulset) kube_statefulset_replicas{%(ksm)s} > 0
        ||| % c,
        'All replicas of a Prometheus are gone.',
        'No pod of {{ $labels.statefulset }} is ready: what it scrapes is not scraped, and answers lack it.',
      ),
      alert(
        'ThanosServerNotAsked',
        'warning',
        '15m',
        // Each instance has its own list.
        'count(thanos_sidecar_prometheus_up{%(sidecar)s}) > min(sum by (instance) (thanos_store_nodes_grpc_connections{%(query)s, store_type="sidecar"}))' % c,
        'Thanos Query does not know all servers.',
        'There are {{ $value }} servers with a sidecar, and an instance of Thanos Query has fewer in its list: answers lack a server, and nothing says so.',
      ),
      alert(
        'ThanosUploadsFail',
        'warning',
        '30m',
        'sum by (pod) (increase(thanos_shipper_upload_failures_total{%(sidecar)s}[10m])) > 0' % c,
        'Blocks cannot be uploaded.',
        'For half an hour uploads of {{ $labels.pod }} have failed. The sidecar tries them again until the server deletes them.',
      ),
      alert(
        'ThanosUploadsLag',
        'critical',
        '10m',
        // A sidecar that has just started has uploaded nothing.
        'time() - max by (pod) (thanos_objstore_bucket_last_successful_upload_time{%(sidecar)s} > 0 or on (instance) process_start_time_seconds{%(sidecar)s}) > 6 * 3600' % c,
        'A server uploads no blocks.',
        '{{ $labels.pod }} has uploaded nothing for {{ $value | humanizeDuration }}, where every two hours have a block. What its retention deletes first is lost.',
      ),
      alert(
        'ThanosCompactorHalted',
        'warning',
        '5m',
        'thanos_compact_halted{%(compact)s} == 1' % c,
        'The compactor has stopped.',
        '{{ $labels.pod }} has found blocks that it cannot compact, and does nothing any more: the bucket grows, and old queries become slow.',
      ),
    ],
  }
