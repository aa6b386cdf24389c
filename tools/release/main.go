// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command release packs what was built into container images and into the files
// that are published. It needs no container daemon and publishes nothing. The
// Makefile calls it; docs/image.md and docs/releasing.md describe what it makes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is one version of both products.
type release struct {
	root, tree        string // This repository, and the patched Prometheus.
	dist              string // Holds a directory of binaries for each platform, such as linux-arm64.
	images, out       string
	registry          string
	version, revision string
	platforms         []string
	created           time.Time
}

func run(ctx context.Context, args []string) error {
	app := kingpin.New("release", "Packs images and archives; publishes nothing.")
	var r release
	var created int64
	app.Flag("root", "Root of the repository.").Default(".").StringVar(&r.root)
	app.Flag("version", "Version, such as 3.16.0+promguard.1.").Required().StringVar(&r.version)

	image := app.Command("image", "Make container images: OCI layouts, and archives for docker load.")
	image.Flag("registry", "Where the images will be kept.").Required().StringVar(&r.registry)
	image.Flag("revision", "Commit of the repository.").Required().StringVar(&r.revision)

	archives := app.Command("archives", "Pack everything that is published.")
	archives.Flag("images", "Directory of the images.").Required().StringVar(&r.images)

	for _, cmd := range []*kingpin.CmdClause{image, archives} {
		cmd.Flag("dist", "Directory with a directory of binaries for each platform.").Required().StringVar(&r.dist)
		cmd.Flag("tree", "Source of the patched Prometheus.").Required().StringVar(&r.tree)
		cmd.Flag("platform", "Platform, such as linux/arm64; may be given several times.").Required().StringsVar(&r.platforms)
		cmd.Flag("created", "Time of all files, in seconds since 1970.").Required().Int64Var(&created)
		cmd.Flag("out", "Directory to write; what is there is removed.").Required().StringVar(&r.out)
	}
	check := app.Command("check", "Check the working tree, the tag, the changelog and the manifests.")
	dryRun := check.Flag("dry-run", "Demand neither the tag nor the version's section in the changelog.").Bool()
	notes := app.Command("notes", "Print the version's section of the changelog.")

	command, err := app.Parse(args)
	if err != nil {
		return err
	}
	r.created = time.Unix(created, 0).UTC()
	// The order in which they are asked for is no part of what is made.
	slices.Sort(r.platforms)
	switch command {
	case check.FullCommand():
		return r.check(ctx, *dryRun)
	case notes.FullCommand():
		entries, err := r.entries(false)
		if err == nil {
			fmt.Println(entries)
		}
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if command == image.FullCommand() {
		return r.writeImages(ctx)
	}
	return r.writeArchives(ctx)
}

// tag is the version in the form that git, registries and file names all take.
func (r release) tag() string { return "v" + strings.ReplaceAll(r.version, "+", "-") }

// binaries is the directory of the binaries for a platform.
func (r release) binaries(platform string) string { return filepath.Join(r.dist, slug(platform)) }

// slug is a platform in file names: linux-arm64.
func slug(platform string) string { return strings.ReplaceAll(platform, "/", "-") }
