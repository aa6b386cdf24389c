// The same as the kustomization beside it, for those who build kube-prometheus with
// jsonnet:
//
//   local kp = (import 'kube-prometheus/main.libsonnet')
//     + (import 'promguard/deploy/kubernetes/kube-prometheus/addon.libsonnet');
//
// kp.promguard has the objects that are new.
local patched = std.parseYaml(importstr '../components/patched-prometheus/prometheus.yaml');
local networkPolicy = std.parseYaml(importstr 'prometheus-networkpolicy.yaml');
local datasources = std.parseYaml(importstr 'grafana-datasources.yaml');
local grafana = std.parseYaml(importstr 'grafana-deployment.yaml').spec.template.spec;
local mixin = import '../../mixin/mixin.libsonnet';

// hashed is a ConfigMap whose name changes with its content, so that pods roll.
local hashed(name, labels, data) = {
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: {
    name: name + '-' + std.md5(std.manifestJsonMinified(data))[0:10],
    namespace: 'monitoring',
    labels: labels,
  },
  data: data,
};
// merged is what the kustomization makes of a list whose elements have names: those
// of the patch come first, on top of those that are there by the same name.
local merged(list, patch) =
  local names = [p.name for p in patch];
  [std.foldl(std.mergePatch, [x for x in list if x.name == p.name] + [p], {}) for p in patch]
  + [x for x in list if !std.member(names, x.name)];
// with makes the volumes that have a ConfigMap read one of another name.
local with(volumes, configMap) = [
  if 'configMap' in v then v { configMap+: { name: configMap.metadata.name } } else v
  for v in volumes
];

{
  prometheus+: {
    prometheus+: { spec+: {
      image: patched.spec.image,
      version: patched.spec.version,
      containers: merged(if 'containers' in super then super.containers else [], patched.spec.containers),
    } },
    networkPolicy+: { spec+: { ingress: networkPolicy[0].value } },
  },

  grafana+: {
    dashboardDatasources+: { stringData: datasources.stringData },
    deployment+: { spec+: { template+: { spec+: {
      containers: [
        if c.name == 'grafana'
        then c { volumeMounts+: grafana.containers[0].volumeMounts }
        else c
        for c in super.containers
      ],
      volumes+: with(grafana.volumes, $.promguard.dashboards),
    } } } },
  },

  promguard: {
    local this = self,
    config: hashed('promguard', this.deployment.metadata.labels, { 'promguard.yml': importstr '../promguard/promguard.yml' }),
    dashboards: hashed('promguard-dashboards', { 'app.kubernetes.io/name': 'promguard', grafana_dashboard: '1' }, {
      [name]: std.manifestJsonEx(mixin.grafanaDashboards[name], '  ') + '\n'
      for name in std.objectFields(mixin.grafanaDashboards)
    }),
    deployment: std.parseYaml(importstr '../promguard/deployment.yaml') + {
      spec+: { template+: { spec+: { volumes: with(super.volumes, this.config) } } },
    },
    horizontalPodAutoscaler: std.parseYaml(importstr '../promguard/horizontalpodautoscaler.yaml'),
    networkPolicy: std.parseYaml(importstr '../promguard/networkpolicy.yaml'),
    podDisruptionBudget: std.parseYaml(importstr '../promguard/poddisruptionbudget.yaml'),
    prometheusRule: std.parseYaml(importstr '../../grafana/prometheusrule.yaml'),
    service: std.parseYaml(importstr '../promguard/service.yaml'),
    serviceAccount: std.parseYaml(importstr '../promguard/serviceaccount.yaml'),
    serviceMonitor: std.parseYaml(importstr '../promguard/servicemonitor.yaml'),
  },
}
