// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

func TestShardedServersAreReadThroughThanosAndPromguard(t *testing.T) {
	objects := decode(t, build(t, kubernetes+"testdata/sharded"))
	set := index(t, objects)
	args := set.deployments["promguard"].Spec.Template.Spec.Containers[0].Args
	require.Contains(t, args, "--upstream.url=http://thanos-query-frontend:10902")
	require.Contains(t, args, "--upstream.kind=thanos")
	require.NotContains(t, args, "--upstream.url=http://prometheus-k8s-0.prometheus-operated:9090")
	require.Contains(t, set.services, "thanos-query-frontend")

	p, r := find[*monitoringv1.Prometheus](t, objects), find[*monitoringv1.ThanosRuler](t, objects)
	require.Equal(t, int32(3), *p.Spec.Shards)
	require.Equal(t, int32(2), *p.Spec.Replicas)
	require.Contains(t, *p.Spec.Image, "promguard")
	require.True(t, set.secrets[p.Spec.Thanos.ObjectStorageConfig.Name])
	require.True(t, set.secrets[r.Spec.ObjectStorageConfig.Name])
	require.Equal(t, *p.Spec.Thanos.Image, r.Spec.Image)

	query := set.deployments["thanos-query"].Spec.Template.Spec.Containers[0]
	require.Equal(t, r.Spec.Image, query.Image)
	require.Contains(t, query.Args, "--query.replica-label=prometheus_replica")
	require.Contains(t, query.Args, "--query.replica-label="+r.Spec.AlertDropLabels[0])
	require.Contains(t, r.Spec.QueryEndpoints, "dns+thanos-rule-query:10902", "readers do not hold up rules")
	require.Contains(t, set.services, "thanos-rule-query")
	require.Contains(t, find[*corev1.Secret](t, objects).StringData["datasources.yaml"], "prometheusType: Thanos\n")
}

// TestThanosQueryNamesEveryServer: one that is looked up and gone is missing without a word.
func TestThanosQueryNamesEveryServer(t *testing.T) {
	requireEveryServerNamed(t, decode(t, build(t, kubernetes+"testdata/sharded")))
}

func requireEveryServerNamed(t *testing.T, objects []runtime.Object) {
	t.Helper()
	p, r := find[*monitoringv1.Prometheus](t, objects), find[*monitoringv1.ThanosRuler](t, objects)
	want := map[string]bool{}
	pods := func(set, service string, replicas int32) {
		for i := range replicas {
			want[fmt.Sprintf("%s-%d.%s:10901", set, i, service)] = true
		}
	}
	for shard := range *p.Spec.Shards {
		set := "prometheus-" + p.Name
		if shard > 0 {
			set += fmt.Sprintf("-shard-%d", shard)
		}
		pods(set, "prometheus-operated", *p.Spec.Replicas)
	}
	pods("thanos-ruler-"+r.Name, "thanos-ruler-operated", *r.Spec.Replicas)
	for _, object := range objects {
		if s, ok := object.(*appsv1.StatefulSet); ok && s.Name == "thanos-store" {
			pods(s.Name, s.Spec.ServiceName, *s.Spec.Replicas)
		}
	}
	var list struct {
		Endpoints []struct {
			Address string `json:"address"`
			Strict  bool   `json:"strict"`
		} `json:"endpoints"`
	}
	for _, object := range objects {
		if c, ok := object.(*corev1.ConfigMap); ok && c.Name == "thanos-endpoints" {
			require.NoError(t, yaml.UnmarshalStrict([]byte(c.Data["endpoints.yml"]), &list))
		}
	}
	got := map[string]bool{}
	for _, e := range list.Endpoints {
		require.True(t, e.Strict, e.Address)
		got[e.Address] = true
	}
	require.Equal(t, want, got)
	require.Len(t, list.Endpoints, len(want))
}

// TestChartsAndKustomizationRunTheSameShards: the templates of kube-prometheus-stack copy
// these values into the operator's objects.
func TestChartsAndKustomizationRunTheSameShards(t *testing.T) {
	file := func(name string) string {
		text, err := os.ReadFile(chartDir + "/../sharded/" + name)
		require.NoError(t, err)
		return string(text)
	}
	var values struct {
		FullnameOverride string `json:"fullnameOverride"`
		Clean            bool   `json:"cleanPrometheusOperatorObjectNames"`
		Prometheus       struct {
			Budget struct {
				Enabled bool `json:"enabled"`
				policyv1.PodDisruptionBudgetSpec
			} `json:"podDisruptionBudget"`
			Spec json.RawMessage `json:"prometheusSpec"`
		} `json:"prometheus"`
		ThanosRuler struct {
			Enabled bool            `json:"enabled"`
			Name    string          `json:"name"`
			Spec    json.RawMessage `json:"thanosRulerSpec"`
		} `json:"thanosRuler"`
		Grafana json.RawMessage `json:"grafana"`
	}
	require.NoError(t, yaml.UnmarshalStrict([]byte(file("kube-prometheus-stack.yaml")), &values))
	objects := decode(t, build(t, kubernetes+"testdata/sharded"))
	p, r := find[*monitoringv1.Prometheus](t, objects), find[*monitoringv1.ThanosRuler](t, objects)
	require.Equal(t, p.Name, values.FullnameOverride)
	require.True(t, values.Clean && values.ThanosRuler.Enabled)
	require.Equal(t, r.Name, values.ThanosRuler.Name)

	var prometheus monitoringv1.PrometheusSpec
	operators(t, values.Prometheus.Spec, &prometheus, "serviceMonitorSelectorNilUsesHelmValues", "podMonitorSelectorNilUsesHelmValues")
	require.Equal(t, monitoringv1.PrometheusSpec{
		CommonPrometheusFields: monitoringv1.CommonPrometheusFields{
			Shards: p.Spec.Shards, Replicas: p.Spec.Replicas, TopologySpreadConstraints: p.Spec.TopologySpreadConstraints,
		},
		Retention: p.Spec.Retention, Thanos: p.Spec.Thanos, RuleSelector: p.Spec.RuleSelector,
	}, prometheus)
	budget := values.Prometheus.Budget
	require.True(t, budget.Enabled)
	require.Empty(t, budget.MinAvailable.String(), "the chart's own value would go into the object, too")
	require.Equal(t, 1, budget.MaxUnavailable.IntValue())
	var ruler monitoringv1.ThanosRulerSpec
	operators(t, values.ThanosRuler.Spec, &ruler)
	ruler.Version, ruler.RuleNamespaceSelector = r.Spec.Version, r.Spec.RuleNamespaceSelector // The chart has its own.
	require.Equal(t, r.Spec, ruler)

	chart := mustTemplate(t, "promguard", file("promguard.yaml"))
	args := proxyContainer(t, chart).Args
	want := proxyContainer(t, build(t, kubernetes+"testdata/sharded")).Args
	require.ElementsMatch(t, want, args)
	require.Contains(t, string(chart), "prometheusType: Thanos")
}

// operators reads values that a chart copies into an object of the operator, but for those of
// its own.
func operators(t *testing.T, values json.RawMessage, into any, own ...string) {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal(values, &fields))
	for _, key := range own {
		require.Contains(t, fields, key)
		delete(fields, key)
	}
	if image, ok := fields["image"].(map[string]any); ok {
		fields["image"] = fmt.Sprintf("%s/%s:%s", image["registry"], image["repository"], image["tag"])
	}
	for _, of := range []map[string]any{fields, nested(fields["thanos"])} {
		if secret := nested(nested(of["objectStorageConfig"])["existingSecret"]); secret != nil {
			of["objectStorageConfig"] = secret
		}
	}
	text, err := json.Marshal(fields)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, into))
}

func nested(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

func TestThePageTakesOnesBucketAndSize(t *testing.T) {
	blocks := yamlOf(t, "sharded.md", "On kube-prometheus")
	require.Len(t, blocks, 2)
	size, err := os.ReadFile(kubernetes + "testdata/sharded/size.yaml")
	require.NoError(t, err)
	dir := pasted(t, map[string]string{
		"kustomization.yaml": blocks[0], "bucket/kustomization.yaml": blocks[1], "bucket/objstore.yml": "type: GCS\n", "size.yaml": string(size),
	})
	objects := decode(t, build(t, dir))
	requireConsistent(t, objects)
	requireEveryServerNamed(t, objects)
	p := find[*monitoringv1.Prometheus](t, objects)
	require.Greater(t, *p.Spec.Shards, int32(3), "the manifests' own number shows nothing")
	require.Contains(t, *p.Spec.Image, "promguard")
	query := index(t, objects).deployments["thanos-query"].Spec.Template.Spec.Containers[0]
	require.Positive(t, p.Spec.Resources.Limits.Memory().Cmp(*query.Resources.Limits.Memory()), "promguard's limits are of Query's memory")
	for _, object := range objects {
		if s, ok := object.(*appsv1.StatefulSet); ok && s.Name == "thanos-compact" {
			require.Len(t, s.Spec.VolumeClaimTemplates, 1)
			require.Equal(t, s.Spec.Template.Spec.Containers[0].VolumeMounts[0].Name, s.Spec.VolumeClaimTemplates[0].Name)
		}
	}
	for _, object := range objects {
		if s, ok := object.(*corev1.Secret); ok && s.Name == "thanos-objstore" {
			require.Equal(t, map[string][]byte{"objstore.yml": []byte("type: GCS\n")}, s.Data)
			return
		}
	}
	t.Fatal("the operator's objects name the Secret thanos-objstore")
}

// TestOnePodOfWhatIsReadGoesAtATime: an eviction fails where two budgets select a pod.
func TestOnePodOfWhatIsReadGoesAtATime(t *testing.T) {
	objects := decode(t, build(t, kubernetes+"testdata/sharded"))
	pods := map[string]map[string]string{"prometheus": {
		"app.kubernetes.io/component": "prometheus", "app.kubernetes.io/instance": "k8s",
		"app.kubernetes.io/name": "prometheus", "app.kubernetes.io/part-of": "kube-prometheus",
	}, "thanos-ruler": {"app.kubernetes.io/name": "thanos-ruler"}}
	for _, object := range objects {
		switch o := object.(type) {
		case *appsv1.Deployment:
			if o.Labels["app.kubernetes.io/part-of"] == "thanos" {
				pods[o.Name] = o.Spec.Template.Labels
			}
		case *appsv1.StatefulSet:
			if *o.Spec.Replicas > 1 {
				pods[o.Name] = o.Spec.Template.Labels
			}
		}
	}
	require.Len(t, pods, 6)
	for name, of := range pods {
		budgets := 0
		for _, object := range objects {
			if b, ok := object.(*policyv1.PodDisruptionBudget); ok && selected(t, b.Spec.Selector, of) {
				budgets++
				require.Nil(t, b.Spec.MinAvailable, "%s: of many it lets too many go", b.Name)
				require.Equal(t, 1, b.Spec.MaxUnavailable.IntValue(), b.Name)
			}
		}
		require.Equal(t, 1, budgets, name)
	}
}

func TestPodsOfThanosMaySlowlyEndAndAreRestricted(t *testing.T) {
	objects := decode(t, build(t, kubernetes+"testdata/sharded"))
	check := func(name string, of *corev1.PodTemplateSpec) {
		requireRestricted(t, of.Spec)
		c := of.Spec.Containers[0]
		require.NotZero(t, c.Resources.Requests.Cpu().MilliValue(), name)
		require.NotZero(t, c.Resources.Limits.Memory().Value(), name)
		require.Contains(t, c.Args, "--enable-auto-gomemlimit", name)
		if name != "thanos-compact" { // Thanos gives what it answers 2m.
			require.Greater(t, *of.Spec.TerminationGracePeriodSeconds, int64(120), name)
			require.Len(t, of.Spec.TopologySpreadConstraints, 1, name)
		}
	}
	for _, object := range objects {
		switch o := object.(type) {
		case *appsv1.Deployment:
			if o.Labels["app.kubernetes.io/part-of"] == "thanos" {
				check(o.Name, &o.Spec.Template)
			}
		case *appsv1.StatefulSet:
			check(o.Name, &o.Spec.Template)
		}
	}
}

func TestEveryRuleRunsInShardsOrOverAllOfThem(t *testing.T) {
	objects := decode(t, build(t, kubernetes+"testdata/sharded"))
	shards := find[*monitoringv1.Prometheus](t, objects).Spec.RuleSelector
	ruler := find[*monitoringv1.ThanosRuler](t, objects).Spec.RuleSelector
	for _, of := range []map[string]string{nil, {"promguard/rules": "each-shard"}, {"promguard/rules": "other"}} {
		require.NotEqual(t, selected(t, shards, of), selected(t, ruler, of), "%v", of)
	}
	require.False(t, selected(t, shards, nil), "rules that nobody has checked run over all shards")
}

func selected(t *testing.T, s *metav1.LabelSelector, of map[string]string) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	require.NoError(t, err)
	return selector.Matches(labels.Set(of))
}
