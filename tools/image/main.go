// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command image packs the built binaries into container images, without a
// container daemon, and pushes them. It is called by the Makefile; what is in
// the images is described in docs/image.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/internal/image"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	app := kingpin.New("image", "Container images of the patched Prometheus and of promguard, without a container daemon.")

	var b build
	var created int64
	cmd := app.Command("build", "Pack binaries into an image for every platform: an OCI layout, archives for docker load, and documents.")
	cmd.Arg("product", "prometheus or promguard.").Required().EnumVar(&b.product, "prometheus", "promguard")
	cmd.Flag("binaries", "Directory with a directory of binaries for each platform, such as linux-arm64.").Required().StringVar(&b.binaries)
	cmd.Flag("platform", "Platform, such as linux/arm64; may be given several times.").Required().StringsVar(&b.platforms)
	cmd.Flag("source", "Directory of the source that the binaries were built from.").Required().StringVar(&b.source)
	cmd.Flag("out", "Directory to write; what an earlier build wrote there is replaced.").Required().StringVar(&b.out)
	cmd.Flag("version", "Version of the product, such as 3.16.0+promguard.1.").Required().StringVar(&b.version)
	cmd.Flag("revision", "Commit of this repository.").Required().StringVar(&b.revision)
	cmd.Flag("created", "Time of the image and its files, in seconds since 1970.").Required().Int64Var(&created)
	cmd.Flag("repository", "Name of the image without a tag.").Required().StringVar(&b.repository)
	cmd.Flag("root", "Root of this repository.").Default(".").StringVar(&b.root)
	cmd.Flag("base", "OCI layout of an image to lie on. Without it, the image holds the product's files and nothing else.").StringVar(&b.base)

	var layout, repository, platform, dir string
	var insecure bool
	push := app.Command("push", "Push an image, and the documents about it, to a registry. Credentials are those of docker login.")
	push.Arg("layout", "OCI layout that build wrote.").Required().StringVar(&layout)
	push.Arg("repository", "Where to: REGISTRY/NAME. The tag is that of the layout.").Required().StringVar(&repository)
	push.Flag("insecure", "Speak plain HTTP to the registry.").BoolVar(&insecure)

	unpack := app.Command("unpack", "Write an image's files into a directory.")
	unpack.Arg("layout", "OCI layout that build wrote.").Required().StringVar(&layout)
	unpack.Arg("directory", "Directory to write to.").Required().StringVar(&dir)
	unpack.Flag("platform", "Platform.").Default("linux/amd64").StringVar(&platform)

	command, err := app.Parse(args)
	if err != nil {
		return err
	}
	switch command {
	case "build":
		b.created = time.Unix(created, 0)
		return b.run(ctx)
	case "push":
		return pushLayout(ctx, layout, repository, insecure)
	default:
		return unpackLayout(layout, platform, dir)
	}
}

func unpackLayout(layout, platform, dir string) error {
	_, index, _, err := image.ReadLayout(layout)
	if err != nil {
		return err
	}
	img, err := image.ForPlatform(index, platform)
	if err != nil {
		return fmt.Errorf("%s: %w", layout, err)
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty", filepath.Clean(dir))
	}
	// Only root may give files away.
	return image.Unpack(img, dir, os.Geteuid() == 0)
}
