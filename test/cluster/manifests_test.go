// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	repository = "../../"
	kustomized = repository + "deploy/kubernetes/"
)

// namespace is where everything is, with the strictest standard enforced: what does
// not meet it is refused as a pod, and warned of as a template of pods.
func namespace() *unstructured.Unstructured {
	o := object("v1", "Namespace", "", monitoring)
	o.SetLabels(map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted",
		"pod-security.kubernetes.io/warn":    "restricted",
	})
	return o
}

// makeNamespace makes the namespace, and waits for what controllers put into each.
func (c *Cluster) makeNamespace(t *testing.T) {
	t.Helper()
	c.Apply(t, []*unstructured.Unstructured{namespace()})
	WaitFor(t, "what every namespace has", func() error {
		_, err := c.Get(t.Context(), object("v1", "ServiceAccount", monitoring, "default"))
		if err == nil {
			_, err = c.Get(t.Context(), object("v1", "ConfigMap", monitoring, "kube-root-ca.crt"))
		}
		return err
	})
}

// build is kubectl kustomize.
func build(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	require.NoError(t, err)
	stream, err := resources.AsYaml()
	require.NoError(t, err)
	return Objects(t, stream)
}

// compose is the kustomization of one resource and of components, all below
// deploy/kubernetes.
func compose(t *testing.T, resource string, components ...string) []*unstructured.Unstructured {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	root, err := filepath.Abs(kustomized)
	require.NoError(t, err)
	root, err = filepath.Rel(dir, root)
	require.NoError(t, err)
	var paths []string
	for _, c := range components {
		paths = append(paths, filepath.Join(root, c))
	}
	text, err := yaml.Marshal(map[string][]string{"resources": {filepath.Join(root, resource)}, "components": paths})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o644))
	return build(t, dir)
}

func TestTheClusterTakesEveryKustomization(t *testing.T) {
	c := Start(t)
	c.StartOperator(t)
	for name, objects := range map[string][]*unstructured.Unstructured{
		"base":                             build(t, kustomized+"base"),
		"base with the probe by progress":  compose(t, "base", "components/replay-probe"),
		"on kube-prometheus":               completed(t, build(t, kustomized+"testdata/overlay")),
		"stock Prometheus with drop rules": completed(t, build(t, kustomized+"testdata/stock")),
	} {
		t.Run(name, func(t *testing.T) {
			c.makeNamespace(t)
			t.Cleanup(func() { c.Delete(t, []*unstructured.Unstructured{namespace()}) })
			applied := c.Apply(t, objects)
			c.requirePods(t, applied)
			c.requireAccepted(t)
			before := c.snapshot(t, objects)
			c.Apply(t, objects)
			require.Equal(t, before, c.snapshot(t, objects), "a second apply changes something")
		})
	}
}

// completed adds what these objects have in kube-prometheus, for in testdata are only
// the fields that components touch, and what they need besides where restricted is
// enforced.
func completed(t *testing.T, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	pod := map[string]any{"runAsNonRoot": true, "runAsUser": int64(1000), "seccompProfile": map[string]any{"type": "RuntimeDefault"}}
	container := map[string]any{"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}}}
	for _, o := range objects {
		switch o.GetKind() + " " + o.GetName() {
		case "Prometheus k8s":
			require.NoError(t, unstructured.SetNestedMap(o.Object, pod, "spec", "securityContext"))
		case "Deployment grafana":
			require.NoError(t, unstructured.SetNestedMap(o.Object, pod, "spec", "template", "spec", "securityContext"))
			containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			require.NoError(t, err)
			containers[0].(map[string]any)["securityContext"] = container
			require.NoError(t, unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers"))
		}
	}
	return append(objects, object("v1", "ServiceAccount", monitoring, "prometheus-k8s"))
}

// requirePods waits until the controllers have made all pods, which have no node
// to run on; a pod that is refused is an event and none of these.
func (c *Cluster) requirePods(t *testing.T, applied []*unstructured.Unstructured) {
	t.Helper()
	want := map[string]int{}
	for _, o := range applied {
		switch o.GetKind() {
		case "Deployment":
			want[o.GetName()] = 1
		case "HorizontalPodAutoscaler":
			least, _, err := unstructured.NestedInt64(o.Object, "spec", "minReplicas")
			require.NoError(t, err)
			want[o.GetName()] = int(least)
		case "Prometheus":
			replicas, _, err := unstructured.NestedInt64(o.Object, "spec", "replicas")
			require.NoError(t, err)
			want["prometheus"] = int(max(replicas, 1))
		}
	}
	require.NotEmpty(t, want)
	WaitFor(t, fmt.Sprint("pods ", want), func() error {
		pods, err := c.Typed.CoreV1().Pods(monitoring).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		got := map[string]int{}
		for _, p := range pods.Items {
			got[p.Labels["app.kubernetes.io/name"]]++
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("pods %v; events %v", got, c.complaints(t))
		}
		return nil
	})
}

// complaints are the events of kind Warning, but for those that say that there is
// no node.
func (c *Cluster) complaints(t *testing.T) []string {
	t.Helper()
	events, err := c.Typed.CoreV1().Events(monitoring).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var texts []string
	for _, e := range events.Items {
		if e.Type == corev1.EventTypeWarning && e.Reason != "FailedScheduling" {
			texts = append(texts, e.InvolvedObject.Kind+" "+e.InvolvedObject.Name+": "+e.Message)
		}
	}
	return texts
}

// requireAccepted waits until the operator says that it has done what every
// Prometheus object asks.
func (c *Cluster) requireAccepted(t *testing.T) {
	t.Helper()
	WaitFor(t, "the operator accepts the Prometheus", func() error {
		o, err := c.Get(context.WithoutCancel(t.Context()), prometheus())
		if err != nil {
			return err
		}
		return condition(o, "Reconciled")
	})
}

// snapshot is what is asked of the objects and of those that the operator made,
// without what controllers report.
func (c *Cluster) snapshot(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	state := map[string]any{}
	made := []*unstructured.Unstructured{
		object("apps/v1", "StatefulSet", monitoring, "prometheus-k8s"), object("v1", "Secret", monitoring, "prometheus-k8s"),
	}
	for _, o := range slices.Concat(objects, made) {
		now, err := c.Get(t.Context(), o)
		require.NoError(t, err)
		if _, reports := now.Object["status"]; reports {
			// Reports are changes, too: of such objects the generation counts.
			delete(now.Object, "status")
			now.SetResourceVersion("")
			now.SetManagedFields(nil)
		}
		state[o.GetKind()+" "+o.GetName()] = now.Object
	}
	return state
}

// statefulSet is what the operator makes of the Prometheus object k8s.
func (c *Cluster) statefulSet(t *testing.T) (*appsv1.StatefulSet, error) {
	return c.Typed.AppsV1().StatefulSets(monitoring).Get(t.Context(), "prometheus-k8s", metav1.GetOptions{})
}
