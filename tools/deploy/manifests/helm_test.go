// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const chartDir = "../../../deploy/helm/promguard"

// template does what helm template NAME does, the check of values against the
// schema included.
func template(t *testing.T, release, values string) (map[string]string, error) {
	t.Helper()
	chart, err := loader.Load(chartDir)
	require.NoError(t, err)
	var v map[string]any
	require.NoError(t, yaml.UnmarshalStrict([]byte(values), &v))
	caps := chartutil.DefaultCapabilities
	merged, err := chartutil.ToRenderValues(chart, v, chartutil.ReleaseOptions{Name: release, Namespace: "monitoring"}, caps)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, merged)
}

func mustTemplate(t *testing.T, release, values string) []byte {
	t.Helper()
	files, err := template(t, release, values)
	require.NoError(t, err)
	var stream []string
	for name, text := range files {
		if strings.HasSuffix(name, ".yaml") && !strings.Contains(name, "/tests/") {
			stream = append(stream, text)
		}
	}
	return []byte(strings.Join(stream, "\n---\n"))
}

// variants are values by what they try.
var variants = map[string]string{
	"defaults":               "{}",
	"no network policy":      "networkPolicy: {enabled: false}\nserviceMonitor: {enabled: false}",
	"data source":            "datasource: {enabled: true}",
	"thanos":                 "upstream: {urls: ['http://thanos-query:9090'], kind: thanos, podLabels: {app: thanos-query}, port: 10902}",
	"everything that can be": "podAnnotations: {a: b}\nnodeSelector: {a: b}\ntolerations: [{key: a, operator: Exists}]\naffinity: {podAntiAffinity: {}}\nimagePullSecrets: [{name: a}]\nextraArgs: ['--log.level=debug']\nserviceMonitor: {labels: {release: a}}",
}

func TestTheChartGivesObjectsThatTheClusterKnows(t *testing.T) {
	for name, values := range variants {
		t.Run(name, func(t *testing.T) {
			requireConsistent(t, decode(t, mustTemplate(t, "promguard", values)))
			files, err := template(t, "promguard", values)
			require.NoError(t, err)
			decode(t, []byte(files["promguard/templates/tests/query.yaml"]))
			require.Contains(t, files["promguard/templates/NOTES.txt"], "helm test promguard")
		})
	}
}

func TestAWebConfigIsMountedAndItsPathGiven(t *testing.T) {
	c := proxyContainer(t, mustTemplate(t, "promguard", "webConfigSecret: web"))
	require.Contains(t, c.Args, "--web.config.file=/etc/promguard-web/web.yml")
	require.Equal(t, "/etc/promguard-web", c.VolumeMounts[1].MountPath)
}

func TestTheChartAndTheKustomizationRunTheSamePromguard(t *testing.T) {
	chart, base := decode(t, mustTemplate(t, "promguard", "{}")), decode(t, build(t, kubernetes+"promguard"))

	got, want := find[*appsv1.Deployment](t, chart).Spec.Template.Spec, find[*appsv1.Deployment](t, base).Spec.Template.Spec
	require.Len(t, got.Containers, 1)
	got.Containers[0].ImagePullPolicy = "" // Written out by the chart.
	got.TopologySpreadConstraints[0].LabelSelector, want.TopologySpreadConstraints[0].LabelSelector = nil, nil
	got.Volumes[0].ConfigMap.Name, want.Volumes[0].ConfigMap.Name = "", ""
	require.Equal(t, want, got)

	require.Equal(t, find[*corev1.Service](t, base).Spec.Ports, find[*corev1.Service](t, chart).Spec.Ports)
	require.Equal(t, find[*networkingv1.NetworkPolicy](t, base).Spec.Egress, find[*networkingv1.NetworkPolicy](t, chart).Spec.Egress)
	require.Equal(t, find[*policyv1.PodDisruptionBudget](t, base).Spec.MaxUnavailable, find[*policyv1.PodDisruptionBudget](t, chart).Spec.MaxUnavailable)

	var policies []any
	for _, objects := range [][]byte{mustTemplate(t, "promguard", "{}"), build(t, kubernetes+"promguard")} {
		var policy any
		require.NoError(t, yaml.Unmarshal([]byte(find[*corev1.ConfigMap](t, decode(t, objects)).Data["promguard.yml"]), &policy))
		policies = append(policies, policy)
	}
	require.Equal(t, policies[1], policies[0])
}

func TestTheDataSourceIsTheOneThatIsProvisioned(t *testing.T) {
	var config *corev1.ConfigMap
	for _, o := range decode(t, mustTemplate(t, "promguard", "datasource: {enabled: true}")) {
		if c, ok := o.(*corev1.ConfigMap); ok && c.Name == "promguard-datasource" {
			config = c
		}
	}
	require.NotNil(t, config)
	file, err := os.ReadFile("../../../deploy/grafana/provisioning/datasources/promguard.yaml")
	require.NoError(t, err)
	require.YAMLEq(t, string(file), config.Data["promguard.yaml"])
	require.Contains(t, string(file), "prometheusVersion: "+strings.TrimPrefix(upstream(t, "tag"), "v")+"\n")

	overlay := find[*corev1.Secret](t, decode(t, build(t, kubernetes+"testdata/overlay")))
	require.YAMLEq(t, string(file), overlay.StringData["datasources.yaml"])
}

func TestPromguardMayReachADNSCacheAndWhatElseIsNamed(t *testing.T) {
	egress := func(values string) []networkingv1.NetworkPolicyEgressRule {
		return find[*networkingv1.NetworkPolicy](t, decode(t, mustTemplate(t, "promguard", values))).Spec.Egress
	}
	rules := egress("{}")
	require.Len(t, rules, 2)
	require.Equal(t, "169.254.20.10/32", rules[1].To[1].IPBlock.CIDR)

	rules = egress(`networkPolicy: {dns: [{ipBlock: {cidr: 10.1.2.3/32}}], extraEgress: [{to: [{ipBlock: {cidr: 10.4.0.0/16}}]}]}`)
	require.Len(t, rules, 3)
	require.Len(t, rules[1].To, 1)
	require.Equal(t, "10.1.2.3/32", rules[1].To[0].IPBlock.CIDR)
	require.Len(t, rules[1].Ports, 2, "DNS is over UDP and TCP")
	require.Equal(t, "10.4.0.0/16", rules[2].To[0].IPBlock.CIDR)
}

func TestTheMemoryLimitOfGoFollowsTheContainers(t *testing.T) {
	for values, want := range map[string]string{
		"{}":                                                     "460MiB",
		"resources: {limits: {memory: 128Mi}}":                   "115MiB",
		"resources: {limits: {memory: 1Gi}}":                     "921MiB",
		"resources: {limits: {memory: 1.5G}}":                    "1287MiB",
		"resources: {limits: {memory: 500000000}}":               "429MiB",
		"resources: {limits: {memory: 1Gi}}\ngoMemLimit: 300MiB": "300MiB",
		"resources: {limits: {memory: 64Mi}}\ngoMemLimit: 32MiB": "32MiB",
	} {
		env := proxyContainer(t, mustTemplate(t, "promguard", values)).Env
		require.Equal(t, []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: want}}, env, values)
	}
	require.Empty(t, proxyContainer(t, mustTemplate(t, "promguard", "resources: {limits: null}")).Env)
	_, err := template(t, "promguard", "resources: {limits: {memory: half}}")
	require.ErrorContains(t, err, "write it like 512Mi")
}

func TestPromguardMayReachTheServersPortsAndNoOthers(t *testing.T) {
	for values, want := range map[string][]int{
		"{}":                                                          {9090},
		"upstream: {urls: ['http://a:8080/x']}":                       {8080},
		"upstream: {urls: ['https://a']}":                             {443},
		"upstream: {urls: ['http://a/p:9']}":                          {80},
		"upstream: {urls: ['http://a:1', 'http://b:2']}":              {1, 2},
		"upstream: {urls: ['http://thanos-query:9090'], port: 10902}": {10902},
	} {
		var got []int
		for _, port := range find[*networkingv1.NetworkPolicy](t, decode(t, mustTemplate(t, "promguard", values))).Spec.Egress[0].Ports {
			got = append(got, port.Port.IntValue())
		}
		require.Equal(t, want, got, values)
	}
}

func TestListsThatAreTakenAwayLetNobodyIn(t *testing.T) {
	policy := find[*networkingv1.NetworkPolicy](t, decode(t, mustTemplate(t, "promguard", "networkPolicy: {readers: null, monitors: null, dns: null}")))
	require.Len(t, policy.Spec.Ingress, 1)
	require.Len(t, policy.Spec.Ingress[0].From, 1, "the pod of helm test")
	require.Len(t, policy.Spec.Egress, 1)
}

func TestMoreReplicasAtLeastThanAtMostAreRefused(t *testing.T) {
	_, err := template(t, "promguard", "autoscaling: {minReplicas: 5, maxReplicas: 4}")
	require.ErrorContains(t, err, "autoscaling.minReplicas is 5, more than maxReplicas, which is 4")
}

func TestTheKindOfServerAndTheAccountAreThoseThatAreNamed(t *testing.T) {
	objects := decode(t, mustTemplate(t, "promguard", variants["thanos"]))
	pod := find[*appsv1.Deployment](t, objects).Spec.Template.Spec
	require.Contains(t, pod.Containers[0].Args, "--upstream.kind=thanos")
	require.Equal(t, find[*corev1.ServiceAccount](t, objects).Name, pod.ServiceAccountName)
}

func TestTheSchemaRefusesValuesThatAreWrong(t *testing.T) {
	for name, values := range map[string]string{
		"unknown key":        "upstreem: {}",
		"unknown nested key": "upstream: {url: http://a}",
		"no URL":             "upstream: {urls: [prometheus:9090]}",
		"unknown kind":       "upstream: {kind: influx}",
		"port as text":       "service: {port: '9091'}",
		"DNS by nobody":      "networkPolicy: {dns: []}",
		"policy as text":     "policy: 'limits: {}'",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := template(t, "promguard", values)
			require.ErrorContains(t, err, "values don't meet the specifications of the schema")
		})
	}
}

func TestHelmLintFindsNothing(t *testing.T) {
	result := lint.All(chartDir, nil, "monitoring", true)
	for _, m := range result.Messages {
		require.Less(t, m.Severity, support.WarningSev, m.Error())
	}
}

func TestTheChartsAppVersionIsThatOfTheRelease(t *testing.T) {
	chart, err := loader.Load(chartDir)
	require.NoError(t, err)
	require.Equal(t, upstream(t, "tag")+"-"+upstream(t, "release"), chart.Metadata.AppVersion)
}

// find returns the first object of a type.
func find[T any](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	for _, o := range objects {
		if found, ok := o.(T); ok {
			return found
		}
	}
	var none T
	t.Fatalf("no %T", none)
	return none
}
