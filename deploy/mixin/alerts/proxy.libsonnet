function(c)
  local alert(name, severity, wait, expr, summary, description) = (import '../lib/alert.libsonnet')(c, name, severity, wait, expr, summary, description);
  local s = c.proxy;
  {
    name: 'promguard-proxy',
    rules: [
      alert(
        'PromguardDown',
        'critical',
        '5m',
        // Where there never was one, nobody misses it.
        'absent(up{%(s)s} == 1) unless on () absent_over_time(promguard_config_hash{%(s)s}[1d])' % { s: s },
        'No instance of promguard can be scraped.',
        'Grafana has no data source: Prometheus can scrape no instance of promguard.',
      ),
      alert(
        'PromguardUpstreamUnreachable',
        'critical',
        '5m',
        // One of several is not ready, gets no requests, and can wait.
        'max(promguard_upstream_up{%s}) == 0' % s,
        'No instance of promguard gets an answer from its upstream.',
        'For 5 minutes no instance of promguard has got an answer over HTTP from its upstream: Grafana shows nothing.',
      ),
      alert(
        'PromguardServersDiffer',
        'warning',
        '10m',
        // Instances that begin later may not know of a hole.
        'max by (server) (promguard_upstream_state{%s, state="behind"}) == 1' % s,
        'One of two servers misses samples.',
        '{{ $labels.server }} has fewer samples than the other upstream server. It is not read from; if the other fails, graphs have a hole.',
      ),
      alert(
        'PromguardsReadDifferently',
        'warning',
        '15m',
        'count(max by (server) (promguard_upstream_preferred{%s}) == 1) >= 2' % s,
        'Instances of promguard read from different servers.',
        'For a quarter of an hour instances of promguard have read from {{ $value }} different servers: graphs flip between the two.',
      ),
      alert(
        'PromguardPolicyNotLoaded',
        'warning',
        '5m',
        'promguard_config_last_reload_successful{%s} == 0' % s,
        'An instance of promguard keeps an old policy.',
        'promguard on {{ $labels.pod }} could not load its policy file; its log says which lines are wrong.',
      ),
      alert(
        'PromguardPoliciesDiffer',
        'warning',
        '30m',
        'count(count_values("hash", promguard_config_hash{%s})) >= 2' % s,
        'Instances of promguard have different policies.',
        'For half an hour instances of promguard have had {{ $value }} different policies: the same request is let through or refused by chance.',
      ),
      alert(
        'PromguardRefusesMuch',
        'warning',
        '15m',
        |||
          sum(rate(promguard_refused_total{%(s)s}[15m]))
            / sum(rate(promguard_requests_total{%(s)s}[15m]))
            > 0.2
          and sum(rate(promguard_refused_total{%(s)s}[15m])) > 0.1
        ||| % { s: s },
        'More than a fifth of all reads is refused.',
        '{{ $value | humanizePercentage }} of the requests of the last 15 minutes were refused.',
      ),
      alert(
        'PromguardSaturated',
        'warning',
        '10m',
        'sum(rate(promguard_shed_total{%s}[5m])) > 0.1' % s,
        'Requests find no permit.',
        '{{ $value | humanize }} requests per second are shed because all permits are held and the queue is full or too slow.',
      ),
      alert(
        'PromguardUpstreamErrors',
        'warning',
        '10m',
        |||
          sum(rate(promguard_upstream_errors_total{%(s)s}[5m]))
            / sum(rate(promguard_requests_total{%(s)s}[5m]))
            > 0.05
          and sum(rate(promguard_upstream_errors_total{%(s)s}[5m])) > 0.1
        ||| % { s: s },
        'The upstream server does not answer in full.',
        'The upstream server left {{ $value | humanizePercentage }} of the requests without a whole answer.',
      ),
      alert(
        'PromguardAnswersPartial',
        'warning',
        '10m',
        'sum(rate(promguard_partial_answers_total{%s}[5m])) > 0.1' % s,
        'Thanos answers without one of its servers.',
        '{{ $value | humanize }} answers per second have a warning that a server behind Thanos gave nothing: whole if its other replica lives, and a part if not.',
      ),
      alert(
        'PromguardQueryLogLost',
        'warning',
        '5m',
        'sum by (pod) (rate(promguard_query_log_lost_total{%s}[5m])) > 0' % s,
        'Requests are missing in the query log.',
        'promguard on {{ $labels.pod }} cannot write {{ $value | humanize }} entries per second to its query log; its log says why.',
      ),
    ],
  }
