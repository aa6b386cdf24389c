// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// requireConsistent holds the objects to what types alone do not say: names and
// labels are allowed, and what refers to another object finds it there.
func requireConsistent(t *testing.T, objects []runtime.Object) {
	t.Helper()
	set := index(t, objects)
	for _, d := range set.deployments {
		requirePodTemplate(t, d.Spec.Template, set)
		requireSelects(t, d.Spec.Selector, d.Spec.Template.Labels)
	}
	for _, s := range set.services {
		if d, ok := set.deploymentFor(s.Spec.Selector); ok {
			for _, p := range s.Spec.Ports {
				requirePort(t, d, p.TargetPort, "Service "+s.Name)
			}
		}
	}
	for _, object := range objects {
		switch o := object.(type) {
		case *policyv1.PodDisruptionBudget:
			require.NotNil(t, o.Spec.Selector)
			require.NotEmpty(t, o.Spec.Selector.MatchLabels, "an empty selector would be of all pods")
		case *autoscalingv2.HorizontalPodAutoscaler:
			require.Contains(t, set.deployments, o.Spec.ScaleTargetRef.Name)
			require.Nil(t, set.deployments[o.Spec.ScaleTargetRef.Name].Spec.Replicas, "an apply would undo the autoscaler's work")
			require.LessOrEqual(t, *o.Spec.MinReplicas, o.Spec.MaxReplicas)
		case *networkingv1.NetworkPolicy:
			requirePolicyPorts(t, o, set)
		case *monitoringv1.ServiceMonitor:
			requireMonitored(t, o, set)
		case *monitoringv1.PodMonitor: // Of pods of the operator, whose ports it alone knows.
			require.NotEmpty(t, o.Spec.Selector.MatchLabels)
		}
	}
}

// objectSet has what other objects refer to, by name.
type objectSet struct {
	deployments     map[string]*appsv1.Deployment
	services        map[string]*corev1.Service
	configMaps      map[string]bool
	secrets         map[string]bool
	serviceAccounts map[string]bool
}

func index(t *testing.T, objects []runtime.Object) objectSet {
	t.Helper()
	set := objectSet{
		map[string]*appsv1.Deployment{},
		map[string]*corev1.Service{},
		map[string]bool{},
		map[string]bool{},
		map[string]bool{},
	}
	seen := map[string]bool{}
	for _, object := range objects {
		meta := object.(metav1.Object)
		key := fmt.Sprintf("%T %s/%s", object, meta.GetNamespace(), meta.GetName())
		require.False(t, seen[key], "%s is there twice", key)
		seen[key] = true
		require.Empty(t, validation.IsDNS1123Subdomain(meta.GetName()), key)
		require.Empty(t, metavalidation.ValidateLabels(meta.GetLabels(), field.NewPath("labels")), key)
		switch o := object.(type) {
		case *appsv1.Deployment:
			set.deployments[o.Name] = o
		case *corev1.Service:
			set.services[o.Name] = o
		case *corev1.ConfigMap:
			set.configMaps[o.Name] = true
		case *corev1.Secret:
			set.secrets[o.Name] = true
		case *corev1.ServiceAccount:
			set.serviceAccounts[o.Name] = true
		}
	}
	return set
}

func (s objectSet) deploymentFor(selector map[string]string) (*appsv1.Deployment, bool) {
	for _, d := range s.deployments {
		if labels.SelectorFromSet(selector).Matches(labels.Set(d.Spec.Template.Labels)) {
			return d, true
		}
	}
	return nil, false
}

func requireSelects(t *testing.T, selector *metav1.LabelSelector, of map[string]string) {
	t.Helper()
	require.NotNil(t, selector)
	s, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	require.False(t, s.Empty())
	require.True(t, s.Matches(labels.Set(of)), "%s does not select %v", s, of)
}

func requirePodTemplate(t *testing.T, pod corev1.PodTemplateSpec, set objectSet) {
	t.Helper()
	if pod.Spec.ServiceAccountName != "" {
		require.True(t, set.serviceAccounts[pod.Spec.ServiceAccountName], "no ServiceAccount %s", pod.Spec.ServiceAccountName)
	}
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = true
		if v.ConfigMap != nil {
			require.True(t, set.configMaps[v.ConfigMap.Name], "no ConfigMap %s", v.ConfigMap.Name)
		}
		if v.Secret != nil {
			require.True(t, set.secrets[v.Secret.SecretName], "no Secret %s", v.Secret.SecretName)
		}
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			require.Empty(t, validation.IsValidPortName(p.Name))
		}
		for _, m := range c.VolumeMounts {
			require.True(t, volumes[m.Name], "no volume %s", m.Name)
		}
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if probe == nil {
				continue
			}
			require.Equal(t, 1, handlers(probe), "a probe has one handler")
			requireContainerPort(t, c, probe.HTTPGet.Port, "probe")
		}
	}
}

// handlers counts what a probe does; the API server wants exactly one.
func handlers(p *corev1.Probe) int {
	n := 0
	for _, there := range []bool{p.HTTPGet != nil, p.Exec != nil, p.TCPSocket != nil, p.GRPC != nil} {
		if there {
			n++
		}
	}
	return n
}

func requirePort(t *testing.T, d *appsv1.Deployment, port intstr.IntOrString, who string) {
	t.Helper()
	for _, c := range d.Spec.Template.Spec.Containers {
		if hasPort(c, port) {
			return
		}
	}
	t.Fatalf("%s: Deployment %s has no port %s", who, d.Name, port.String())
}

func requireContainerPort(t *testing.T, c corev1.Container, port intstr.IntOrString, who string) {
	t.Helper()
	require.True(t, hasPort(c, port), "%s: container %s has no port %s", who, c.Name, port.String())
}

func hasPort(c corev1.Container, port intstr.IntOrString) bool {
	for _, p := range c.Ports {
		if port.Type == intstr.String && p.Name == port.StrVal || port.Type == intstr.Int && p.ContainerPort == port.IntVal {
			return true
		}
	}
	return false
}

func requirePolicyPorts(t *testing.T, p *networkingv1.NetworkPolicy, set objectSet) {
	t.Helper()
	require.NotEmpty(t, p.Spec.PodSelector.MatchLabels, "an empty selector would be of all pods")
	d, ok := set.deploymentFor(p.Spec.PodSelector.MatchLabels)
	if !ok {
		return
	}
	for _, rule := range p.Spec.Ingress {
		require.NotEmpty(t, rule.From)
		for _, port := range rule.Ports {
			requirePort(t, d, *port.Port, "NetworkPolicy "+p.Name)
		}
	}
}

func requireMonitored(t *testing.T, m *monitoringv1.ServiceMonitor, set objectSet) {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
	require.NoError(t, err)
	require.False(t, s.Empty())
	for _, service := range set.services {
		if !s.Matches(labels.Set(service.Labels)) {
			continue
		}
		names := map[string]bool{}
		for _, p := range service.Spec.Ports {
			names[p.Name] = true
		}
		for _, e := range m.Spec.Endpoints {
			require.True(t, names[e.Port], "ServiceMonitor %s: no port %s", m.Name, e.Port)
		}
		return
	}
	t.Fatalf("ServiceMonitor %s selects no Service", m.Name)
}
