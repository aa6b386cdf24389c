function(c)
  local alert(name, severity, wait, expr, summary, description) = (import '../lib/alert.libsonnet')(c, name, severity, wait, expr, summary, description);
  local s = c.prometheus;
  {
    name: 'promguard-server',
    rules: [
      alert(
        'PrometheusReplayStalled',
        'critical',
        '15m',
        // A server that replays is not scraped by itself: this comes from another one.
        |||
          changes(promguard_wal_replay_progress_ratio{%(s)s}[10m]) == 0
          and on (instance) prometheus_ready{%(s)s} == 0
          and on (instance) rate(process_cpu_seconds_total{%(s)s}[10m]) < 0.01
        ||| % { s: s },
        'A Prometheus neither gets ready nor does anything.',
        '{{ $labels.pod }} is not ready, and its replay of the write-ahead log has not moved for 25 minutes.',
      ),
      alert(
        'PrometheusReadsShed',
        'warning',
        '10m',
        'sum by (instance, reason) (rate(promguard_api_requests_stopped_total{%s, reason=~"queue|memory"}[5m])) > 0.1' % s,
        'Reads are refused for want of room.',
        '{{ $labels.instance }} refuses or stops {{ $value | humanize }} reads per second (reason {{ $labels.reason }}).',
      ),
      alert(
        'PrometheusReadsPastDeadline',
        'warning',
        '10m',
        'sum by (instance, endpoint) (rate(promguard_api_requests_stopped_total{%s, reason="deadline"}[5m])) > 0.1' % s,
        'Reads are stopped at their deadline.',
        '{{ $labels.instance }} stops {{ $value | humanize }} reads of {{ $labels.endpoint }} per second at their deadline.',
      ),
      alert(
        'PrometheusReadBudgetNearlyUsed',
        'warning',
        '10m',
        'promguard_read_memory_reserved_bytes{%(s)s} > 0.7 * promguard_read_memory_budget_bytes{%(s)s}' % { s: s },
        'Reads hold most of the memory they may have.',
        'Reads of {{ $labels.instance }} hold {{ $value | humanize1024 }}B, more than 70 % of --guard.read-memory-budget.',
      ),
      alert(
        'PrometheusConnectionsUsedUp',
        'warning',
        '10m',
        'rate(promguard_spare_connections_accepted_total{%s}[5m]) > 0' % s,
        'All connections are taken.',
        'All of --web.max-connections of {{ $labels.instance }} are open; health checks and alerts go over the spare ones.',
      ),
      alert(
        'PrometheusMemoryNearLimit',
        'warning',
        '15m',
        // What resident memory has besides goes when there is need: garbage when Go
        // needs room, pages of mapped files when the kernel does.
        'go_gc_heap_live_bytes{%(s)s} > 0.8 * (go_gc_gomemlimit_bytes{%(s)s} < 2^60)' % { s: s },
        'Prometheus is near its limit of memory.',
        '{{ $labels.instance }} has {{ $value | humanize1024 }}B of live objects, more than 80 % of GOMEMLIMIT.',
      ),
    ],
  }
