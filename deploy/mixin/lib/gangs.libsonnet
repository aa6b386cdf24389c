// Gangs: owners all of whose pods must run for any of them to be of use.
{
  // waiting and running count a gang's pods, those that find no place and those that
  // run. config chooses the owners. Each side is one series for each pod, though two
  // kube-state-metrics export it, as they do during each rollout.
  local of(c, expr, over='sum') = |||
    %s by (namespace, owner_kind, owner_name) (
      %s
      * on (namespace, pod) group_left (owner_kind, owner_name)
      max by (namespace, pod, owner_kind, owner_name) (kube_pod_owner{%s, %s, owner_is_controller="true"})
    )
  ||| % [over, expr, c.ksm, c.gangs],
  waiting(c):: of(c, 'max by (namespace, pod) (kube_pod_status_unschedulable{%s})' % c.ksm),
  running(c):: of(c, 'max by (namespace, pod) (kube_pod_status_phase{%s, phase="Running"})' % c.ksm),

  // restarts says how often a gang of two pods and more, of which running is the
  // record, has started again within an hour: the most restarts of a container of its
  // pods, and failed pods of a Job for each that runs at a time; and how often the Jobs
  // of a JobSet were made anew.
  restarts(c, running)::
    local within(metric) = '((%(metric)s - %(metric)s offset 1h) or %(metric)s)' % { metric: metric };
    |||
      max by (namespace, owner_kind, owner_name) (
        (
          %(containers)s
          or label_replace(label_replace(label_replace(
            max by (namespace, job_name) %(failed)s / max by (namespace, job_name) (kube_job_spec_parallelism{%(s)s}),
            "of", "pods", "", ""), "owner_kind", "Job", "", ""), "owner_name", "$1", "job_name", "(.+)")
        )
        and on (namespace, owner_kind, owner_name) max_over_time(%(running)s[1h]) > 1
        or
        max by (namespace, job_name) (changes(kube_job_created{%(s)s}[1h]))
          * on (namespace, job_name) group_left (owner_kind, owner_name)
          max by (namespace, job_name, owner_kind, owner_name) (kube_job_owner{%(s)s, owner_kind="JobSet"})
      ) > 0
    ||| % {
      containers: of(c, '(max by (namespace, pod) %s)' % within('kube_pod_container_status_restarts_total{%s}' % c.ksm), over='max'),
      failed: within('kube_job_status_failed{%s}' % c.ksm),
      running: running,
      s: c.ksm,
    },

  // inPart is the number of waiting pods, of each gang of which others run, from
  // records of both. The Jobs of a JobSet are one gang; a Job that is to end more
  // often than it runs at a time is a queue, and none.
  inPart(c, waiting, running)::
    local set = 'label_replace(label_replace(max by (namespace, job_name, owner_name) (kube_job_owner{%s, owner_kind="JobSet"}), "set", "$1", "owner_name", "(.+)"), "owner_name", "$1", "job_name", "(.+)")' % c.ksm;
    local ofSet(record) = 'sum by (namespace, owner_kind, owner_name) (label_replace(label_replace(sum by (namespace, set) (%s{owner_kind="Job"} * on (namespace, owner_name) group_left (set) max by (namespace, owner_name, set) (%s)), "owner_kind", "JobSet", "", ""), "owner_name", "$1", "set", "(.+)"))' % [record, set];
    local parallelism = 'max by (namespace, job_name) (kube_job_spec_parallelism{%s})' % c.ksm;
    local completions = 'max by (namespace, job_name) (kube_job_spec_completions{%s})' % c.ksm;
    |||
      (
        (%(waiting)s > 0 and %(running)s > 0)
        unless on (namespace, owner_name) %(set)s
        unless on (namespace, owner_name) label_replace(%(parallelism)s unless %(completions)s == %(parallelism)s, "owner_name", "$1", "job_name", "(.+)")
      )
      or (
        %(waitingSet)s > 0
        and %(runningSet)s > 0
      )
    ||| % {
      waiting: waiting,
      running: running,
      set: set,
      parallelism: parallelism,
      completions: completions,
      waitingSet: ofSet(waiting),
      runningSet: ofSet(running),
    },
}
