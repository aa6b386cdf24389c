// What differs from cluster to cluster. Override with mixin + { _config+:: {...} }.
{
  _config+:: {
    // Whether there is a guard: without one its dashboards and alerts are left out.
    withGuard: true,

    // Which series are whose: the jobs of kube-prometheus, of the chart
    // kube-prometheus-stack under any release name, and of plain configurations.
    guard: 'job="promguard"',
    prometheus: 'job=~"(.+[-/])?prometheus(-k8s)?"',
    apiserver: 'job="apiserver"',
    // Every job that is called after etcd: one of others' etcds is told of, too,
    // where it is scraped.
    etcd: 'job=~".*etcd.*"',
    ksm: 'job="kube-state-metrics"',
    // Of kube-state-metrics' targets those that know objects: not its own metrics.
    ksmUp: 'job="kube-state-metrics", endpoint!="https-self"',
    scheduler: 'job="kube-scheduler"',
    kubelet: 'job="kubelet", metrics_path="/metrics/cadvisor"',
    dcgm: 'job=~"(nvidia-)?dcgm-exporter"',

    // Interfaces of pods, by the names that container runtimes and Multus give them.
    // Pods on the network of their host have all of the node's, most of the series.
    podInterfaces: 'interface=~"(eth|net)[0-9]+"',

    // Traffic that iptables rules count: the name of the counter, and the labels
    // that the comments of the rules give it.
    traffic: 'iptables_bytes_total',
    trafficNamespace: 'namespace',
    trafficTeam: 'team',
    trafficDirection: 'traffic',

    // Owners all of whose pods must run for any to be of use. A LeaderWorkerSet's
    // pods belong to StatefulSets: add those with the namespaces they are in.
    gangs: 'owner_kind=~"Job|PyTorchJob|MPIJob|TFJob|JAXJob|XGBoostJob|PaddleJob"',

    // Xids after which a GPU does no work: NVIDIA's catalog says reset or reboot.
    // Those that programs cause, such as 13, 31, 43 and 45, are not here.
    xids: '48|62|64|74|79|95|119|120|140|149|154',
    // So many GPUs at once are no matter of single ones: a driver, a rack, a fabric.
    gpusAtOnce: 16,

    // Deployments of low priority that hold nodes for those that come.
    balloon: 'deployment=~".*balloon.*"',

    // Nodes that join or leave within ten minutes before it is called a burst, as
    // a share of all, and at least so many.
    burstRatio: 0.05,
    burstNodes: 5,
    // The same for nodes that are not ready.
    notReadyRatio: 0.01,

    runbook: 'https://github.com/promguard/promguard/blob/main/docs/alerts.md#',
  },
}
