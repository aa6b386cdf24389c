// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	embedTemplate = "embed.go.tmpl"
	embedFile     = "embed.go"
	staticDir     = "static"
)

// packAssets turns the built web UI in ui/static into what a Go build embeds,
// as upstream's scripts/compress_assets.sh does: every file compressed, under
// its name with .gz added, and an embed.go that lists them. Keys are
// slash-separated paths relative to ui. The same input gives the same bytes.
func packAssets(ui string) (map[string][]byte, error) {
	assets := map[string][]byte{}
	fsys := os.DirFS(ui)
	err := fs.WalkDir(fsys, staticDir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		assets[name+".gz"], err = compress(content)
		return err
	})
	if err != nil {
		return nil, err
	}
	template, err := os.ReadFile(filepath.Join(ui, embedTemplate))
	if err != nil {
		return nil, err
	}
	assets[embedFile] = embedGo(template, sortedNames(assets))
	return assets, nil
}

// embedGo is the template followed by the directive that embeds names and the
// variable that web/ui/assets_embed.go serves from.
func embedGo(template []byte, names []string) []byte {
	var b bytes.Buffer
	b.Write(template)
	fmt.Fprintf(&b, "//go:embed %s\nvar EmbedFS embed.FS\n", strings.Join(names, " "))
	return b.Bytes()
}

// compress is gzip -n: no file name and no time in the header.
func compress(content []byte) ([]byte, error) {
	var b bytes.Buffer
	zw, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := zw.Write(content); err != nil {
		return nil, err
	}
	err = zw.Close()
	return b.Bytes(), err
}

func sortedNames(assets map[string][]byte) []string {
	names := make([]string, 0, len(assets))
	for name := range assets {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
