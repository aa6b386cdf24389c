// GPUs: errors that take a node out of work, and use. Graphs read records: there are
// tens of thousands of GPUs.
local g = import '../lib/grafana.libsonnet';

function(c) local s = c.dcgm, n = (import '../lib/records.libsonnet')(c); g.dashboard(
  'promguard / GPUs',
  'promguard-gpu',
  "Xid errors, memory errors and use of GPUs, from NVIDIA's DCGM exporter.",
  [
    g.row('Now', [
      g.stat('GPUs', 'That report their temperature.', 'locale', [g.query('count(count by (Hostname, gpu) (DCGM_FI_DEV_GPU_TEMP{%s}))' % s)]),
      g.stat('Cannot be given out', 'What the nodes have, less what their device plugins call healthy.', 'short', [g.query('sum(max by (node) (kube_node_status_capacity{%(s)s, resource="nvidia_com_gpu"}) - max by (node) (kube_node_status_allocatable{%(s)s, resource="nvidia_com_gpu"}))' % { s: c.ksm })], [[null, 'green'], [1, 'orange']]),
      g.stat('Out of work', 'With an Xid after which a GPU does no work, in the last hour or as the last there was. Nodes that are cordoned count, too.', 'short', [g.query(g.measured('count(count by (Hostname, gpu, UUID) (%s{xid=~"%s"}))' % [n.xids, c.xids], 'DCGM_FI_DEV_XID_ERRORS{%s}' % s))], [[null, 'green'], [1, 'red']]),
      g.stat('With double bit errors', 'Since the driver was loaded.', 'short', [g.query(g.measured('count(count by (Hostname, gpu) (DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{%s} > 0))' % s, 'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{%s}' % s))], [[null, 'green'], [1, 'red']]),
      g.stat('Whose remapping failed', 'To be replaced.', 'short', [g.query(g.measured('count(count by (Hostname, gpu) (DCGM_FI_DEV_ROW_REMAP_FAILURE{%s} > 0))' % s, 'DCGM_FI_DEV_ROW_REMAP_FAILURE{%s}' % s))], [[null, 'green'], [1, 'red']]),
      g.stat('In use', 'Mean share of time in which something ran.', 'percent', [g.query('avg(max by (Hostname, gpu, UUID) (DCGM_FI_DEV_GPU_UTIL{%s}))' % s)]),
    ]),
    g.row('Errors', [
      g.table('Xids', "NVIDIA's catalog says what they mean. Those of programs, such as 13, 31, 43 and 45, take no GPU out of work.", 'short', g.query('topk(200, count by (Hostname, gpu, UUID, xid) (%s))' % n.xids), first=['xid', 'Hostname', 'gpu']),
      g.timeseries('Double bit errors', 'Of the 10 minutes before, not corrected: what ran there is lost.', 'short', [g.query('topk(20, %s)' % n.doubleBit, '{{Hostname}} GPU {{gpu}}')]),
      g.timeseries('Single bit errors', 'Of the 10 minutes before, corrected; many of them are a warning.', 'short', [g.query('topk(20, %s)' % n.singleBit, '{{Hostname}} GPU {{gpu}}')]),
      g.table('Rows remapped', 'Because of errors that were not corrected; the spare rows are few.', 'short', g.query('topk(20, max by (Hostname, gpu, UUID) (DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{%s}) > 0)' % s), first=['Hostname', 'gpu']),
    ]),
    g.row('Use', [
      g.timeseries('Busy', 'Quantiles over all GPUs: stragglers show below.', 'percent', [g.query(n.utilization, 'p{{quantile}}')], max=100),
      g.timeseries('Power', 'Of all GPUs.', 'watt', [g.query(n.power, 'power')]),
      g.timeseries('Idle though taken, by namespace', 'GPUs that a pod has and has not used for 15 minutes.', 'short', [g.query('topk(20, %s)' % n.idle, '{{namespace}}')]),
      g.table('Hottest now', '', 'celsius', g.query('topk(10, max by (Hostname, gpu) (DCGM_FI_DEV_GPU_TEMP{%s}))' % s)),
    ]),
    g.row('One node', [
      g.timeseries('Busy, of $node', 'Its GPUs one by one.', 'percent', [g.query('max by (gpu) (DCGM_FI_DEV_GPU_UTIL{%s, Hostname="$node"})' % s, 'GPU {{gpu}}')], max=100),
      g.timeseries('Temperature, of $node', '', 'celsius', [g.query('max by (gpu) (DCGM_FI_DEV_GPU_TEMP{%s, Hostname="$node"})' % s, 'GPU {{gpu}}')]),
    ]),
  ],
  [g.choice('node', 'Hostname', 'DCGM_FI_DEV_GPU_TEMP{%s}' % s)]
)
