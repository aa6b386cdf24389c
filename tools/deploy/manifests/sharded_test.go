// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
}

func TestTheBucketOfThePageReplacesTheExample(t *testing.T) {
	blocks := yamlOf(t, "sharded.md", "On kube-prometheus")
	require.Len(t, blocks, 2)
	dir := pasted(t, map[string]string{"kustomization.yaml": blocks[0], "bucket/kustomization.yaml": blocks[1], "bucket/objstore.yml": "type: GCS\n"})
	objects := decode(t, build(t, dir))
	requireConsistent(t, objects)
	for _, object := range objects {
		if s, ok := object.(*corev1.Secret); ok && s.Name == "thanos-objstore" {
			require.Equal(t, map[string][]byte{"objstore.yml": []byte("type: GCS\n")}, s.Data)
			return
		}
	}
	t.Fatal("the operator's objects name the Secret thanos-objstore")
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
