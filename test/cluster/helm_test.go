// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// release is the chart in the cluster, by what the helm command does.
type release struct {
	config *action.Configuration
	chart  *chart.Chart
}

const releaseName = "promguard"

func newRelease(t *testing.T, c *Cluster) release {
	t.Helper()
	config := &action.Configuration{}
	require.NoError(t, config.Init(getter{c.Client}, monitoring, "secret", t.Logf))
	loaded, err := loader.Load(repository + "deploy/helm/promguard")
	require.NoError(t, err)
	return release{config, loaded}
}

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	v := map[string]any{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &v))
	return v
}

func (r release) install(t *testing.T, text string) {
	t.Helper()
	install := action.NewInstall(r.config)
	install.ReleaseName, install.Namespace = releaseName, monitoring
	_, err := install.RunWithContext(t.Context(), r.chart, values(t, text))
	require.NoError(t, err)
}

func (r release) upgrade(t *testing.T, text string) {
	t.Helper()
	upgrade := action.NewUpgrade(r.config)
	upgrade.Namespace = monitoring
	_, err := upgrade.RunWithContext(t.Context(), releaseName, r.chart, values(t, text))
	require.NoError(t, err)
}

func TestTheChartIsInstalledUpgradedAndRemoved(t *testing.T) {
	c := Start(t)
	c.StartOperator(t)
	c.makeNamespace(t)
	before := c.everything(t)
	r := newRelease(t, c)

	r.install(t, "datasource: {enabled: true}")
	require.Empty(t, c.Warnings())
	first := c.proxyPods(t, nil)

	r.upgrade(t, "policy: {admission: {max: 7}}")
	require.Empty(t, c.Warnings())
	second := c.proxyPods(t, first)
	require.NotEqual(t, policyOf(t, first[0]), policyOf(t, second[0]), "the pods read the policy of their time")

	_, err := action.NewUninstall(r.config).Run(releaseName)
	require.NoError(t, err)
	require.Empty(t, c.Warnings())
	WaitFor(t, "nothing is left of the release", func() error {
		if now := c.everything(t); fmt.Sprint(now) != fmt.Sprint(before) {
			return fmt.Errorf("there is %v, there was %v", now, before)
		}
		return nil
	})
}

// proxyPods waits for two pods of a new template, beside those that are there.
func (c *Cluster) proxyPods(t *testing.T, old []corev1.Pod) []corev1.Pod {
	t.Helper()
	template := func(p corev1.Pod) string { return p.Labels["pod-template-hash"] }
	var found []corev1.Pod
	WaitFor(t, "pods of promguard", func() error {
		pods, err := c.Typed.CoreV1().Pods(monitoring).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=promguard"})
		if err != nil {
			return err
		}
		found = nil
		for _, p := range pods.Items {
			if len(old) == 0 || template(p) != template(old[0]) {
				found = append(found, p)
			}
		}
		// Without a node no pod becomes ready, so the new one waits for that.
		if want := 2 - min(len(old), 1); len(found) != want {
			return fmt.Errorf("%d of %d; %v", len(found), want, c.complaints(t))
		}
		return nil
	})
	return found
}

// policyOf is the name of the pod's ConfigMap, or where that stays the same what
// the template says of its content.
func policyOf(t *testing.T, p corev1.Pod) string {
	t.Helper()
	for _, v := range p.Spec.Volumes {
		if v.Name == "config" {
			return v.ConfigMap.Name + fmt.Sprint(p.Annotations)
		}
	}
	t.Fatal("no policy is mounted")
	return ""
}

// everything lists the objects in the namespace that can be listed, but for events
// and what controllers make of other objects.
func (c *Cluster) everything(t *testing.T) []string {
	t.Helper()
	lists, err := c.Typed.Discovery().ServerPreferredNamespacedResources()
	require.NoError(t, err)
	var names []string
	for _, list := range lists {
		for _, kind := range list.APIResources {
			if kind.Kind == "Event" || strings.Contains(kind.Name, "/") || !slices.Contains(kind.Verbs, "list") {
				continue
			}
			objects, err := c.list(t.Context(), list.GroupVersion, kind.Name)
			require.NoError(t, err, kind.Name)
			for _, o := range objects {
				names = append(names, kind.Kind+" "+o.GetName())
			}
		}
	}
	c.Warnings() // Of the lists: Endpoints is deprecated.
	return names
}

// getter gives Helm the client of a cluster.
type getter struct{ Client }

func (g getter) ToRESTConfig() (*rest.Config, error) { return g.Config, nil }

// ToRESTMapper returns one that knows what has been defined meanwhile.
func (g getter) ToRESTMapper() (meta.RESTMapper, error) {
	return restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(g.Typed.Discovery())), nil
}

func (getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(clientcmdapi.Config{}, &clientcmd.ConfigOverrides{Context: clientcmdapi.Context{Namespace: monitoring}})
}

func (g getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return memory.NewMemCacheClient(g.Typed.Discovery()), nil
}
