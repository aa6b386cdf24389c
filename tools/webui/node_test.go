// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNodeVersionIsHeldAgainstWhatTheBuildNeeds(t *testing.T) {
	for version, want := range map[string]bool{
		"18.20.4": false,
		"20.18.3": false,
		"20.19.0": true,
		"20.20.2": true,
		"21.7.3":  false,
		"22.11.0": false,
		"22.12.0": true,
		"23.0.0":  true,
		"24.20.0": true,
	} {
		got, err := nodeSuffices(version)
		require.NoError(t, err, version)
		require.Equal(t, want, got, version)
	}
	for _, version := range []string{"", "24", "x.y.z"} {
		_, err := nodeSuffices(version)
		require.ErrorContains(t, err, "which is no version", version)
	}
}

func TestMissingProgramIsNamedWithWhatToInstallAndHowToDoWithout(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	ui := writeTree(t, map[string]string{"embed.go.tmpl": ""})
	tree := filepath.Dir(filepath.Dir(ui))
	for _, step := range []struct{ missing, install string }{
		{"node", "install Node.js ^20.19.0 || >=22.12.0 (Debian: `apt install nodejs npm`)"},
		{"npm", "install npm, which comes with Node.js"},
		{"bash", "install bash"},
	} {
		var out bytes.Buffer
		err := run(t.Context(), tree, filepath.Join(tree, "cache"), false, &out)
		require.ErrorContains(t, err, step.missing+" is not in PATH")
		require.ErrorContains(t, err, step.install)
		require.ErrorContains(t, err, "`make prometheus` without UI=1")
		require.NoDirExists(t, filepath.Join(tree, "cache"))
		require.NoError(t, os.WriteFile(filepath.Join(bin, step.missing), nil, 0o755))
	}
}

// What this program pins has to follow upstream at every bump.
func TestPinsAreThoseOfTheUpstreamRelease(t *testing.T) {
	out, err := exec.Command("go", "mod", "download", "-json", "github.com/prometheus/prometheus").Output()
	require.NoError(t, err)
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &module))
	ui := filepath.Join(module.Dir, "web", "ui")

	nvmrc, err := os.ReadFile(filepath.Join(ui, ".nvmrc"))
	require.NoError(t, err)
	var pinned struct {
		OptionalDependencies map[string]string `json:"optionalDependencies"`
	}
	content, err := toolchain.ReadFile("toolchain/package.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &pinned))
	require.Len(t, pinned.OptionalDependencies, 2)
	for name, version := range pinned.OptionalDependencies {
		require.Equal(t, strings.TrimSpace(string(nvmrc)), version, name)
	}

	lock, err := os.ReadFile(filepath.Join(ui, "pnpm-lock.yaml"))
	require.NoError(t, err)
	_, vite, found := strings.Cut(string(lock), "\n  vite@")
	require.True(t, found)
	vite, _, _ = strings.Cut(vite, "\n\n")
	require.Contains(t, vite, "engines: {node: "+nodeRange+"}")
}

func TestLockFileHasChecksumsAndNoRegistry(t *testing.T) {
	content, err := toolchain.ReadFile("toolchain/package-lock.json")
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
