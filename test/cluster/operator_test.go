// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// operatorModule has what the operator's project publishes beside its code.
const operatorModule = "github.com/prometheus-operator/prometheus-operator"

// ReloaderImage is what the operator is told to use beside Prometheus.
const ReloaderImage = "quay.io/prometheus-operator/prometheus-config-reloader:test"

// StartOperator installs the operator's definitions, its rights and its admission,
// and runs it outside of the cluster, with no other rights than it would have inside.
func (c *Cluster) StartOperator(t testing.TB) {
	t.Helper()
	c.installOperator(t)
	c.startAdmission(t)
	address := loopback(freePort(t))
	c.operator = start(t, c.Logs, "operator", c.Binary(t, "cluster/operator"), []string{"KUBECONFIG=" + c.kubeconfig(t, "prometheus-operator")},
		"--web.listen-address="+address, "--prometheus-config-reloader="+ReloaderImage)
	c.operator.await(t, time.Minute, answers(http.DefaultClient, "http://"+address+"/healthz"))
}

// installOperator makes what the operator finds in a cluster: its definitions and
// its rights.
func (c *Cluster) installOperator(t testing.TB) {
	t.Helper()
	examples := moduleDir(t, "operator", operatorModule) + "/example/"
	c.applyFiles(t, examples+"prometheus-operator-crd/*.yaml")
	c.applyFiles(t, examples+"rbac/prometheus-operator/prometheus-operator-cluster-role.yaml")
	c.Apply(t, []*unstructured.Unstructured{untyped(t, &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus-operator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "prometheus-operator"},
		Subjects:   []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "prometheus-operator"}},
	})})
}

// startAdmission runs the operator's own webhook and has the API server ask it.
func (c *Cluster) startAdmission(t testing.TB) {
	t.Helper()
	certFile, keyFile := c.certify(t, "admission")
	authority, err := os.ReadFile(certFile)
	require.NoError(t, err)
	address := loopback(freePort(t))
	p := start(t, c.Logs, "admission-webhook", c.Binary(t, "cluster/admission-webhook"), nil,
		"--web.listen-address="+address, "--web.cert-file="+certFile, "--web.key-file="+keyFile, "--web.enable-tls=true")
	p.await(t, time.Minute, func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	})
	url, fail, none := "https://"+address+"/admission-prometheusrules/validate", admissionv1.Fail, admissionv1.SideEffectClassNone
	c.Apply(t, []*unstructured.Unstructured{untyped(t, &admissionv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus-operator"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "rules.monitoring.coreos.com", FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionv1.WebhookClientConfig{URL: &url, CABundle: authority},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{"monitoring.coreos.com"}, APIVersions: []string{"*"}, Resources: []string{"prometheusrules"}},
			}},
		}},
	})})
}

// applyFiles applies published files, whose fields may be deprecated.
func (c *Cluster) applyFiles(t testing.TB, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files, pattern)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, o := range Objects(t, text) {
			_, err := c.TryApply(t.Context(), o)
			require.NoError(t, err, file)
			if o.GetKind() == "CustomResourceDefinition" {
				c.awaitEstablished(t, o)
			}
		}
	}
}

func (c *Cluster) awaitEstablished(t testing.TB, definition *unstructured.Unstructured) {
	t.Helper()
	WaitFor(t, definition.GetName()+" is established", func() error {
		o, err := c.Get(t.Context(), definition)
		if err != nil {
			return err
		}
		return condition(o, "Established")
	})
}

// moduleDir is where the go command keeps a module that the module in dir requires.
func moduleDir(t testing.TB, dir, module string) string {
	t.Helper()
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = dir
	out, err := cmd.Output()
	require.NoError(t, err, module)
	return string(out[:len(out)-1])
}
