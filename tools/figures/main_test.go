// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const repository = "../.."

func TestEveryTableSaysWhatWasMeasuredOfThisRelease(t *testing.T) {
	version, err := currentVersion(repository)
	require.NoError(t, err)
	require.Regexp(t, `^\d+\.\d+\.\d+\+promguard\.\d+$`, version)
	names, err := pages(repository)
	require.NoError(t, err)
	tables := 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		tables += len(place.FindAll(text, -1))
		rendered, sets, err := renderPage(repository, text)
		require.NoError(t, err, name)
		require.Equal(t, string(rendered), string(text), "%s: make figures FIGURES= writes its tables", name)
		for of, s := range sets {
			require.Equal(t, version, s.config["version"], "%s is of another release: make figures FIGURES=%s", of, of)
		}
	}
	require.Greater(t, tables, 1)
}

func TestEachFigureOfTheReadmeIsMeasured(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "docs/figures/readme.tmpl"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		cells := strings.SplitN(line, "|", 4) // The first is empty; then what was measured, and of what.
		if len(cells) < 4 || !strings.Contains(line, "median") {
			continue
		}
		require.NotRegexp(t, `\d`, regexp.MustCompile(`{{.*?}}`).ReplaceAllString(cells[2]+cells[3], ""), line)
	}
}

func TestATableHasTheMediansOfItsSet(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	write("README.md", "above\n<!-- figures table -->\nold\n<!-- /figures -->\nbelow\n")
	write("prometheus-patches/UPSTREAM", "tag v3.16.0\nrelease promguard.1\n")
	write("docs/figures/table.tmpl", `{{number 1 (median "speed" "Run/of=a" "cpu-ns/op")}}, {{number 0 (median "speed" "Run/of=a" "ns/op")}}, {{number 0 (about "speed" "cpus")}} cores, {{about "speed" "version"}}`+"\n")
	require.Error(t, run([]string{"--root", root, "render"}, io.Discard), "nothing is measured")
	require.ErrorContains(t, run([]string{"--root", root, "record", "speed", "--", "echo", "nothing"}, io.Discard), "no result")
	require.Error(t, run([]string{"--root", root, "record", "speed", "--", "no-such-program"}, io.Discard))
	bench := "printf 'cpus: 4\nBenchmarkRun/of=a 1 3 cpu-ns/op 1234567 ns/op\nBenchmarkRun/of=a 1 4 cpu-ns/op 1234567 ns/op\n'"
	require.NoError(t, run([]string{"--root", root, "record", "speed", "--", "sh", "-c", bench}, io.Discard))
	require.NoError(t, run([]string{"--root", root, "render"}, io.Discard))
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	require.Equal(t, "above\n<!-- figures table -->\n3.5, 1,234,567, 4 cores, 3.16.0+promguard.1\n<!-- /figures -->\nbelow\n", string(text))
}
