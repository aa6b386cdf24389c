// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// requireRestricted does what a namespace does that enforces the Pod Security
// Standard restricted.
func requireRestricted(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	require.NoError(t, err)
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &metav1.ObjectMeta{}, &pod))
	require.True(t, result.Allowed, result.ForbiddenDetail())
}

func TestEveryPodPassesTheRestrictedPodSecurityStandard(t *testing.T) {
	proxy := decode(t, build(t, kubernetes+"promguard"))
	requireRestricted(t, find[*appsv1.Deployment](t, proxy).Spec.Template.Spec)

	chart := decode(t, mustTemplate(t, "promguard", "{}"))
	requireRestricted(t, find[*appsv1.Deployment](t, chart).Spec.Template.Spec)
	files, err := template(t, "promguard", "{}")
	require.NoError(t, err)
	requireRestricted(t, find[*corev1.Pod](t, decode(t, []byte(files["promguard/templates/tests/query.yaml"]))).Spec)

	// Of Prometheus's pod, what is ours: the rest is the operator's.
	p := patchedPrometheus(t, "testdata/replay-probe")
	requireRestricted(t, corev1.PodSpec{
		SecurityContext: p.Spec.SecurityContext, InitContainers: p.Spec.InitContainers, Containers: p.Spec.InitContainers,
	})
}
