// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// builder makes tarball from the web UI's sources.
type builder struct {
	ui       string   // web/ui in the tree, read only
	files    []string // its source files, relative to ui
	cache    string
	tarball  string
	keepWork bool
	out      io.Writer
}

// build installs the pinned pnpm, and Node.js if this machine's is too old, then
// the web UI's packages, builds the UI, and writes the tarball. All of it
// happens in a folder of its own under the cache, removed at the end.
func (b *builder) build(ctx context.Context) error {
	found, err := findNode(b.cache)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(b.cache, "work-")
	if err != nil {
		return err
	}
	// Node.js resolves packages by real paths: a relative one would not do.
	if work, err = filepath.Abs(work); err != nil {
		return err
	}
	if b.keepWork {
		fmt.Fprintf(b.out, "webui: working copy: %s\n", work)
	} else {
		defer b.remove(work)
	}
	ui := filepath.Join(work, "ui")
	if err := copyFiles(ui, os.DirFS(b.ui), b.files); err != nil {
		return err
	}
	s := steps{logs: filepath.Join(b.cache, "logs"), env: environment(os.Environ(), work), out: b.out}
	if err := b.installTools(ctx, &s, work, found); err != nil {
		return err
	}
	if err := s.run(ctx, ui, "packages", "pnpm", "install", "--frozen-lockfile", "--reporter=append-only"); err != nil {
		return err
	}
	// Upstream's script, so that its order of builds is followed at every bump.
	if err := s.run(ctx, ui, "build", "bash", "build_ui.sh", "--mantine-ui"); err != nil {
		return err
	}
	return b.pack(ui)
}

// remove takes the working copy away. It has so many files that it takes long
// enough to be worth a line.
func (b *builder) remove(work string) {
	fmt.Fprintln(b.out, "webui: removing the working copy")
	if err := os.RemoveAll(work); err != nil {
		fmt.Fprintf(b.out, "webui: remove it by hand: %v\n", err)
	}
}

// installTools has npm install what toolchain pins, and puts it first in PATH
// for the steps that follow.
func (b *builder) installTools(ctx context.Context, s *steps, work string, found node) error {
	lock, err := fs.Sub(toolchain, "toolchain")
	if err != nil {
		return err
	}
	dir := filepath.Join(work, "toolchain")
	if err := copyFiles(dir, lock, []string{"package.json", "package-lock.json"}); err != nil {
		return err
	}
	// Few retries: without a network the user is told so within seconds. No log
	// files of npm's own: they would go with the working copy.
	args := []string{"ci", "--ignore-scripts", "--no-audit", "--no-fund", "--logs-max=0", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"}
	if found.tooOld {
		fmt.Fprintf(b.out, "webui: node %s is too old (%s), installing the pinned one for this build\n", found.version, nodeRange)
	} else {
		fmt.Fprintf(b.out, "webui: node %s\n", found.version)
		args = append(args, "--omit=optional")
	}
	if err := s.run(ctx, dir, "toolchain", "npm", args...); err != nil {
		return err
	}
	bin := filepath.Join(dir, "node_modules", ".bin")
	if found.tooOld {
		// npm passes over optional packages that are not for this platform.
		if _, err := exec.LookPath(filepath.Join(bin, "node")); err != nil {
			return fmt.Errorf("node %s is too old and no newer one is pinned for %s/%s: install Node.js %s; %s",
				found.version, runtime.GOOS, runtime.GOARCH, nodeRange, without)
		}
	}
	s.prependPath(bin)
	return nil
}

// pack writes the tarball from the UI that was built in ui.
func (b *builder) pack(ui string) error {
	// The page for the 2.x UI alone would make assets that look complete.
	if _, err := os.Stat(filepath.Join(ui, staticDir, "mantine-ui", "index.html")); err != nil {
		return fmt.Errorf("build_ui.sh made no web UI: %w", err)
	}
	if err := writeFile(filepath.Join(ui, staticDir, "react-app", "index.html"), oldUIPage); err != nil {
		return err
	}
	assets, err := packAssets(ui)
	if err != nil {
		return err
	}
	return writeTarball(b.tarball, assets)
}

// copyFiles copies files from one file system into the folder dir.
func copyFiles(dir string, from fs.FS, files []string) error {
	for _, name := range files {
		content, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, name), content); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}
