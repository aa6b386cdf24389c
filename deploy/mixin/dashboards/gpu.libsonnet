// GPUs: errors that take a node out of work, and use.
local g = import '../lib/grafana.libsonnet';

function(c) local s = c.dcgm; g.dashboard(
  'promguard / GPUs',
  'promguard-gpu',
  "Xid errors, memory errors and use of GPUs, from NVIDIA's DCGM exporter.",
  [
    g.row('Now', [
      g.stat('GPUs', 'That report their temperature.', 'short', [g.query('count(DCGM_FI_DEV_GPU_TEMP{%s})' % s)]),
      g.stat('With an Xid', 'The last Xid of a GPU stays until the driver is loaded anew.', 'short', [g.query('count(DCGM_FI_DEV_XID_ERRORS{%s} > 0) or vector(0)' % s)], [[null, 'green'], [1, 'orange']]),
      g.stat('With double bit errors', 'Since the driver was loaded.', 'short', [g.query('count(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{%s} > 0) or vector(0)' % s)], [[null, 'green'], [1, 'red']]),
      g.stat('Whose remapping failed', 'To be replaced.', 'short', [g.query('count(DCGM_FI_DEV_ROW_REMAP_FAILURE{%s} > 0) or vector(0)' % s)], [[null, 'green'], [1, 'red']]),
      g.stat('In use', 'Mean share of time in which something ran.', 'percent', [g.query('avg(DCGM_FI_DEV_GPU_UTIL{%s})' % s)]),
    ]),
    g.row('Errors', [
      g.table('Last Xid', 'NVIDIA lists what they mean. 48, 64, 74, 79, 95 and 119 take the GPU out of work.', 'short', g.query('max by (Hostname, gpu, UUID, modelName) (DCGM_FI_DEV_XID_ERRORS{%s}) > 0' % s)),
      g.timeseries('Double bit errors', 'Not corrected: what ran there is lost.', 'short', [g.query('topk(20, sum by (Hostname, gpu) (increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{%s}[$__rate_interval])) > 0)' % s, '{{Hostname}} GPU {{gpu}}')]),
      g.timeseries('Single bit errors', 'Corrected; many of them are a warning.', 'short', [g.query('topk(20, sum by (Hostname, gpu) (increase(DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{%s}[$__rate_interval])) > 0)' % s, '{{Hostname}} GPU {{gpu}}')]),
      g.timeseries('Rows remapped', 'Because of errors that were not corrected; the spare rows are few.', 'short', [g.query('topk(20, DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{%s} > 0)' % s, '{{Hostname}} GPU {{gpu}}')]),
    ]),
    g.row('Use', [
      g.timeseries('Busy', 'Quantiles over all GPUs: stragglers show below.', 'percent', [g.query('quantile(%s, DCGM_FI_DEV_GPU_UTIL{%s})' % [q, s], 'p' + q) for q in ['0.1', '0.5', '0.9']], max=100),
      g.timeseries('Hottest', '', 'celsius', [g.query('topk(10, DCGM_FI_DEV_GPU_TEMP{%s})' % s, '{{Hostname}} GPU {{gpu}}')]),
      g.timeseries('Power', 'Of all GPUs.', 'watt', [g.query('sum(DCGM_FI_DEV_POWER_USAGE{%s})' % s, 'power')]),
      g.timeseries('Idle though taken, by namespace', 'GPUs that a pod has and does not use.', 'short', [g.query('count by (namespace) (DCGM_FI_DEV_GPU_UTIL{%s, pod!=""} == 0)' % s, '{{namespace}}')]),
    ]),
  ]
)
