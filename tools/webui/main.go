// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Webui builds Prometheus's web UI from the sources in a patched tree and puts
// the compressed assets and embed.go into that tree, ready for a Go build with
// the tags netgo,builtinassets.
//
// The result is kept as CACHE/HASH.tar.gz, where HASH covers everything the
// assets are made from. While that file is there, nothing but Go is needed.
//
// It does not build Prometheus, and it leaves the tree's UI sources alone:
// packages are installed, and the UI is built, in a copy under CACHE.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

func main() {
	app := kingpin.New("webui", "Build Prometheus's web UI and put its assets into a source tree.\n\n"+
		"Exit codes: 0 the assets are in the tree; 1 they are not, and the last line on stderr says why.")
	app.HelpFlag.Short('h')
	tree := app.Flag("tree", "Prometheus source tree whose web/ui is built, and into which the assets go.").Required().String()
	cache := app.Flag("cache", "Folder for built assets (HASH.tar.gz), logs, and the working copy while it builds.").Required().String()
	keepWork := app.Flag("keep-work", "Keep the working copy with its installed packages (about 0.5 GB) after the build.").Bool()
	kingpin.MustParse(app.Parse(os.Args[1:]))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *tree, *cache, *keepWork, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "webui: error: %v\n", err)
		os.Exit(1)
	}
}

// run puts the web UI's assets into tree, from the cache where they are there
// and by building them where they are not. Progress goes to out.
func run(ctx context.Context, tree, cache string, keepWork bool, out io.Writer) error {
	ui := filepath.Join(tree, "web", "ui")
	if _, err := os.Stat(filepath.Join(ui, embedTemplate)); err != nil {
		return fmt.Errorf("%s is not a Prometheus source tree: %w", tree, err)
	}
	files, err := sources(ui)
	if err != nil {
		return err
	}
	hash, err := hashSources(ui, files)
	if err != nil {
		return err
	}
	tarball := filepath.Join(cache, hash+".tar.gz")
	switch _, err := os.Stat(tarball); {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		start := time.Now()
		fmt.Fprintf(out, "webui: %s does not exist yet, building the web UI (needs Node.js, npm and the npm registry)\n", tarball)
		b := builder{ui: ui, files: files, cache: cache, tarball: tarball, keepWork: keepWork, out: out}
		if err := b.build(ctx); err != nil {
			return err
		}
		fmt.Fprintf(out, "webui: built in %s\n", elapsed(start))
	default:
		return err
	}
	n, err := install(tarball, ui)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "webui: %d files of %s are in %s\n", n, tarball, ui)
	return nil
}

// elapsed is the time since start, rounded for people.
func elapsed(start time.Time) time.Duration {
	return time.Since(start).Round(100 * time.Millisecond)
}
