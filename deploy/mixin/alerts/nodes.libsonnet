function(c)
  local alert(name, severity, wait, expr, summary, description) = (import '../lib/alert.libsonnet')(c, name, severity, wait, expr, summary, description);
  local s = c.ksm, d = c.dcgm, n = (import '../lib/records.libsonnet')(c);
  // Errors of GPUs are tickets until somebody cordons the node: it is being dealt with.
  local gpusAtWork(expr) = '%s unless on (Hostname) label_replace(max by (node) (kube_node_spec_unschedulable{%s}) == 1, "Hostname", "$1", "node", "(.+)")' % [expr, s];
  local broken = gpusAtWork('%s{xid=~"%s"}' % [n.xids, c.xids]);
  {
    name: 'promguard-nodes',
    rules: [
      alert(
        'NodesNotReady',
        'critical',
        '5m',
        |||
          sum(%(conditions)s{condition="Ready", status=~"false|unknown"}) > %(least)d
          and sum(%(conditions)s{condition="Ready", status=~"false|unknown"}) > %(ratio)g * sum(%(nodes)s)
        ||| % { conditions: n.conditions, nodes: n.nodes, least: c.burstNodes, ratio: c.notReadyRatio },
        'Many nodes are not ready.',
        '{{ $value }} nodes have not been ready for 5 minutes: their pods are soon moved elsewhere.',
      ),
      alert(
        'NodesJoinedInBurst',
        'info',
        '0s',
        |||
          %(joined)s > %(least)d
          and %(joined)s > on () clamp_max(%(ratio)g * sum(%(nodes)s), %(most)d)
        ||| % { joined: n.joined, nodes: n.nodes, least: c.burstNodes, ratio: c.burstRatio, most: c.burstMost },
        'Many nodes joined at once.',
        '{{ $value }} nodes were created within 10 minutes; daemons on each of them now list and watch.',
      ),
      alert(
        'NodesLeftInBurst',
        'warning',
        '2m',
        // A kube-state-metrics that is away, one shard of several too, takes its nodes with it.
        |||
          %(left)s > %(least)d
          and %(left)s > on () clamp_max(%(ratio)g * sum(%(nodes)s offset 10m), %(most)d)
          unless on () count(up{%(up)s} == 0)
          and on () sum(up{%(up)s}) >= sum(up{%(up)s} offset 10m)
          and on () sum(%(nodes)s)
        ||| % { left: n.left, nodes: n.nodes, up: c.ksmUp, least: c.burstNodes, ratio: c.burstRatio, most: c.burstMost },
        'Many nodes left at once.',
        '{{ $value }} nodes that were there 10 minutes ago are gone.',
      ),
      alert(
        'NodesStuckInTaint',
        'warning',
        '5m',
        |||
          count by (key) (
            max by (node, key) (kube_node_spec_taint{%(s)s, %(new)s})
            and max by (node, key) (kube_node_spec_taint{%(s)s, %(new)s} offset 1h)
            unless on (node) max by (node) (kube_node_spec_unschedulable{%(s)s}) == 1
          )
        ||| % { s: s, new: c.newNode },
        'New nodes are not put to use.',
        '{{ $value }} nodes have had the taint {{ $labels.key }}, which is to go when they are found to be good, for more than an hour.',
      ),
      alert(
        'NodesNotScraped',
        'warning',
        '15m',
        |||
          %(unscraped)s > %(least)d
          and %(unscraped)s > scalar(%(ratio)g * sum(%(nodes)s))
        ||| % { unscraped: n.unscraped, nodes: n.nodes, least: c.burstNodes, ratio: c.notReadyRatio },
        'Many nodes are not scraped.',
        '{{ $value }} nodes have a {{ $labels.exporter }} that runs and is not scraped: nothing else will be said of them.',
      ),
      alert(
        'TeamHasFewerNodes',
        'warning',
        '30m',
        |||
          (%(team)s or 0 * last_over_time(%(team)s[1d]))
            < %(ratio)g * quantile_over_time(0.5, %(team)s[1d])
          and on () sum(%(unschedulable)s) > 0
        ||| % { team: n.teamNodes, ratio: c.teamRatio, unschedulable: n.unschedulable },
        'A team has fewer nodes than it had.',
        '{{ $value }} nodes with the taint {{ $labels.key }}={{ $labels.value }} can be used, fewer than for most of the day, and pods wait.',
      ),
      alert(
        'AddressesRunOut',
        'warning',
        '10m',
        // Who gives addresses to pods exports what it likes; that none is left shows in
        // pods that cannot be started.
        |||
          label_replace(
            max by (cidr) (kube_apiserver_clusterip_allocator_allocated_ips{%(a)s} / (kube_apiserver_clusterip_allocator_allocated_ips{%(a)s} + kube_apiserver_clusterip_allocator_available_ips{%(a)s})) > 0.9,
            "what", "of the addresses of Services are in use ($1)", "cidr", "(.+)"
          )
          or label_replace(
            max by (clusterCIDR) (node_ipam_controller_cidrset_usage_cidrs{%(m)s}) > 0.9,
            "what", "of the ranges of nodes are in use ($1)", "clusterCIDR", "(.+)"
          )
          or label_replace(
            sum(rate(kubelet_runtime_operations_errors_total{%(k)s, operation_type="run_podsandbox"}[10m]))
              / sum(rate(kubelet_runtime_operations_total{%(k)s, operation_type="run_podsandbox"}[10m]))
              > 0.2
            and sum(rate(kubelet_runtime_operations_errors_total{%(k)s, operation_type="run_podsandbox"}[10m])) > 0.2,
            "what", "of the starts of pods fail at their network", "", ""
          )
        ||| % { a: c.apiserver, m: c.controllerManager, k: c.kubeletOwn },
        'Addresses run out.',
        '{{ $value | humanizePercentage }} {{ $labels.what }}.',
      ),
      alert(
        'GPUXid',
        'warning',
        '0s',
        broken,
        'A GPU is out of work.',
        'GPU {{ $labels.gpu }} of {{ $labels.Hostname }} reports Xid {{ $labels.xid }}.',
      ),
      alert(
        'GPUsFailTogether',
        'critical',
        '0s',
        'count(count by (Hostname, gpu, UUID) (%s)) > %d' % [broken, c.gpusAtOnce],
        'Many GPUs are out of work at once.',
        '{{ $value }} GPUs on nodes that are not cordoned report errors after which they do no work.',
      ),
      alert(
        'GPUsMissing',
        'warning',
        '15m',
        // The device plugin knows a GPU that it may not give out; one that left the
        // bus altogether is known only by there having been more.
        |||
          (
            max by (node) (kube_node_status_capacity{%(s)s, resource="nvidia_com_gpu"})
              - max by (node) (kube_node_status_allocatable{%(s)s, resource="nvidia_com_gpu"})
              > 0
            or max by (node) (label_replace(%(before)s - %(now)s > 0, "node", "$1", "Hostname", "(.+)"))
          )
          unless on (node) max by (node) (kube_node_spec_unschedulable{%(s)s}) == 1
        ||| % {
          s: s,
          before: 'count by (Hostname) (count by (Hostname, gpu) (DCGM_FI_DEV_GPU_TEMP{%s} offset 1h))' % d,
          now: 'count by (Hostname) (count by (Hostname, gpu) (DCGM_FI_DEV_GPU_TEMP{%s}))' % d,
        },
        'GPUs of a node are gone.',
        '{{ $value }} GPUs of {{ $labels.node }} cannot be given out or are not seen any more.',
      ),
      alert(
        'GPUUncorrectedMemoryErrors',
        'warning',
        '0s',
        gpusAtWork(n.doubleBit),
        'A GPU lost what was in its memory.',
        'GPU {{ $labels.gpu }} of {{ $labels.Hostname }} had double bit errors within 10 minutes.',
      ),
      alert(
        'GPURowRemapFailed',
        'warning',
        '0s',
        gpusAtWork('max by (Hostname, gpu, UUID) (DCGM_FI_DEV_ROW_REMAP_FAILURE{%s}) > 0' % d),
        'A GPU has no spare rows left.',
        'GPU {{ $labels.gpu }} of {{ $labels.Hostname }} could not remap a row: it has to be replaced.',
      ),
      alert(
        'SchedulerStuck',
        'critical',
        '10m',
        // A scheduler that waits for its turn has all pending pods in its queue, too.
        |||
          max(sum by (instance) (scheduler_pending_pods{%(s)s, queue="active"})) > 100
          and on () sum(rate(scheduler_schedule_attempts_total{%(s)s, result!="error"}[10m])) == 0
        ||| % { s: c.scheduler },
        'Nothing is scheduled.',
        '{{ $value }} pods wait to be scheduled, and for 10 minutes no attempt has come to a result.',
      ),
      alert(
        'GangRunsInPart',
        'warning',
        '15m',
        n.gangInPart + ' > 0',
        'A gang holds nodes and cannot begin.',
        'Pods of {{ $labels.owner_kind }} {{ $labels.namespace }}/{{ $labels.owner_name }} that find no place while others of it run: {{ $value }}.',
      ),
      alert(
        'GangRestarts',
        'warning',
        '0s',
        '%s > %d' % [n.gangRestarts, c.gangRestarts],
        'A job starts again and again.',
        '{{ $labels.owner_kind }} {{ $labels.namespace }}/{{ $labels.owner_name }} has started again {{ $value | humanize }} times within an hour: each time it loses what it did since its last checkpoint.',
      ),
      alert(
        'BalloonsDeflated',
        'info',
        '30m',
        |||
          max by (namespace, deployment) (kube_deployment_status_replicas_available{%(s)s, %(b)s})
            < 0.5 * max by (namespace, deployment) (kube_deployment_spec_replicas{%(s)s, %(b)s})
        ||| % { s: s, b: c.balloon },
        'The room that balloons hold is taken.',
        '{{ $value }} balloons of {{ $labels.namespace }}/{{ $labels.deployment }} are left, less than half: no node has come for those that were evicted.',
      ),
    ],
  }
