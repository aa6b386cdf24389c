// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package webui tests the script that builds the web UI.
package webui

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// The scripts' node and npm are stand-ins, as the real ones need a network.
func TestScripts(t *testing.T) {
	build, err := filepath.Abs("build.sh")
	require.NoError(t, err)
	testscript.Run(t, testscript.Params{Dir: "testdata/script", Setup: func(env *testscript.Env) error {
		env.Setenv("BUILD", build)
		return os.CopyFS(filepath.Join(env.WorkDir, "tree", "scripts"), os.DirFS(filepath.Join(upstream(t), "scripts")))
	}})
}

// upstream is where the go command keeps the release that is patched.
func upstream(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", "github.com/prometheus/prometheus").Output()
	require.NoError(t, err)
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &module))
	return module.Dir
}

// What is pinned here has to follow upstream at every bump.
func TestNodeIsThatOfTheUpstreamRelease(t *testing.T) {
	nvmrc, err := os.ReadFile(filepath.Join(upstream(t), "web", "ui", ".nvmrc"))
	require.NoError(t, err)
	content, err := os.ReadFile("toolchain/package.json")
	require.NoError(t, err)
	var pinned struct {
		OptionalDependencies map[string]string `json:"optionalDependencies"`
	}
	require.NoError(t, json.Unmarshal(content, &pinned))
	require.Len(t, pinned.OptionalDependencies, 2)
	for name, version := range pinned.OptionalDependencies {
		require.Equal(t, strings.TrimSpace(string(nvmrc)), version, name)
	}
}

func TestLockFileHasChecksumsAndNoRegistry(t *testing.T) {
	content, err := os.ReadFile("toolchain/package-lock.json")
	require.NoError(t, err)
	var lock struct {
		Packages map[string]struct{ Integrity, Resolved string }
	}
	require.NoError(t, json.Unmarshal(content, &lock))
	require.Len(t, lock.Packages, 4)
	for name, pkg := range lock.Packages {
		require.Empty(t, pkg.Resolved, name)
		if name != "" {
			require.True(t, strings.HasPrefix(pkg.Integrity, "sha512-"), name)
		}
	}
}
