// Whether pods find a place: the scheduler's queues, gangs of which only a part
// runs, and balloons that make room.
local g = import '../lib/grafana.libsonnet';

function(c)
  local s = c.ksm, n = (import '../lib/records.libsonnet')(c);
  g.dashboard(
    'promguard / Scheduling',
    'promguard-scheduling',
    'Pods that wait for a place, jobs whose pods must all run and do not, and the balloons that hold nodes for them.',
    [
      g.row('Waiting', [
        g.timeseries('Pods by queue', 'Of the scheduler that works; those that wait for their turn have all pending pods in queue active.', 'locale', [g.query('sum by (queue) (scheduler_pending_pods{%(s)s} and on (instance) sum by (instance) (rate(scheduler_schedule_attempts_total{%(s)s}[15m])) > 0)' % { s: c.scheduler }, '{{queue}}')], stacked=true),
        g.timeseries('Attempts', 'By result. Without any that are scheduled while pods are in queue active, the scheduler is stuck.', 'ops', [g.query('sum by (result) (rate(scheduler_schedule_attempts_total{%s}[$__rate_interval]))' % c.scheduler, '{{result}}')], stacked=true) + g.runbook(c, 'SchedulerStuck'),
        g.timeseries('Why not', 'Pods that a plugin of the scheduler refused: NodeResourcesFit is want of room, the others are what the pods ask for.', 'locale', [g.query('max by (plugin) (sum by (instance, plugin) (scheduler_unschedulable_pods{%s})) > 0' % c.scheduler, '{{plugin}}')]),
        g.timeseries('Unschedulable by namespace', 'Pods that find no place: whose they are.', 'locale', [g.query('topk(20, %s)' % n.unschedulable, '{{namespace}}')]),
      ]),
      g.row('Gangs', [
        g.timeseries('Gangs that run in part', 'Jobs and others of which all must run, with pods that run and pods that cannot be placed: what runs only waits.', 'locale', [g.query('count by (namespace) (%s)' % n.gangInPart, '{{namespace}}')]) + g.runbook(c, 'GangRunsInPart'),
        g.table('Which', 'Gangs that run in part, and how many pods of each cannot be placed.', 'locale', 'Pods', [['namespace', 'Namespace'], ['owner_kind', 'Kind'], ['owner_name', 'Name']], g.query('topk(50, max by (namespace, owner_kind, owner_name) (%s))' % n.gangInPart)),
        g.timeseries('Pods of gangs', 'Those that run, and those that find no place.', 'locale', [
          g.query('sum(%s)' % n.gangRunning, 'run'),
          g.query('sum(%s)' % n.gangWaiting, 'find no place'),
        ]),
      ]),
      g.row('Balloons', [
        g.timeseries('Balloons that run', 'Replicas wanted and available. Below what is wanted, others have taken the room, and new nodes should come.', 'locale', [
          g.query('max by (namespace, deployment) (kube_deployment_spec_replicas{%s, %s})' % [s, c.balloon], '{{namespace}}/{{deployment}} wanted'),
          g.query('max by (namespace, deployment) (kube_deployment_status_replicas_available{%s, %s})' % [s, c.balloon], '{{namespace}}/{{deployment}} available'),
        ]) + g.runbook(c, 'BalloonsDeflated'),
        g.timeseries('Preemptions', 'Attempts to make room by evicting pods of lower priority.', 'ops', [g.query('sum(rate(scheduler_preemption_attempts_total{%s}[$__rate_interval]))' % c.scheduler, 'attempts')]),
      ]),
    ]
  )
