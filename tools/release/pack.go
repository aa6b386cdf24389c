// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/promguard/promguard/internal/bom"
	"github.com/promguard/promguard/internal/image"
)

// archive is what one product's archive holds beside licences of modules.
type archive struct {
	product  string
	binaries []string
	source   string            // Where it was built from.
	patched  string            // The module that source is a changed copy of; "" for none.
	files    map[string]string // Names in the archive, and where they lie below source.
}

// archives are laid out as upstream's: one directory with everything in it.
func (r release) archives() []archive {
	return []archive{
		{"prometheus", []string{"prometheus", "promtool"}, r.tree, "github.com/prometheus/prometheus", map[string]string{
			"prometheus.yml": "documentation/examples/prometheus.yml", "LICENSE": "LICENSE", "NOTICE": "NOTICE",
		}},
		{"promguard", []string{"promguard", "walreplay"}, r.root, "", map[string]string{"LICENSE": "LICENSE", "NOTICE": "NOTICE"}},
	}
}

// pack writes everything that is published, and checksums of it, into a
// directory of its own, and puts it in place when it is whole.
func (r release) pack(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(r.out), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(r.out), ".release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, a := range r.archives() {
		for _, platform := range r.platforms {
			if err := r.packBinaries(ctx, work, a, platform); err != nil {
				return err
			}
		}
		if err := r.packImage(work, a.product); err != nil {
			return err
		}
	}
	if err := writeSums(work); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(work, 0o755), os.RemoveAll(r.out)); err != nil {
		return err
	}
	if err := os.Rename(work, r.out); err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(r.out, sumsFile))
	fmt.Printf("%s:\n%s", r.out, sums)
	return err
}

// name is a file's: product-3.16.0-promguard.1.WHAT.
func (r release) name(product, what string) string {
	return product + "-" + strings.TrimPrefix(r.tag(), "v") + "." + what
}

func (r release) packBinaries(ctx context.Context, out string, a archive, platform string) error {
	slug := strings.ReplaceAll(platform, "/", "-")
	var binaries []bom.Binary
	for _, name := range a.binaries {
		b, err := bom.Read(filepath.Join(r.dist, slug, name))
		if err != nil {
			return err
		}
		if b.Platform() != platform {
			return fmt.Errorf("%s is for %s, not for %s", b.Path, b.Platform(), platform)
		}
		binaries = append(binaries, b)
	}
	components, err := bom.Of(ctx, a.source, binaries...)
	if err != nil {
		return err
	}
	npm, err := bom.WebUI(a.source, binaries...)
	if err != nil {
		return err
	}
	contents := bom.Contents{Binaries: binaries, Linked: components, Embedded: npm, EmbeddedTag: bom.WebUITag}
	licensed := bom.Merge(components, npm)
	if a.patched != "" {
		patched, err := bom.Pinned(ctx, r.root, a.patched)
		if err != nil {
			return err
		}
		contents.Patched, licensed = &patched, bom.Merge(licensed, []bom.Component{patched})
	}
	dir := "/" + r.name(a.product, slug)
	files := []image.File{
		image.Dir(dir, 0o755, 0, 0),
		image.Text(dir+"/third-party-licenses.txt", bom.Texts(licensed)),
	}
	for _, b := range binaries {
		files = append(files, image.Copy(dir+"/"+filepath.Base(b.Path), 0o755, b.Path))
	}
	if a.patched != "" {
		// NOTICE is that of the project whose binaries these are.
		files = append(files, image.Copy(dir+"/NOTICE.promguard", 0o644, r.path("NOTICE")))
	}
	for name, from := range a.files {
		files = append(files, image.Copy(dir+"/"+name, 0o644, filepath.Join(a.source, from)))
	}
	if err := r.writeArchive(filepath.Join(out, r.name(a.product, slug+".tar.gz")), true, files); err != nil {
		return err
	}
	const home = "https://github.com/promguard/promguard"
	doc, err := bom.Document(bom.Subject{
		Name: a.product, Version: r.version, Created: r.created, Download: home + "/releases/tag/" + r.tag(), Namespace: home + "/spdx",
	}, contents)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, r.name(a.product, slug+".spdx.json")), doc, 0o644)
}

// packImage packs an image's layout, and copies the documents about it. The
// layout's layers are compressed already.
func (r release) packImage(out, product string) error {
	dir := filepath.Join(r.images, product)
	layout := filepath.Join(dir, "oci")
	var files []image.File
	err := filepath.WalkDir(layout, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(layout, path)
		if err != nil {
			return err
		}
		files = append(files, image.Copy("/"+filepath.ToSlash(rel), 0o644, path))
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: make image makes it", err)
	}
	if err := r.writeArchive(filepath.Join(out, r.name(product, "oci.tar")), false, files); err != nil {
		return err
	}
	for from, to := range map[string]string{
		"digest":                 r.name(product, "image.digest"),
		"provenance.intoto.json": r.name(product, "image.provenance.intoto.json"),
	} {
		text, err := os.ReadFile(filepath.Join(dir, from))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, to), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (r release) writeArchive(path string, compress bool, files []image.File) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	var w io.WriteCloser = f
	if compress {
		if w, err = gzip.NewWriterLevel(f, gzip.BestCompression); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	err = image.WriteTar(w, files, r.created)
	if compress {
		err = errors.Join(err, w.Close())
	}
	return errors.Join(err, f.Close())
}

const sumsFile = "sha256sums.txt"

// writeSums writes the checksums of all files in a directory, as sha256sum -c
// reads them.
func writeSums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		lines = append(lines, hex.EncodeToString(sum.Sum(nil))+"  "+e.Name()+"\n")
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return os.WriteFile(filepath.Join(dir, sumsFile), []byte(strings.Join(lines, "")), 0o644)
}
