// What differs from cluster to cluster. Override with mixin + { _config+:: {...} }.
{
  _config+:: {
    // Whether promguard is installed: without it its dashboards and alerts are left out.
    withPromguard: true,

    // Which series are whose: the jobs of kube-prometheus, of the chart
    // kube-prometheus-stack under any release name, and of plain configurations.
    scraped: 'job=~".+"',
    proxy: 'job="promguard"',
    prometheus: 'job=~"(.+[-/])?prometheus(-k8s)?"',
    // Its volumes, as the operator calls them.
    dataVolume: 'persistentvolumeclaim=~"prometheus-.+"',
    // Thanos over shards: kube-prometheus-stack calls its sidecars otherwise.
    sidecar: 'job=~"(.+[-/])?thanos-(sidecar|discovery)"',
    query: 'job=~"(.+[-/])?thanos-query"',
    compact: 'job=~"(.+[-/])?thanos-compact(or)?"',
    apiserver: 'job="apiserver"',
    // Every job that is called after etcd: one of others' etcds is told of, too,
    // where it is scraped.
    etcd: 'job=~".*etcd.*"',
    ksm: 'job="kube-state-metrics"',
    // Of kube-state-metrics' targets those that know objects: not its own metrics.
    ksmUp: 'job="kube-state-metrics", endpoint!="https-self"',
    scheduler: 'job="kube-scheduler"',
    controllerManager: 'job="kube-controller-manager"',
    kubelet: 'job="kubelet", metrics_path="/metrics/cadvisor"',
    kubeletOwn: 'job="kubelet", metrics_path="/metrics"',
    dcgm: 'job=~"(nvidia-)?dcgm-exporter"',

    // Those of them that dashboards keep to one cluster, and the label that the
    // clusters behind one data source are told apart by.
    selectors:: ['scraped', 'proxy', 'prometheus', 'apiserver', 'etcd', 'ksm', 'scheduler', 'kubelet', 'dcgm'],
    clusterLabel: 'cluster',

    // Interfaces of pods, by the names that container runtimes and Multus give them.
    // Pods on the network of their host have all of the node's, most of the series.
    podInterfaces: 'interface=~"(eth|net)[0-9]+"',

    // Traffic that iptables rules count: the name of the counter, and the labels
    // that the comments of the rules give it.
    traffic: 'iptables_bytes_total',
    trafficNamespace: 'namespace',
    trafficTeam: 'team',
    trafficDirection: 'traffic',

    // Exporters of which each node has one, as the ends of the names of both their
    // jobs and their DaemonSets.
    exporters: '(node|dcgm)-exporter',

    // Owners all of whose pods must run for any to be of use. A LeaderWorkerSet's
    // pods belong to StatefulSets.
    gangs: 'owner_kind=~"Job|PyTorchJob|MPIJob|TFJob|JAXJob|XGBoostJob|PaddleJob|RayCluster|StatefulSet"',
    // Restarts within an hour after which a gang gets nowhere.
    gangRestarts: 3,

    // Taints that a new node loses when it is found to be good, and those that say
    // whose it is.
    newNode: 'key=~".*(preflight|uninitialized|agent-not-ready|agent-not-scheduled|startup).*"',
    team: 'key=~"(.+/)?team"',
    // The share of its nodes that a team has at least.
    teamRatio: 0.9,

    // Xids after which a GPU does no work: NVIDIA's catalog says reset or reboot.
    // Those that programs cause, such as 13, 31, 43 and 45, are not here.
    xids: '48|62|64|74|79|95|119|120|140|149|154',
    // So many GPUs at once are no matter of single ones: a driver, a rack, a fabric.
    gpusAtOnce: 16,

    // Deployments of low priority that hold nodes for those that come.
    balloon: 'deployment=~".*balloon.*"',

    // Memory of an API server beyond which it matters that it grows, and bytes per
    // second of one resource that all of them send to those that watch.
    apiserverGiB: 32,
    watchBytes: 250e6,

    // Nodes that join or leave within ten minutes before it is called a burst: a
    // share of all, but at least so many, and not more.
    burstRatio: 0.05,
    burstNodes: 5,
    burstMost: 100,
    // The same for nodes that are not ready.
    notReadyRatio: 0.01,

    runbook: 'https://github.com/promguard/promguard/blob/main/docs/alerts.md#',
  },
}
