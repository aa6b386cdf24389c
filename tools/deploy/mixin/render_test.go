// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package mixin

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-jsonnet"
	"github.com/google/go-jsonnet/formatter"
	"github.com/stretchr/testify/require"
)

const root = "../../.."

func TestTheFilesThatAreCheckedInAreThoseTheMixinGives(t *testing.T) {
	files, err := Render(root)
	require.NoError(t, err)
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err, "make deploy-render writes it")
		require.Equal(t, string(want), string(got), "%s: make deploy-render", name)
	}
	checkedIn, err := filepath.Glob(root + "/deploy/grafana/dashboards/*.json")
	require.NoError(t, err)
	for _, name := range checkedIn {
		require.Contains(t, files, "deploy/grafana/dashboards/"+filepath.Base(name), "no dashboard of the mixin")
	}
	kustomization, err := os.ReadFile(root + "/deploy/grafana/kustomization.yaml")
	require.NoError(t, err)
	require.Equal(t, len(checkedIn), strings.Count(string(kustomization), "- dashboards/"), "dashboards in the kustomization")
}

func TestWithoutPromguardNothingAsksForOne(t *testing.T) {
	vm := jsonnet.MakeVM()
	vm.Importer(&jsonnet.FileImporter{JPaths: []string{root}})
	text, err := vm.EvaluateAnonymousSnippet("without.jsonnet", `
		local mixin = (import 'deploy/mixin/mixin.libsonnet') + { _config+:: { withPromguard: false } };
		{ dashboards: std.objectFields(mixin.grafanaDashboards), groups: [g.name for g in mixin.prometheusAlerts.groups] }
	`)
	require.NoError(t, err)
	require.NotContains(t, text, "promguard-proxy")
	require.Contains(t, text, "promguard-server")
}

func TestJsonnetIsFormatted(t *testing.T) {
	require.NoError(t, filepath.WalkDir(root+"/deploy", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "sonnet") {
			return err
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		want, err := formatter.Format(name, string(text), formatter.DefaultOptions())
		require.NoError(t, err)
		require.Equal(t, want, string(text), "%s: make deploy-render formats it", name)
		return nil
	}))
}
