// gangs returns the number of pods that cannot be placed, of each job of which
// other pods run. selector chooses kube-state-metrics' series.
function(selector)
  local ofJobs(expr) = 'sum by (namespace, owner_name) (%s * on (namespace, pod) group_left (owner_name) kube_pod_owner{%s, owner_kind="Job"})' % [expr, selector];
  '%s > 0 and %s > 0' % [
    ofJobs('kube_pod_status_unschedulable{%s}' % selector),
    ofJobs('kube_pod_status_phase{%s, phase="Running"}' % selector),
  ]
