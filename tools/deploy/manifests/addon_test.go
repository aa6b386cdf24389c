// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/google/go-jsonnet"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// hash is the end of the name of a ConfigMap, which kustomize and the addon compute
// in ways of their own.
var hash = regexp.MustCompile(`^(promguard|promguard-dashboards)-[a-z0-9]{10}$`)

func TestTheJsonnetAddonGivesWhatTheKustomizationGives(t *testing.T) {
	for _, manifests := range []string{"testdata/kube-prometheus", "testdata/lists"} {
		t.Run(manifests, func(t *testing.T) {
			got := withAddon(t, objectsByName(t, build(t, kubernetes+manifests)))
			want := objectsByName(t, build(t, compose(t, manifests, "kube-prometheus")))
			for key := range want {
				require.Equal(t, want[key], got[key], key)
			}
			require.Len(t, got, len(want))
		})
	}
}

// withAddon returns what the addon makes of the objects of kube-prometheus.
func withAddon(t *testing.T, manifests map[string]any) map[string]any {
	t.Helper()
	arg := func(key string) string {
		text, err := json.Marshal(manifests[key])
		require.NoError(t, err)
		return string(text)
	}
	vm := jsonnet.MakeVM()
	vm.Importer(&jsonnet.FileImporter{JPaths: []string{kubernetes}})
	text, err := vm.EvaluateAnonymousSnippet("snippet.jsonnet", `
		{
			prometheus: { prometheus: `+arg("Prometheus/k8s")+`, networkPolicy: `+arg("NetworkPolicy/prometheus-k8s")+` },
			grafana: { dashboardDatasources: `+arg("Secret/grafana-datasources")+`, deployment: `+arg("Deployment/grafana")+` },
		} + (import 'kube-prometheus/addon.libsonnet')`)
	require.NoError(t, err)

	var groups map[string]map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &groups))
	got := map[string]any{}
	for _, group := range groups {
		for _, object := range group {
			addByName(t, got, object)
		}
	}
	return got
}

// objectsByName returns objects by kind and name, with hashes left out.
func objectsByName(t *testing.T, stream []byte) map[string]any {
	t.Helper()
	objects := map[string]any{}
	for _, doc := range documents(t, stream) {
		var object any
		require.NoError(t, yaml.Unmarshal(doc, &object))
		addByName(t, objects, object)
	}
	return objects
}

func addByName(t *testing.T, to map[string]any, object any) {
	t.Helper()
	object = normalized(object)
	o := object.(map[string]any)
	key := o["kind"].(string) + "/" + o["metadata"].(map[string]any)["name"].(string)
	require.NotContains(t, to, key)
	to[key] = object
}

// comparable cuts the hashes off every string that is the name of a ConfigMap, and
// parses strings that are JSON, which both lay out in ways of their own.
func normalized(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = normalized(v[k])
		}
	case []any:
		for i := range v {
			v[i] = normalized(v[i])
		}
	case string:
		var parsed map[string]any
		if json.Unmarshal([]byte(v), &parsed) == nil {
			return parsed
		}
		return hash.ReplaceAllString(v, "$1")
	}
	return v
}
