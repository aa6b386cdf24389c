// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeTree makes a web/ui folder of files and returns its path.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	ui := filepath.Join(t.TempDir(), "web", "ui")
	for name, content := range files {
		require.NoError(t, writeFile(filepath.Join(ui, name), []byte(content)))
	}
	return ui
}

func hashOf(t *testing.T, ui string) string {
	t.Helper()
	files, err := sources(ui)
	require.NoError(t, err)
	hash, err := hashSources(ui, files)
	require.NoError(t, err)
	return hash
}

func TestSourcesAreWhatTheAssetsAreMadeFrom(t *testing.T) {
	ui := writeTree(t, map[string]string{
		"package.json":                        "",
		".npmrc":                              "",
		"mantine-ui/src/main.tsx":             "",
		"mantine-ui/dist/index.html":          "",
		"mantine-ui/node_modules/a/index.js":  "",
		"module/lezer-promql/src/p.grammar":   "",
		"module/lezer-promql/dist/index.cjs":  "",
		"node_modules/b/index.js":             "",
		"react-app/package.json":              "",
		"static/mantine-ui/index.html.gz":     "",
		"embed.go":                            "",
		"mantine-ui/src/promql/tools/main.go": "",
	})
	files, err := sources(ui)
	require.NoError(t, err)
	require.Equal(t, []string{
		".npmrc", "mantine-ui/src/main.tsx", "module/lezer-promql/src/p.grammar", "package.json",
	}, files)
}

func TestSourceThatIsNoRegularFileIsRefused(t *testing.T) {
	ui := writeTree(t, map[string]string{"package.json": ""})
	require.NoError(t, os.Symlink("package.json", filepath.Join(ui, "link")))
	_, err := sources(ui)
	require.ErrorContains(t, err, "link is not a regular file")
}

func TestHashFollowsNamesAndContentsOfSources(t *testing.T) {
	base := hashOf(t, writeTree(t, map[string]string{"a": "1", "b": "2"}))
	require.Len(t, base, 64)
	for name, tc := range map[string]struct {
		files map[string]string
		same  bool
	}{
		"same sources elsewhere": {map[string]string{"a": "1", "b": "2"}, true},
		"build output":           {map[string]string{"a": "1", "b": "2", "node_modules/x": "3"}, true},
		"content":                {map[string]string{"a": "1", "b": "3"}, false},
		"name":                   {map[string]string{"a": "1", "c": "2"}, false},
		"added file":             {map[string]string{"a": "1", "b": "2", "c": ""}, false},
		"contents swapped":       {map[string]string{"a": "2", "b": "1"}, false},
	} {
		require.Equal(t, tc.same, base == hashOf(t, writeTree(t, tc.files)), name)
	}
}

func TestAssetsAreCompressedAndListedInEmbedGo(t *testing.T) {
	ui := writeTree(t, map[string]string{
		"embed.go.tmpl":                 "//go:build builtinassets\n\npackage ui\n\nimport \"embed\"\n\n",
		"static/mantine-ui/index.html":  "page",
		"static/mantine-ui/assets/z.js": "script",
	})
	assets, err := packAssets(ui)
	require.NoError(t, err)
	require.Equal(t, []string{
		"embed.go", "static/mantine-ui/assets/z.js.gz", "static/mantine-ui/index.html.gz",
	}, sortedNames(assets))

	embed := string(assets["embed.go"])
	require.Equal(t, "//go:build builtinassets\n\npackage ui\n\nimport \"embed\"\n\n"+
		"//go:embed static/mantine-ui/assets/z.js.gz static/mantine-ui/index.html.gz\nvar EmbedFS embed.FS\n", embed)
	_, err = parser.ParseFile(token.NewFileSet(), "embed.go", embed, parser.AllErrors)
	require.NoError(t, err)

	zr, err := gzip.NewReader(bytes.NewReader(assets["static/mantine-ui/index.html.gz"]))
	require.NoError(t, err)
	require.Empty(t, zr.Name)
	require.True(t, zr.ModTime.IsZero())
	content, err := io.ReadAll(zr)
	require.NoError(t, err)
	require.Equal(t, "page", string(content))
}

func TestSameAssetsGiveTheSameTarball(t *testing.T) {
	assets := map[string][]byte{"embed.go": []byte("x"), "static/b": []byte("b"), "static/a": []byte("a")}
	var tarballs [2][]byte
	for i := range tarballs {
		file := filepath.Join(t.TempDir(), "t.tar.gz")
		require.NoError(t, writeTarball(file, assets))
		var err error
		tarballs[i], err = os.ReadFile(file)
		require.NoError(t, err)
		back, err := readTarball(file)
		require.NoError(t, err)
		require.Equal(t, assets, back)
	}
	require.Equal(t, tarballs[0], tarballs[1])
}

func TestInstallReplacesTheAssetsThatWereThere(t *testing.T) {
	ui := writeTree(t, map[string]string{"embed.go": "old", "static/mantine-ui/old.gz": "old", "ui.go": "kept"})
	file := filepath.Join(t.TempDir(), "t.tar.gz")
	require.NoError(t, writeTarball(file, map[string][]byte{"embed.go": []byte("new"), "static/mantine-ui/new.gz": []byte("new")}))
	n, err := install(file, ui)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.NoFileExists(t, filepath.Join(ui, "static/mantine-ui/old.gz"))
	for name, want := range map[string]string{"embed.go": "new", "static/mantine-ui/new.gz": "new", "ui.go": "kept"} {
		got, err := os.ReadFile(filepath.Join(ui, name))
		require.NoError(t, err)
		require.Equal(t, want, string(got), name)
	}
}

func TestTarballCannotWriteOutsideOfTheUI(t *testing.T) {
	ui := writeTree(t, map[string]string{"ui.go": "package ui"})
	file := filepath.Join(t.TempDir(), "t.tar.gz")
	require.NoError(t, writeTarball(file, map[string][]byte{"embed.go": nil, "../escaped": []byte("x")}))
	_, err := install(file, ui)
	require.ErrorContains(t, err, "escapes")
	require.NoFileExists(t, filepath.Join(filepath.Dir(ui), "escaped"))
}

func TestDamagedTarballIsRefusedAndTheTreeIsLeftAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.tar.gz")
	require.NoError(t, writeTarball(file, map[string][]byte{"embed.go": []byte("new"), "static/a.gz": []byte("a")}))
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	noEmbed := filepath.Join(t.TempDir(), "n.tar.gz")
	require.NoError(t, writeTarball(noEmbed, map[string][]byte{"static/a.gz": []byte("a")}))
	lacking, err := os.ReadFile(noEmbed)
	require.NoError(t, err)
	for name, content := range map[string][]byte{
		"empty":             nil,
		"cut":               whole[:len(whole)/2],
		"checksum cut":      whole[:len(whole)-4],
		"without embed.go":  lacking,
		"not a gzip at all": []byte("not a gzip"),
	} {
		ui := writeTree(t, map[string]string{"embed.go": "old"})
		require.NoError(t, os.WriteFile(file, content, 0o644))
		_, err := install(file, ui)
		require.ErrorContains(t, err, "is damaged, remove it and run again", name)
		kept, err := os.ReadFile(filepath.Join(ui, "embed.go"))
		require.NoError(t, err, name)
		require.Equal(t, "old", string(kept), name)
	}
}
