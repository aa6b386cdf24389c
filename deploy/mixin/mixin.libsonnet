// promguard's mixin: dashboards by file name, recording rules, and alerts.
(import 'config.libsonnet') + {
  local guarded(value, without) = if $._config.withGuard then value else without,

  grafanaDashboards+:: guarded({
    'promguard-guard.json': (import 'dashboards/guard.libsonnet')($._config),
  }, {}) + {
    'promguard-refusals.json': (import 'dashboards/refusals.libsonnet')($._config),
    'promguard-queries.json': (import 'dashboards/queries.libsonnet')($._config),
    'promguard-server.json': (import 'dashboards/server.libsonnet')($._config),
    'promguard-drop-rules.json': (import 'dashboards/drop-rules.libsonnet')($._config),
    'promguard-apiserver.json': (import 'dashboards/apiserver.libsonnet')($._config),
    'promguard-etcd.json': (import 'dashboards/etcd.libsonnet')($._config),
    'promguard-network.json': (import 'dashboards/network.libsonnet')($._config),
    'promguard-gpu.json': (import 'dashboards/gpu.libsonnet')($._config),
    'promguard-nodes.json': (import 'dashboards/nodes.libsonnet')($._config),
    'promguard-scheduling.json': (import 'dashboards/scheduling.libsonnet')($._config),
  },

  prometheusRules+:: {
    groups: (import 'records.libsonnet')($._config),
  },

  prometheusAlerts+:: {
    groups: guarded([(import 'alerts/guard.libsonnet')($._config)], []) + [
      (import 'alerts/server.libsonnet')($._config),
      (import 'alerts/control-plane.libsonnet')($._config),
      (import 'alerts/nodes.libsonnet')($._config),
    ],
  },
}
