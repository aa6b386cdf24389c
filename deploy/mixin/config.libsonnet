// What differs from cluster to cluster. Override with mixin + { _config+:: {...} }.
{
  _config+:: {
    // Which series are whose: the jobs of kube-prometheus, of the chart
    // kube-prometheus-stack, and of plain configurations.
    guard: 'job="promguard"',
    prometheus: 'job=~"prometheus|prometheus-k8s|kube-prometheus-stack-prometheus"',
    apiserver: 'job="apiserver"',
    etcd: 'job=~"etcd|kube-etcd"',
    ksm: 'job="kube-state-metrics"',
    scheduler: 'job="kube-scheduler"',
    kubelet: 'job="kubelet", metrics_path="/metrics/cadvisor"',
    dcgm: 'job=~"(nvidia-)?dcgm-exporter"',

    // Traffic that iptables rules count: the name of the counter, and the labels
    // that the comments of the rules give it.
    traffic: 'iptables_bytes_total',
    trafficNamespace: 'namespace',
    trafficTeam: 'team',
    trafficDirection: 'traffic',

    // Deployments of low priority that hold nodes for those that come.
    balloon: 'deployment=~".*balloon.*"',

    // Nodes that join or leave within ten minutes before it is called a burst, as
    // a share of all, and at least so many.
    burstRatio: 0.05,
    burstNodes: 5,

    runbook: 'https://github.com/promguard/promguard/blob/main/docs/alerts.md#',
  },
}
