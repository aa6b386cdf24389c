// promguard's mixin: dashboards by file name, recording rules, and alerts.
(import 'config.libsonnet') + {
  // Dashboards read one cluster, which is none where there is but one: then no series
  // has such a label.
  local ofCluster = (import 'lib/cluster.libsonnet')($._config),
  local dashboard(make) = ofCluster.dashboard(make(ofCluster.config)),
  local proxied(value, without) = if $._config.withPromguard then value else without,

  grafanaDashboards+:: proxied({
    'promguard-proxy.json': dashboard(import 'dashboards/proxy.libsonnet'),
  }, {}) + {
    'promguard-refusals.json': dashboard(import 'dashboards/refusals.libsonnet'),
    'promguard-queries.json': dashboard(import 'dashboards/queries.libsonnet'),
    'promguard-server.json': dashboard(import 'dashboards/server.libsonnet'),
    'promguard-drop-rules.json': dashboard(import 'dashboards/drop-rules.libsonnet'),
    'promguard-apiserver.json': dashboard(import 'dashboards/apiserver.libsonnet'),
    'promguard-etcd.json': dashboard(import 'dashboards/etcd.libsonnet'),
    'promguard-network.json': dashboard(import 'dashboards/network.libsonnet'),
    'promguard-gpu.json': dashboard(import 'dashboards/gpu.libsonnet'),
    'promguard-nodes.json': dashboard(import 'dashboards/nodes.libsonnet'),
    'promguard-scheduling.json': dashboard(import 'dashboards/scheduling.libsonnet'),
  },

  prometheusRules+:: {
    groups: (import 'records.libsonnet')($._config),
  },

  prometheusAlerts+:: {
    groups: proxied([(import 'alerts/proxy.libsonnet')($._config)], []) + [
      (import 'alerts/server.libsonnet')($._config),
      (import 'alerts/shards.libsonnet')($._config),
      (import 'alerts/control-plane.libsonnet')($._config),
      (import 'alerts/nodes.libsonnet')($._config),
    ],
  },
}
