// Whether pods find a place: the scheduler's queues, gangs of which only a part
// runs, and balloons that make room.
local g = import '../lib/grafana.libsonnet';

function(c)
  local s = c.ksm;
  g.dashboard(
    'promguard / Scheduling',
    'promguard-scheduling',
    'Pods that wait for a place, jobs whose pods must all run and do not, and the balloons that hold nodes for them.',
    [
      g.row('Waiting', [
        g.timeseries('Pods by queue', 'Of the scheduler.', 'short', [g.query('sum by (queue) (scheduler_pending_pods{%s})' % c.scheduler, '{{queue}}')], stacked=true),
        g.timeseries('Attempts', 'By result.', 'ops', [g.query('sum by (result) (rate(scheduler_schedule_attempts_total{%s}[$__rate_interval]))' % c.scheduler, '{{result}}')], stacked=true),
        g.timeseries('Why not', 'Pods that a plugin of the scheduler refused.', 'short', [g.query('sum by (plugin) (scheduler_unschedulable_pods{%s}) > 0' % c.scheduler, '{{plugin}}')]),
        g.timeseries('Unschedulable by namespace', '', 'short', [g.query('topk(20, sum by (namespace) (kube_pod_status_unschedulable{%s}))' % s, '{{namespace}}')]),
      ]),
      g.row('Gangs', [
        g.timeseries('Jobs that run in part', 'Jobs with pods that run and pods that cannot be placed: what runs only waits.', 'short', [g.query('count by (namespace) (' + (import '../lib/gangs.libsonnet')(s) + ')', '{{namespace}}')]),
        g.table('Which', 'Pods that cannot be placed, of jobs that run in part.', 'short', g.query('topk(50, ' + (import '../lib/gangs.libsonnet')(s) + ')')),
        g.timeseries('Pods wanted and ready, of jobs', 'Of jobs that have not ended.', 'short', [
          g.query('sum(kube_job_spec_parallelism{%s} and on (namespace, job_name) kube_job_status_active{%s} > 0)' % [s, s], 'wanted'),
          g.query('sum(kube_job_status_ready{%s})' % s, 'ready'),
        ]),
      ]),
      g.row('Balloons', [
        g.timeseries('Balloons that run', 'Replicas wanted and available. Below what is wanted, others have taken the room, and new nodes should come.', 'short', [
          g.query('sum by (deployment) (kube_deployment_spec_replicas{%s, %s})' % [s, c.balloon], '{{deployment}} wanted'),
          g.query('sum by (deployment) (kube_deployment_status_replicas_available{%s, %s})' % [s, c.balloon], '{{deployment}} available'),
        ]),
        g.timeseries('Preemptions', 'Attempts to make room by evicting pods of lower priority.', 'ops', [g.query('sum(rate(scheduler_preemption_attempts_total{%s}[$__rate_interval]))' % c.scheduler, 'attempts')]),
      ]),
    ]
  )
