// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
)

// pasted is a directory with what pages of docs have one write, beside clones of
// promguard and kube-prometheus.
func pasted(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for name, to := range map[string]string{"promguard": "../../..", "kube-prometheus": kubernetes + "testdata/kube-prometheus"} {
		to, err := filepath.Abs(to)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return dir
}

// yamlOf returns the blocks of YAML of a section of a page.
func yamlOf(t *testing.T, page, heading string) []string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + page)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n## "+heading+"\n")
	require.True(t, found, "%s has no section %s", page, heading)
	rest, _, _ = strings.Cut(rest, "\n## ")
	var blocks []string
	for _, block := range strings.Split(rest, "\n```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		blocks = append(blocks, block)
	}
	return blocks
}

func TestWhatThePagesSayToPasteBuilds(t *testing.T) {
	first := yamlOf(t, "rollout.md", "3. The proxy observes")
	require.Len(t, first, 4)
	policy := map[string]string{"policy/promguard.yml": first[0], "policy/kustomization.yaml": first[1]}
	whole := yamlOf(t, "kubernetes.md", "On top of kube-prometheus")[0]
	const component = "  - promguard/deploy/kubernetes/kube-prometheus\n"
	require.Contains(t, whole, component)
	withPolicy := strings.Replace(whole, component, component+"  - policy\n", 1)
	for name, c := range map[string]struct {
		files   map[string]string
		patched bool
	}{
		"promguard alone":       {map[string]string{"networkpolicy.yaml": first[2], "kustomization.yaml": first[3]}, false},
		"all":                   {map[string]string{"kustomization.yaml": whole}, true},
		"all, and one's policy": {map[string]string{"kustomization.yaml": withPolicy}, true},
	} {
		t.Run(name, func(t *testing.T) {
			maps.Copy(c.files, policy)
			stream := build(t, pasted(t, c.files))
			objects := decode(t, stream)
			require.Equal(t, "registry.example.com/monitoring/promguard", strings.Split(proxyContainer(t, stream).Image, ":")[0])
			if name != "all" {
				require.Contains(t, string(stream), "peers: [10.1.0.0/16]")
			}
			if c.patched {
				spec := find[*monitoringv1.Prometheus](t, objects).Spec
				require.Contains(t, *spec.Image, "registry.example.com/monitoring/prometheus:")
				require.Equal(t, []monitoringv1.Argument{{Name: "guard.drop-rules", Value: "off"}}, spec.AdditionalArgs)
			}
		})
	}
}
