function(c)
  local alert(name, severity, wait, expr, summary, description) = (import '../lib/alert.libsonnet')(c, name, severity, wait, expr, summary, description);
  local s = c.prometheus;
  {
    name: 'promguard-server',
    rules: [
      alert(
        'PrometheusNotReady',
        'warning',
        '30m',
        // A process that is killed and starts again leaves gaps: hence the maximum.
        // up: not a pod that is gone.
        |||
          max_over_time(prometheus_ready{%(s)s}[30m]) == 0
          and on (instance) up{%(s)s}
        ||| % { s: s },
        'A Prometheus does not get ready.',
        '{{ $labels.pod }} has not been ready for half an hour: meanwhile the other replica is the only one.',
      ),
      alert(
        'PrometheusReplayLoops',
        'critical',
        '0s',
        |||
          changes(process_start_time_seconds{%(s)s}[3h]) > 2
          and on (instance) max_over_time(prometheus_ready{%(s)s}[30m]) == 0
          and on (instance) up{%(s)s}
        ||| % { s: s },
        'A Prometheus is killed in each replay.',
        '{{ $labels.pod }} has started {{ $value }} times again in 3 hours and never got ready: it will not by itself.',
      ),
      alert(
        'PrometheusReplayStalled',
        'critical',
        '15m',
        // A server that replays is not scraped by itself: this comes from another one.
        |||
          changes(prometheus_guard_wal_replay_progress_ratio{%(s)s}[10m]) == 0
          and on (instance) prometheus_ready{%(s)s} == 0
          and on (instance) rate(process_cpu_seconds_total{%(s)s}[10m]) < 0.02
        ||| % { s: s },
        'A Prometheus neither gets ready nor does anything.',
        '{{ $labels.pod }} is not ready, and its replay of the write-ahead log has not moved for 25 minutes.',
      ),
      alert(
        'PrometheusReadsShed',
        'warning',
        '10m',
        'sum by (instance, reason) (rate(prometheus_guard_api_requests_stopped_total{%s, reason=~"queue|memory"}[5m])) > 0.1' % s,
        'Reads are refused for want of room.',
        '{{ $labels.instance }} refuses or stops {{ $value | humanize }} reads per second (reason {{ $labels.reason }}).',
      ),
      alert(
        'PrometheusReadsPastDeadline',
        'warning',
        '10m',
        'sum by (instance, endpoint) (rate(prometheus_guard_api_requests_stopped_total{%s, reason="deadline"}[5m])) > 0.1' % s,
        'Reads are stopped at their deadline.',
        '{{ $labels.instance }} stops {{ $value | humanize }} reads of {{ $labels.endpoint }} per second at their deadline.',
      ),
      alert(
        'PrometheusConnectionsUsedUp',
        'warning',
        '10m',
        'rate(prometheus_guard_spare_connections_accepted_total{%s}[5m]) > 0' % s,
        'All connections are taken.',
        'All of --web.max-connections of {{ $labels.instance }} are open; health checks and alerts go over the spare ones.',
      ),
      alert(
        'PrometheusMemoryTight',
        'warning',
        '5m',
        // Not without a break: it comes and goes with the head's compaction.
        'min by (instance) (avg_over_time(prometheus_guard_memory_state{%s, state="ok"}[15m])) < 0.5' % s,
        'Prometheus is short of memory.',
        '{{ $labels.instance }} is near its limit of memory most of the time: reads get less of it, and a burst of new series would be refused.',
      ),
      alert(
        'PrometheusMemoryCritical',
        'critical',
        '0s',
        'max by (instance) (avg_over_time(prometheus_guard_memory_state{%s, state="critical"}[5m])) > 0.4' % s,
        'Prometheus takes no new series.',
        '{{ $labels.instance }} is at its limit of memory: series that it knows keep every sample, new ones are refused.',
      ),
      alert(
        'PrometheusSeriesRefused',
        'warning',
        '5m',
        'sum by (instance, source, reason) (rate(prometheus_guard_series_refused_total{%s}[5m])) > 0' % s,
        'New series are refused.',
        // Whose they are is known to the server for some minutes.
        '{{ $labels.instance }} refuses {{ $value | humanize }} new series per second (source {{ $labels.source }}, reason {{ $labels.reason }}){{ range printf "topk(1, prometheus_guard_new_series{instance=%q})" $labels.instance | query }}; most are of job {{ .Labels.culprit_job }} {{ .Labels.culprit_namespace }} {{ .Labels.culprit_metric }}{{ end }}.',
      ),
      alert(
        'ScrapesMissSeries',
        'warning',
        '15m',
        'sum by (job) (scrape_series_refused{%s}) > 0' % c.scraped,
        'Series of targets are not stored.',
        'Targets of {{ $labels.job }} expose {{ $value | humanize }} series that the server refuses.',
      ),
      alert(
        'PrometheusRulesBlind',
        'warning',
        '15m',
        'prometheus_guard_blind_rules{%s} > 0' % s,
        'Rules read nothing but what drop rules discard.',
        '{{ $value }} rules of {{ $labels.instance }} have a selector for what the drop rule {{ $labels.drop_rule }} discards and nothing else: {{ if eq $labels.effect "absent" }}they take it for absent, and fire{{ else }}it returns nothing{{ end }}.',
      ),
      alert(
        'PrometheusWritesFail',
        'critical',
        '5m',
        'rate(prometheus_tsdb_wal_writes_failed_total{%s}[5m]) > 0' % s,
        'Prometheus stores nothing.',
        '{{ $labels.instance }} cannot write its log: what it scrapes is lost, though it is ready and answers.',
      ),
      alert(
        'PrometheusLogDamaged',
        'warning',
        '0s',
        // It is counted in the start that repairs, before anybody scrapes: there is
        // no increase to be seen.
        'prometheus_tsdb_wal_corruptions_total{%(s)s} > 0 and on (instance) time() - process_start_time_seconds{%(s)s} < 86400' % { s: s },
        'A Prometheus has lost a part of its log.',
        '{{ $labels.instance }} found its log damaged and left out what came after that place.',
      ),
      alert(
        'PrometheusCompactionsFail',
        'warning',
        '0s',
        // One that fails is tried again, every minute or every two hours.
        |||
          label_replace(increase(prometheus_tsdb_compactions_failed_total{%(s)s}[6h]) > 0, "what", "Compactions", "", "")
          or label_replace(increase(prometheus_tsdb_head_truncations_failed_total{%(s)s}[6h]) > 0, "what", "Truncations of the head", "", "")
          or label_replace(increase(prometheus_tsdb_checkpoint_creations_failed_total{%(s)s}[6h]) > 0, "what", "Checkpoints", "", "")
          or label_replace(increase(prometheus_tsdb_wal_truncations_failed_total{%(s)s}[6h]) > 0, "what", "Truncations of the log", "", "")
        ||| % { s: s },
        'Prometheus cannot tidy up its data.',
        '{{ $labels.what }} of {{ $labels.instance }} have failed within 6 hours: its log and its memory grow.',
      ),
      alert(
        'PrometheusDiskFills',
        'critical',
        '15m',
        // A compaction needs room for the new block beside the old ones.
        |||
          kubelet_volume_stats_available_bytes{%(k)s, %(volume)s} / kubelet_volume_stats_capacity_bytes{%(k)s, %(volume)s} < 0.1
          or kubelet_volume_stats_available_bytes{%(k)s, %(volume)s} / kubelet_volume_stats_capacity_bytes{%(k)s, %(volume)s} < 0.3
          and predict_linear(kubelet_volume_stats_available_bytes{%(k)s, %(volume)s}[6h], 86400) < 0
        ||| % { k: c.kubeletOwn, volume: c.dataVolume },
        'The disk of a Prometheus is nearly full.',
        'The volume {{ $labels.persistentvolumeclaim }} has {{ $value | humanizePercentage }} left, or less than it takes in a day.',
      ),
    ],
  }
