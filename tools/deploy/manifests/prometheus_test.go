// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation"
)

func patchedPrometheus(t *testing.T, dir string) *monitoringv1.Prometheus {
	t.Helper()
	return find[*monitoringv1.Prometheus](t, decode(t, build(t, kubernetes+dir)))
}

// operatorContainer is what of the container prometheus the operator makes matters
// to the merge: the probes as in its BuildProbes.
func operatorContainer() corev1.Container {
	get := func(path string) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("web")}}
	}
	return corev1.Container{
		Name:           "prometheus",
		Ports:          []corev1.ContainerPort{{Name: "web", ContainerPort: 9090}},
		StartupProbe:   &corev1.Probe{ProbeHandler: get("/-/ready"), TimeoutSeconds: 3, PeriodSeconds: 15, FailureThreshold: 60},
		ReadinessProbe: &corev1.Probe{ProbeHandler: get("/-/ready"), TimeoutSeconds: 3, PeriodSeconds: 5, FailureThreshold: 3},
		LivenessProbe:  &corev1.Probe{ProbeHandler: get("/-/healthy"), TimeoutSeconds: 3, PeriodSeconds: 5, FailureThreshold: 6},
	}
}

// merge does what the operator does with spec.containers: both sides pass through
// the Go type, so that null, by which a patch would delete, cannot be said.
func merge(t *testing.T, base, patch corev1.Container) corev1.Container {
	t.Helper()
	b, err := json.Marshal(base)
	require.NoError(t, err)
	p, err := json.Marshal(patch)
	require.NoError(t, err)
	merged, err := strategicpatch.StrategicMergePatch(b, p, corev1.Container{})
	require.NoError(t, err)
	var out corev1.Container
	require.NoError(t, json.Unmarshal(merged, &out))
	return out
}

// What discovery by EndpointSlices and scrapes of a kubelet and an API server ask for.
func TestPrometheusMayDiscoverAndScrape(t *testing.T) {
	objects := decode(t, build(t, kubernetes+"prometheus"))
	role, binding := find[*rbacv1.ClusterRole](t, objects), find[*rbacv1.ClusterRoleBinding](t, objects)
	require.Equal(t, role.Name, binding.RoleRef.Name)
	require.Equal(t, find[*monitoringv1.Prometheus](t, objects).Spec.ServiceAccountName, binding.Subjects[0].Name)
	allowed := map[string][]string{}
	for _, rule := range role.Rules {
		for _, resource := range slices.Concat(rule.Resources, rule.NonResourceURLs) {
			allowed[resource] = rule.Verbs
		}
	}
	watch := []string{"get", "list", "watch"}
	require.Equal(t, map[string][]string{
		"services": watch, "pods": watch, "endpointslices": watch,
		"nodes/metrics": {"get"}, "/metrics": {"get"}, "/metrics/slis": {"get"},
	}, allowed)
}

func TestNoReplayIsCutOffByTheStartupProbe(t *testing.T) {
	for _, dir := range []string{"prometheus", "testdata/overlay"} {
		patch := patchedPrometheus(t, dir).Spec.Containers
		require.Len(t, patch, 1)
		c := merge(t, operatorContainer(), patch[0])

		require.Equal(t, "/-/healthy", c.StartupProbe.HTTPGet.Path, "answered while the WAL is replayed")
		require.Equal(t, "/-/healthy", c.LivenessProbe.HTTPGet.Path)
		require.Equal(t, "/-/ready", c.ReadinessProbe.HTTPGet.Path, "no reader gets there before the replay is over")
		for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			require.Equal(t, 1, handlers(p))
			requireContainerPort(t, c, p.HTTPGet.Port, "probe")
		}
	}
}

// After a snapshot of the head, upstream's code replays the log, not the parallel one.
func TestNoSnapshotKeepsTheReplayFromBeingParallel(t *testing.T) {
	require.NotContains(t, patchedPrometheus(t, "prometheus").Spec.EnableFeatures, monitoringv1.EnableFeature("memory-snapshot-on-shutdown"))
}

func TestTheProbeByProgressAsksTheSidecar(t *testing.T) {
	p := patchedPrometheus(t, "testdata/replay-probe")
	probe := merge(t, operatorContainer(), p.Spec.Containers[0]).StartupProbe
	require.Equal(t, 1, handlers(probe))

	require.Len(t, p.Spec.InitContainers, 1)
	sidecar := p.Spec.InitContainers[0]
	require.Equal(t, corev1.ContainerRestartPolicyAlways, *sidecar.RestartPolicy)
	requireContainerPort(t, sidecar, probe.HTTPGet.Port, "startup probe")
	require.Equal(t, proxyContainer(t, build(t, kubernetes+"promguard")).Image, sidecar.Image)
}

func TestComponentsKeepWhatTheListsOfAPrometheusHold(t *testing.T) {
	const lists, patched, probe = "testdata/lists", "components/patched-prometheus", "components/replay-probe"
	before := patchedPrometheus(t, lists).Spec
	after := find[*monitoringv1.Prometheus](t, decode(t, build(t, compose(t, lists, patched, probe)))).Spec

	require.Contains(t, before.AdditionalArgs, monitoringv1.Argument{Name: "guard.drop-rules", Value: "off"})
	require.Equal(t, before.AdditionalArgs, after.AdditionalArgs, "an operator's own flags stay as they are")
	require.Subset(t, after.InitContainers, before.InitContainers)
	require.Equal(t, "startup-probe", after.InitContainers[0].Name)
	require.Equal(t, before.ScrapeClasses, after.ScrapeClasses)

	require.Len(t, after.Containers, len(before.Containers))
	server := after.Containers[0]
	require.Equal(t, "/startup", server.StartupProbe.HTTPGet.Path)
	require.Equal(t, "/-/healthy", server.LivenessProbe.HTTPGet.Path)
	server.StartupProbe, server.LivenessProbe = nil, nil
	require.ElementsMatch(t, before.Containers, append(after.Containers[1:], server))
}

// A merged list could have two defaults, for which the operator refuses the object.
func TestTheScrapeClassIsRefusedByAPrometheusThatHasClasses(t *testing.T) {
	_, err := tryBuild(compose(t, "testdata/lists", "components/scrape-class"))
	require.ErrorContains(t, err, "testing value /spec/scrapeClasses failed")
}

func TestTheProbeByProgressIsRefusedInFrontOfThePatchedBuild(t *testing.T) {
	_, err := tryBuild(compose(t, "testdata/kube-prometheus", "components/replay-probe", "components/patched-prometheus"))
	require.ErrorContains(t, err, "/spec/containers/0/name")
}

// Operators such as 0.85 merge so; 0.93 takes the command, which make test-cluster
// shows. Both take the probe by progress, which is one over HTTP.
func TestOlderOperatorsCannotTurnTheirStartupProbeIntoACommand(t *testing.T) {
	patch := corev1.Container{Name: "prometheus", StartupProbe: &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
	}}
	require.Equal(t, 2, handlers(merge(t, operatorContainer(), patch).StartupProbe))
}

func TestVersionsAreThoseOfTheRelease(t *testing.T) {
	tag, release := upstream(t, "tag"), upstream(t, "release")
	p := patchedPrometheus(t, "prometheus")
	require.Equal(t, strings.TrimPrefix(tag, "v"), p.Spec.Version)
	require.Empty(t, validation.IsValidLabelValue(p.Spec.Version), "the operator makes a label of it")
	require.Equal(t, "ghcr.io/promguard/prometheus:"+tag+"-"+release, *p.Spec.Image)
	require.Equal(t, "ghcr.io/promguard/promguard:"+tag+"-"+release, proxyContainer(t, build(t, kubernetes+"promguard")).Image)
}

// upstream returns a field of prometheus-patches/UPSTREAM.
func upstream(t *testing.T, key string) string {
	t.Helper()
	text, err := os.ReadFile("../../../prometheus-patches/UPSTREAM")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			return f[1]
		}
	}
	t.Fatalf("no %s in\n%s", key, text)
	return ""
}

func proxyContainer(t *testing.T, stream []byte) corev1.Container {
	t.Helper()
	for _, object := range decode(t, stream) {
		if d, ok := object.(*appsv1.Deployment); ok && d.Name == "promguard" {
			return d.Spec.Template.Spec.Containers[0]
		}
	}
	t.Fatal("no Deployment promguard")
	return corev1.Container{}
}
