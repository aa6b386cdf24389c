// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package bom

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const mit = `MIT License

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND
`

// write makes files below a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

// compile builds a program of the repository's root module in a module of its
// own, and returns it and the module's directory.
func compile(t *testing.T, files map[string]string) (Binary, string) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files)
	path := filepath.Join(dir, "hello")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "netgo,builtinassets", "-o", path, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false -mod=mod", "GOPROXY=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	b, err := Read(path)
	require.NoError(t, err)
	return b, dir
}

// A program that is linked from a module that the repository itself requires,
// so that it is in the module cache.
func withModule(t *testing.T) (Binary, string) {
	t.Helper()
	sums, err := os.ReadFile("../../go.sum")
	require.NoError(t, err)
	return compile(t, map[string]string{
		"go.mod":  "module example.com/hello\n\ngo 1.26.0\n\nrequire github.com/golang/snappy v1.0.0\n",
		"go.sum":  string(sums),
		"main.go": "package main\n\nimport \"github.com/golang/snappy\"\n\nfunc main() { println(snappy.MaxEncodedLen(1)) }\n",
	})
}

func TestABinarySaysWhatItIsMadeOf(t *testing.T) {
	b, dir := withModule(t)
	require.True(t, b.HasTag("builtinassets"))
	require.False(t, b.HasTag("assets"))
	components, err := Of(t.Context(), dir, b)
	require.NoError(t, err)
	require.Len(t, components, 2)

	snappy := components[0]
	require.Equal(t, "github.com/golang/snappy", snappy.Name)
	require.Equal(t, "pkg:golang/github.com/golang/snappy@v1.0.0", snappy.PURL)
	require.Equal(t, "BSD-3-Clause", snappy.Declared)
	require.Equal(t, "github.com/golang", snappy.Supplier)
	require.NotEmpty(t, snappy.Sum)
	require.Contains(t, snappy.Licences[0].Text, "The Snappy-Go Authors")

	require.Equal(t, "stdlib", components[1].Name)
	require.Equal(t, b.Go(), components[1].Version)
	require.Equal(t, "BSD-3-Clause", components[1].Declared)

	_, err = Read("bom.go")
	require.Error(t, err)
}

func TestAModuleWithoutLicenceIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"licence at the root":        {map[string]string{"LICENSE": mit}, ""},
		"its British spelling":       {map[string]string{"Licence.txt": mit}, ""},
		"nothing":                    {map[string]string{"a.go": "package a"}, "no licence is in the module"},
		"an empty one":               {map[string]string{"LICENSE": " \n"}, "no licence is in the module"},
		"that of a part alone":       {map[string]string{"third_party/x/LICENSE": mit}, "no licence is in the module"},
		"a notice alone":             {map[string]string{"NOTICE": "notice"}, "no licence is in the module"},
		"source code about licences": {map[string]string{"license.go": "package a"}, "no licence is in the module"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, tc.files)
			_, err := module("example.com/a", "v1.0.0", "", dir)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, "example.com/a@v1.0.0: "+tc.want)
		})
	}
}

func TestLicencesOfPartsGoAlongAndThoseOfTestsDoNot(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"LICENSE": mit, "NOTICE": "n", "internal/x/LICENSE.txt": "x", "testdata/LICENSE": "t", ".github/license-check.yml": "y", "LICENSE.tmpl": "z",
	})
	c, err := module("example.com/a", "v1.0.0+incompatible", "", dir)
	require.NoError(t, err)
	var files []string
	for _, l := range c.Licences {
		files = append(files, l.File)
	}
	require.Equal(t, []string{"LICENSE", "NOTICE", "internal/x/LICENSE.txt"}, files)
	require.Equal(t, "MIT", c.Declared)
	require.Equal(t, "pkg:golang/example.com/a@v1.0.0%2Bincompatible", c.PURL)
}

func TestOnlyAKnownLicenceAloneGetsAName(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"a known one":      {mit, "MIT"},
		"reflowed":         {strings.Join(strings.Fields(mit), "\n"), "MIT"},
		"an unknown one":   {"Do what you like.", ""},
		"two in one file":  {mit + "Apache License Version 2.0, January 2004 END OF TERMS AND CONDITIONS", ""},
		"a mention of one": {"Licensed under the Apache License, Version 2.0", ""},
		"nothing":          {"", ""},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, identify(tc.text)) })
	}
}

func TestEveryTextIsThereOnceUnderAllItsOwners(t *testing.T) {
	text := Texts([]Component{
		{Name: "a", Version: "v1", Licences: []Licence{{"LICENSE", "same\r\n"}}},
		{Name: "b", Version: "v2", Licences: []Licence{{"LICENSE", "same\n"}, {"NOTICE", "other"}}},
	})
	require.Equal(t, "a v1, LICENSE\nb v2, LICENSE\n\nsame\n\n"+strings.Repeat("=", 80)+"\n\nb v2, NOTICE\n\nother\n", text)
}

const npmList = `Name: @scope/a
Version: 1.0.0
License: MIT
Private: false
License Text:
===

MIT text
Name: not a field here

---

Name: b
Version: 2.0.0-rc.1
License: SEE LICENSE IN x
`

func TestPackagesAreReadFromTheListOfTheWebUI(t *testing.T) {
	components, err := NPM(npmList)
	require.NoError(t, err)
	require.Equal(t, []Component{
		{
			Name: "@scope/a", Version: "1.0.0", PURL: "pkg:npm/%40scope/a@1.0.0", Declared: "MIT", Supplier: "npmjs.com/@scope",
			Licences: []Licence{{"LICENSE", "\nMIT text\nName: not a field here\n\n"}},
		},
		{Name: "b", Version: "2.0.0-rc.1", PURL: "pkg:npm/b@2.0.0-rc.1", Declared: NoAssertion, Supplier: "npmjs.com/b"},
	}, components)

	_, err = NPM("")
	require.ErrorContains(t, err, "names no package")
	_, err = NPM("Name: a\n---\n")
	require.ErrorContains(t, err, "without a name or a version")
}

func FuzzNPM(f *testing.F) {
	f.Add(npmList)
	f.Fuzz(func(t *testing.T, list string) {
		components, err := NPM(list)
		if err != nil {
			return
		}
		require.NotEmpty(t, components)
		for _, c := range components {
			require.NotEmpty(t, c.Name)
			require.NotEmpty(t, c.Version)
		}
	})
}

func TestADocumentNamesEverythingOnceAndIsTheSameTwice(t *testing.T) {
	b, dir := withModule(t)
	components, err := Of(t.Context(), dir, b)
	require.NoError(t, err)
	npm, err := NPM(npmList)
	require.NoError(t, err)
	roots, err := Pinned(t.Context(), "../..", "golang.org/x/crypto/x509roots/fallback")
	require.NoError(t, err)
	patched, err := Pinned(t.Context(), "../..", "github.com/prometheus/prometheus")
	require.NoError(t, err)
	subject := Subject{
		Name: "example.com/hello", Version: "1.0.0+x.1", Digest: "sha256:" + strings.Repeat("ab", 32), Download: "git+https://example.com",
		Namespace: "https://example.com/spdx", Created: time.Unix(1_800_000_000, 0),
	}
	in := Contents{Binaries: []Binary{b}, Linked: components, Embedded: npm, EmbeddedTag: "builtinassets", Beside: []Component{roots}, Patched: &patched}
	text, err := Document(subject, in)
	require.NoError(t, err)
	again, err := Document(subject, in)
	require.NoError(t, err)
	require.Equal(t, string(text), string(again))

	var doc spdxDocument
	require.NoError(t, json.Unmarshal(text, &doc))
	require.Equal(t, "2027-01-15T08:00:00Z", doc.CreationInfo.Created)
	names := map[string]string{}
	for _, p := range doc.Packages {
		require.NotContains(t, names, p.ID)
		require.Regexp(t, `^SPDXRef-[A-Za-z0-9.-]+$`, p.ID)
		require.NotEmpty(t, p.LicenseDeclared)
		names[p.ID] = p.Name
	}
	var relations []string
	for _, r := range doc.Relationships {
		require.Contains(t, names, r.To)
		relations = append(relations, names[r.From]+" "+r.Type+" "+names[r.To])
	}
	require.ElementsMatch(t, []string{
		" DESCRIBES example.com/hello",
		"example.com/hello CONTAINS hello",
		"hello STATIC_LINK github.com/golang/snappy", "hello STATIC_LINK stdlib",
		"hello DESCENDANT_OF github.com/prometheus/prometheus",
		"hello CONTAINS @scope/a", "hello CONTAINS b",
		"example.com/hello CONTAINS golang.org/x/crypto/x509roots/fallback",
	}, relations)

	// Without the tag, the web UI is not in the binary.
	in.EmbeddedTag = "other"
	text, err = Document(subject, in)
	require.NoError(t, err)
	require.NotContains(t, string(text), `"relationshipType": "CONTAINS",
      "relatedSpdxElement": "SPDXRef-npm`)
}
