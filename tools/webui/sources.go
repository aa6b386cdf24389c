// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// recipe changes with every edit to this program that changes the assets it
// makes from the same sources, so that older cached assets are not taken.
const recipe = "1"

// oldUIPage is what a server started with --enable-feature=old-ui answers. The
// Go module cannot carry the 2.x UI: module archives leave out folders named
// vendor, and that UI's plotting library is in one.
//
//go:embed oldui.html
var oldUIPage []byte

// toolchain pins pnpm and Node.js, with checksums, for npm to install.
//
//go:embed toolchain/package.json toolchain/package-lock.json
var toolchain embed.FS

// notSource are the names in web/ui that the assets are not made from: what
// builds leave behind, and the 2.x UI (see oldUIPage).
var notSource = map[string]bool{
	"dist":         true,
	"node_modules": true,
	"react-app":    true,
	"static":       true,
}

// sources lists the files in ui that the assets are made from, as sorted
// slash-separated paths relative to ui. Go files are not among them: they only
// serve the assets. Anything but files and folders is an error.
func sources(ui string) ([]string, error) {
	var files []string
	fsys := os.DirFS(ui)
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && notSource[d.Name()]:
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) == ".go":
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file", filepath.Join(ui, name))
		}
		files = append(files, name)
		return nil
	})
	return files, err
}

// hashSources names the assets that are made from files in ui: 64 hexadecimal
// digits over the files' names and contents and over all that this program adds.
func hashSources(ui string, files []string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "recipe %s\n%x\n", recipe, sha256.Sum256(oldUIPage))
	if err := hashFiles(h, toolchain, []string{"toolchain/package.json", "toolchain/package-lock.json"}); err != nil {
		return "", err
	}
	if err := hashFiles(h, os.DirFS(ui), files); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func hashFiles(w io.Writer, fsys fs.FS, files []string) error {
	for _, name := range files {
		content, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%q %x\n", name, sha256.Sum256(content))
	}
	return nil
}
