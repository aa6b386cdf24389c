function(c)
  local alert(name, severity, wait, expr, summary, description) = (import '../lib/alert.libsonnet')(c, name, severity, wait, expr, summary, description);
  local s = c.ksm, d = c.dcgm;
  // What takes a GPU out of work; application errors such as 13 and 31 are not here.
  local xids = [48, 64, 74, 79, 95, 119];
  {
    name: 'promguard-nodes',
    rules: [
      alert(
        'NodesJoinedInBurst',
        'info',
        '0s',
        |||
          count(time() - kube_node_created{%(s)s} < 600) > %(least)d
          and count(time() - kube_node_created{%(s)s} < 600) > %(ratio)g * count(kube_node_info{%(s)s})
        ||| % { s: s, least: c.burstNodes, ratio: c.burstRatio },
        'Many nodes joined at once.',
        '{{ $value }} nodes were created within 10 minutes; daemons on each of them now list and watch.',
      ),
      alert(
        'NodesLeftInBurst',
        'warning',
        '2m',
        // A kube-state-metrics that is away, one shard of several too, takes its nodes with it.
        |||
          count(kube_node_info{%(s)s} offset 10m unless on (node) kube_node_info{%(s)s}) > %(least)d
          and count(kube_node_info{%(s)s} offset 10m unless on (node) kube_node_info{%(s)s}) > %(ratio)g * count(kube_node_info{%(s)s} offset 10m)
          unless on () count(up{%(s)s} == 0)
          and on () sum(up{%(s)s}) >= sum(up{%(s)s} offset 10m)
          and on () count(kube_node_info{%(s)s})
        ||| % { s: s, least: c.burstNodes, ratio: c.burstRatio },
        'Many nodes left at once.',
        '{{ $value }} nodes that were there 10 minutes ago are gone.',
      ),
      alert(
        'GPUXid',
        'critical',
        '0s',
        std.join(' or ', ['DCGM_FI_DEV_XID_ERRORS{%s} == %d' % [d, x] for x in xids]) + '\n',
        'A GPU is out of work.',
        'GPU {{ $labels.gpu }} of {{ $labels.Hostname }} reports Xid {{ $value }}.',
      ),
      alert(
        'GPUUncorrectedMemoryErrors',
        'critical',
        '0s',
        'increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{%s}[10m]) > 0' % d,
        'A GPU lost what was in its memory.',
        'GPU {{ $labels.gpu }} of {{ $labels.Hostname }} had double bit errors within 10 minutes.',
      ),
      alert(
        'GPURowRemapFailed',
        'critical',
        '0s',
        'DCGM_FI_DEV_ROW_REMAP_FAILURE{%s} > 0' % d,
        'A GPU has no spare rows left.',
        'GPU {{ $labels.gpu }} of {{ $labels.Hostname }} could not remap a row: it has to be replaced.',
      ),
      alert(
        'GangRunsInPart',
        'warning',
        '15m',
        (import '../lib/gangs.libsonnet')(s),
        'A job holds nodes and cannot begin.',
        'Pods of job {{ $labels.namespace }}/{{ $labels.owner_name }} that find no place while others of it run: {{ $value }}.',
      ),
      alert(
        'BalloonsDeflated',
        'info',
        '30m',
        |||
          sum by (namespace, deployment) (kube_deployment_status_replicas_available{%(s)s, %(b)s})
            < 0.5 * sum by (namespace, deployment) (kube_deployment_spec_replicas{%(s)s, %(b)s})
        ||| % { s: s, b: c.balloon },
        'The room that balloons hold is taken.',
        '{{ $value }} balloons of {{ $labels.namespace }}/{{ $labels.deployment }} are left, less than half: no node has come for those that were evicted.',
      ),
    ],
  }
