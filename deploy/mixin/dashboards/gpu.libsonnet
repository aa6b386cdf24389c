// GPUs: errors that take a node out of work, and use. Graphs read records: there are
// tens of thousands of GPUs.
local g = import '../lib/grafana.libsonnet';

function(c)
  local s = c.dcgm, n = (import '../lib/records.libsonnet')(c);
  local runbook(alert) = g.runbook(c, alert);
  local node = ['Hostname', 'Node'], gpu = ['gpu', 'GPU'], uuid = ['UUID', 'UUID'];
  g.dashboard(
    'promguard / GPUs',
    'promguard-gpu',
    "Xid errors, memory errors and use of GPUs, from NVIDIA's DCGM exporter.",
    [
      g.row('Now', [
        g.stat('GPUs', 'That report their temperature.', 'locale', [g.query('count(count by (Hostname, gpu) (DCGM_FI_DEV_GPU_TEMP{%s}))' % s)]),
        g.stat('Cannot be given out', 'What the nodes have, less what their device plugins call healthy.', 'locale', [g.query('sum(max by (node) (kube_node_status_capacity{%(s)s, resource="nvidia_com_gpu"}) - max by (node) (kube_node_status_allocatable{%(s)s, resource="nvidia_com_gpu"}))' % { s: c.ksm })], [[null, 'green'], [1, 'orange']]) + runbook('GPUsMissing'),
        g.stat('Out of work', 'With an Xid after which a GPU does no work, in the last hour or as the last there was. Nodes that are cordoned count, too. Which: the table below.', 'locale', [g.query(g.measured('count(count by (Hostname, gpu, UUID) (%s{xid=~"%s"}))' % [n.xids, c.xids], 'DCGM_FI_DEV_XID_ERRORS{%s}' % s))], [[null, 'green'], [1, 'red']]) + runbook('GPUXid'),
        g.stat('With double bit errors', 'Since the driver was loaded, though it may be long ago: the graph below has those of now.', 'locale', [g.query(g.measured('count(count by (Hostname, gpu) (DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{%s} > 0))' % s, 'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{%s}' % s))], [[null, 'green'], [1, 'orange']]) + runbook('GPUUncorrectedMemoryErrors'),
        g.stat('Whose remapping failed', 'To be replaced.', 'locale', [g.query(g.measured('count(count by (Hostname, gpu) (DCGM_FI_DEV_ROW_REMAP_FAILURE{%s} > 0))' % s, 'DCGM_FI_DEV_ROW_REMAP_FAILURE{%s}' % s))], [[null, 'green'], [1, 'red']]) + runbook('GPURowRemapFailed'),
        g.stat('In use', 'Mean share of time in which something ran.', 'percent', [g.query('avg(max by (Hostname, gpu, UUID) (DCGM_FI_DEV_GPU_UTIL{%s}))' % s)]),
      ]),
      g.row('Errors', [
        g.table('GPUs out of work', "Xids after which a GPU does no work until it is reset or replaced: NVIDIA's catalog says which of both.", 'locale', null, [node, gpu, ['xid', 'Xid'], uuid], g.query('topk(200, max by (Hostname, gpu, UUID, xid) (%s{xid=~"%s"}))' % [n.xids, c.xids])) + runbook('GPUXid'),
        g.table('Other Xids', 'On how many GPUs in the last hour. Those of programs, such as 13, 31, 43 and 45, take no GPU out of work.', 'locale', 'GPUs', [['xid', 'Xid']], g.query('count by (xid) (max by (Hostname, gpu, UUID, xid) (%s{xid!~"%s"}))' % [n.xids, c.xids])),
        g.table('Rows remapped', 'Because of errors that were not corrected; the spare rows are few.', 'locale', 'Rows', [node, gpu, uuid], g.query('topk(20, max by (Hostname, gpu, UUID) (DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{%s}) > 0)' % s)),
        g.timeseries('Double bit errors', 'Of the 10 minutes before, not corrected: what ran there is lost.', 'locale', [g.query('topk(20, max by (Hostname, gpu) (%s))' % n.doubleBit, '{{Hostname}} GPU {{gpu}}')]) + runbook('GPUUncorrectedMemoryErrors'),
        g.timeseries('Single bit errors', 'Of the 10 minutes before, corrected; many of them are a warning.', 'locale', [g.query('topk(20, max by (Hostname, gpu) (%s))' % n.singleBit, '{{Hostname}} GPU {{gpu}}')]),
      ]),
      g.row('Use', [
        g.timeseries('Busy', 'Quantiles over all GPUs: 0.1 is what the idlest tenth does not reach.', 'percent', [g.query(n.utilization, 'quantile {{quantile}}')], max=100),
        g.timeseries('Power', 'Of all GPUs. A fall without one of Busy is a rack that is gone.', 'watt', [g.query(n.power, 'power')]),
        g.timeseries('Idle though taken, by namespace', 'GPUs that a pod has and has not used for 15 minutes: whom to ask for them.', 'locale', [g.query('topk(20, %s)' % n.idle, '{{namespace}}')]),
        g.table('Hottest now', 'Beyond about 85 °C a GPU slows down: several of one node are its fans.', 'celsius', 'Temperature', [node, gpu], g.query('topk(10, max by (Hostname, gpu) (DCGM_FI_DEV_GPU_TEMP{%s}))' % s)),
      ]),
      g.row('One node', [
        g.timeseries('Busy, of $node', 'Its GPUs one by one.', 'percent', [g.query('max by (gpu) (DCGM_FI_DEV_GPU_UTIL{%s, Hostname="$node"})' % s, 'GPU {{gpu}}')], max=100),
        g.timeseries('Temperature, of $node', 'Its GPUs one by one.', 'celsius', [g.query('max by (gpu) (DCGM_FI_DEV_GPU_TEMP{%s, Hostname="$node"})' % s, 'GPU {{gpu}}')]),
      ]),
    ],
    [g.choice('node', 'Hostname', 'DCGM_FI_DEV_GPU_TEMP{%s}' % s)]
  )
