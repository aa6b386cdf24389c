// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command release checks that a release can be made and packs what was built
// into the files that are published. It publishes nothing. It is called by the
// Makefile; docs/releasing.md describes a release.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
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

func run(ctx context.Context, args []string) error {
	app := kingpin.New("release", "Checks and packs a release; publishes nothing.")
	var r release
	app.Flag("root", "Root of the repository.").Default(".").StringVar(&r.root)
	app.Flag("version", "Version of the product, such as 3.16.0+promguard.1.").Required().StringVar(&r.version)

	check := app.Command("check", "Check the working tree, the tag and the changelog.")
	dryRun := check.Flag("dry-run", "Demand neither a tag nor the version's section in the changelog.").Bool()

	var created int64
	pack := app.Command("pack", "Pack archives and checksums.")
	pack.Flag("dist", "Directory with a directory of binaries for each platform, such as linux-arm64.").Required().StringVar(&r.dist)
	pack.Flag("images", "Directory of the images.").Required().StringVar(&r.images)
	pack.Flag("tree", "Source of the patched Prometheus.").Required().StringVar(&r.tree)
	pack.Flag("platform", "Platform, such as linux/arm64; may be given several times.").Required().StringsVar(&r.platforms)
	pack.Flag("created", "Time of the files in the archives, in seconds since 1970.").Required().Int64Var(&created)
	pack.Flag("out", "Directory to write; what an earlier run wrote there is replaced.").Required().StringVar(&r.out)

	tag := app.Command("tag", "Print the git tag of the version, which is also that of the images.")

	notes := app.Command("notes", "Print the version's section of the changelog, or what is unreleased where there is none.")

	command, err := app.Parse(args)
	if err != nil {
		return err
	}
	switch command {
	case check.FullCommand():
		return r.check(ctx, *dryRun, time.Now())
	case notes.FullCommand():
		return r.notes(os.Stdout)
	case tag.FullCommand():
		fmt.Println(r.tag())
		return nil
	default:
		r.created = time.Unix(created, 0)
		return r.pack(ctx)
	}
}

// release is one version's.
type release struct {
	root, version           string
	dist, images, tree, out string
	platforms               []string
	created                 time.Time
}

// tag is the version in the form that git, registries and file names all take.
func (r release) tag() string { return "v" + strings.ReplaceAll(r.version, "+", "-") }

func (r release) path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(r.root, p)
}
