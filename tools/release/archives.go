// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// writeArchives writes everything that is published.
func (r release) writeArchives(ctx context.Context) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, p := range r.products() {
		for _, platform := range r.platforms {
			if err := r.writeBinaries(ctx, p, platform); err != nil {
				return err
			}
		}
		if err := r.writeLayout(p.name); err != nil {
			return err
		}
	}
	chart, manifests, err := r.deployFiles()
	if err != nil {
		return err
	}
	return errors.Join(r.writePacked("promguard", "chart.tgz", chart), r.writePacked("promguard", "deploy.tar.gz", manifests))
}

// name is that of what is published: promguard-3.16.0-promguard.1.linux-amd64.tar.gz.
func (r release) name(what, suffix string) string { return what + "-" + r.tag()[1:] + "." + suffix }

func (r release) writePacked(what, suffix string, files []file) error {
	archive, err := packed(files, r.created)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, r.name(what, suffix)), archive, 0o644)
}

// writeBinaries writes a product's archive for one platform, laid out as upstream's,
// in one directory, and beside it what each of its binaries was linked from.
func (r release) writeBinaries(ctx context.Context, p product, platform string) error {
	binaries := slices.Concat(p.binaries, p.archived)
	dir := r.name(p.name, slug(platform)) + "/"
	files, err := r.legal(ctx, p, platform, binaries, dir, dir)
	if err != nil {
		return err
	}
	if p.patched {
		files = append(files, copyOf(dir+"prometheus.yml", filepath.Join(r.tree, exampleConfig)))
	}
	for _, binary := range binaries {
		from := filepath.Join(r.binaries(platform), binary)
		files = append(files, program(dir+binary, from))
		bom, err := os.ReadFile(from + ".cdx.json")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.out, r.name(binary, slug(platform)+".cdx.json")), bom, 0o644); err != nil {
			return err
		}
	}
	return r.writePacked(p.name, slug(platform)+".tar.gz", files)
}

// writeLayout writes an image as one file, whose layers are compressed already, and
// its digest.
func (r release) writeLayout(product string) error {
	dir := filepath.Join(r.images, product)
	files, err := below(filepath.Join(dir, layoutDir), "", func(string) bool { return true })
	if err != nil {
		return fmt.Errorf("%w: make image makes it", err)
	}
	digest, err := os.ReadFile(filepath.Join(dir, digestFile))
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.out, r.name(product, "oci.tar")))
	if err != nil {
		return err
	}
	return errors.Join(writeTar(f, files, r.created), f.Close(),
		os.WriteFile(filepath.Join(r.out, r.name(product, "image.digest")), digest, 0o644))
}

// deployFiles are the Helm chart, as Helm reads it, and what else an operator applies:
// manifests, dashboards, alerts and their sources.
func (r release) deployFiles() (chart, manifests []file, err error) {
	deploy := filepath.Join(r.root, "deploy")
	chart, err = below(filepath.Join(deploy, "helm/promguard"), "promguard", func(string) bool { return true })
	if err != nil {
		return nil, nil, err
	}
	dir := r.name("promguard", "deploy") + "/"
	for _, part := range []string{"kubernetes", "grafana", "mixin"} {
		files, err := below(filepath.Join(deploy, part), dir+part, func(name string) bool { return !strings.Contains("/"+name, "/testdata/") })
		if err != nil {
			return nil, nil, err
		}
		manifests = append(manifests, files...)
	}
	return chart, append(manifests, copyOf(dir+"LICENSE", filepath.Join(r.root, "LICENSE"))), nil
}
