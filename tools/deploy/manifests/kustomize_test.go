// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package manifests checks what is below deploy/kubernetes and deploy/helm with
// the code that will read it: kustomize and Helm as libraries, and the Go types of
// Kubernetes and of the Prometheus operator, which refuse what they do not know.
// Schemas from elsewhere are not needed, nor is a network.
package manifests

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pmezard/go-difflib/difflib"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	yamlv3 "go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const kubernetes = "../../../deploy/kubernetes/"

var update = flag.Bool("update", false, "rewrite the golden files")

// build does what kubectl kustomize DIR does, with its default options.
func build(t *testing.T, dir string) []byte {
	t.Helper()
	out, err := tryBuild(dir)
	require.NoError(t, err)
	return out
}

func tryBuild(dir string) ([]byte, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	return resources.AsYaml()
}

// compose writes the kustomization of one resource and of components, all below
// deploy/kubernetes, and returns its directory.
func compose(t *testing.T, resource string, components ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	root, err := filepath.Abs(kubernetes)
	require.NoError(t, err)
	root, err = filepath.Rel(dir, root)
	require.NoError(t, err)
	for i := range components {
		components[i] = filepath.Join(root, components[i])
	}
	text, err := yaml.Marshal(map[string][]string{"resources": {filepath.Join(root, resource)}, "components": components})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o644))
	return dir
}

// decode reads a stream of objects as an API server does that refuses unknown and
// duplicate fields.
func decode(t *testing.T, stream []byte) []runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, autoscalingv2.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme,
		policyv1.AddToScheme, rbacv1.AddToScheme, monitoringv1.AddToScheme,
	} {
		require.NoError(t, add(scheme))
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for _, doc := range documents(t, stream) {
		object, _, err := decoder.Decode(doc, nil, nil)
		require.NoError(t, err, "%s", doc)
		objects = append(objects, object)
	}
	require.NotEmpty(t, objects)
	return objects
}

// documents splits a stream of YAML, and leaves out documents without content.
func documents(t *testing.T, stream []byte) [][]byte {
	t.Helper()
	var docs [][]byte
	decoder := yamlv3.NewDecoder(bytes.NewReader(stream))
	for {
		var doc any
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs
		}
		require.NoError(t, err, "%s", stream)
		if doc == nil {
			continue
		}
		out, err := yamlv3.Marshal(doc)
		require.NoError(t, err)
		docs = append(docs, out)
	}
}

func TestEveryKustomizationBuildsObjectsThatTheClusterKnows(t *testing.T) {
	for _, dir := range []string{"promguard", "prometheus", "base", "testdata/kube-prometheus", "testdata/lists", "testdata/overlay", "testdata/stock", "testdata/replay-probe", "testdata/sharded"} {
		t.Run(dir, func(t *testing.T) {
			requireConsistent(t, decode(t, build(t, kubernetes+dir)))
		})
	}
}

func TestTheKubePrometheusOverlayChangesWhatTheDiffShows(t *testing.T) {
	before, after := build(t, kubernetes+"testdata/kube-prometheus"), build(t, kubernetes+"testdata/overlay")
	diff, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(string(before)), B: difflib.SplitLines(withoutGenerated(t, after)),
		FromFile: "kube-prometheus", ToFile: "kube-prometheus with promguard", Context: 3,
	})
	require.NoError(t, err)
	requireGolden(t, kubernetes+"testdata/kube-prometheus.diff", diff)
}

// withoutGenerated shortens what is generated and checked elsewhere: the rules and
// the dashboards would make the diff unreadable.
func withoutGenerated(t *testing.T, stream []byte) string {
	t.Helper()
	var out []string
	for doc := range strings.SplitSeq(string(stream), "---\n") {
		var object struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		require.NoError(t, yaml.Unmarshal([]byte(doc), &object))
		for _, g := range []struct{ kind, name, key string }{
			{"ConfigMap", "promguard-dashboards", "data:\n"},
			{"PrometheusRule", "promguard", "spec:\n"},
		} {
			if object.Kind == g.kind && strings.HasPrefix(object.Metadata.Name, g.name) {
				start := strings.Index(doc, g.key)
				end := len(doc)
				if next := strings.Index(doc[start:], "\nkind:"); next >= 0 {
					end = start + next + 1
				}
				doc = doc[:start] + "# " + strings.TrimSuffix(g.key, ":\n") + " as in deploy/grafana\n" + doc[end:]
			}
		}
		out = append(out, doc)
	}
	return dashboardsHash.ReplaceAllString(strings.Join(out, "---\n"), "promguard-dashboards-HASH")
}

// dashboardsHash is what kustomize makes of the dashboards: another one with each.
var dashboardsHash = regexp.MustCompile(`promguard-dashboards-[a-z0-9]{10}`)

func requireGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run the test with -update and read the diff")
}
