// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// What is in the directory of a product's image, beside an archive for docker load
// for each platform.
const layoutDir, digestFile = "oci", "digest"

// writeImages writes the images of both products.
func (r release) writeImages(ctx context.Context) error {
	for _, p := range r.products() {
		digest, err := r.writeImage(ctx, p, filepath.Join(r.out, p.name))
		if err != nil {
			return err
		}
		fmt.Printf("%s/%s:%s@%s\n", r.registry, p.name, r.tag(), digest)
	}
	return nil
}

// writeImage writes a product's image for all platforms below dir.
func (r release) writeImage(ctx context.Context, p product, dir string) (v1.Hash, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return v1.Hash{}, err
	}
	ref, err := name.NewTag(r.registry + "/" + p.name + ":" + r.tag())
	if err != nil {
		return v1.Hash{}, err
	}
	ociIndex := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	index := ociIndex
	for _, platform := range r.platforms {
		img, err := r.image(ctx, p, platform)
		if err != nil {
			return v1.Hash{}, err
		}
		config, err := img.ConfigFile()
		if err != nil {
			return v1.Hash{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: config.Platform()}})
		if err := tarball.WriteToFile(filepath.Join(dir, p.name+"-"+slug(platform)+".tar"), ref, img); err != nil {
			return v1.Hash{}, err
		}
	}
	index = mutate.Annotations(index, r.annotations(p)).(v1.ImageIndex)
	oci, err := layout.Write(filepath.Join(dir, layoutDir), ociIndex)
	if err != nil {
		return v1.Hash{}, err
	}
	named := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.tag()})
	if err := oci.AppendIndex(index, named); err != nil {
		return v1.Hash{}, err
	}
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, err
	}
	return digest, os.WriteFile(filepath.Join(dir, digestFile), []byte(digest.String()+"\n"), 0o644)
}

// image is a product's image for one platform, of two layers: what changes
// seldom lies below.
func (r release) image(ctx context.Context, p product, platform string) (v1.Image, error) {
	files, err := r.imageFiles(ctx, p, platform)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, l := range []struct {
		what  string
		files []file
	}{{"accounts, root certificates, /tmp", system()}, {p.name + " " + r.version, files}} {
		archive, err := packed(l.files, r.created)
		if err != nil {
			return nil, err
		}
		open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil }
		layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		history := v1.History{Created: v1.Time{Time: r.created}, CreatedBy: "promguard: " + l.what}
		if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: history}); err != nil {
			return nil, err
		}
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, _ = strings.Cut(platform, "/")
	file.Created = v1.Time{Time: r.created}
	file.Config = p.config
	file.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	file.Config.Labels = r.annotations(p)
	maps.Copy(file.Config.Labels, p.labels)
	return mutate.ConfigFile(img, file)
}

// imageFiles are the files of a product's own layer.
func (r release) imageFiles(ctx context.Context, p product, platform string) ([]file, error) {
	legal, err := r.legal(ctx, p, platform, p.binaries, "", "usr/share/licenses/"+p.name+"/")
	if err != nil {
		return nil, err
	}
	files := slices.Concat(p.files, legal)
	for _, binary := range p.binaries {
		files = append(files, program("bin/"+binary, filepath.Join(r.binaries(platform), binary)))
	}
	return files, nil
}

// annotations say what an image is, in its index and as its labels.
func (r release) annotations(p product) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "authors":       authors,
		prefix + "vendor":        "promguard",
		prefix + "title":         p.title,
		prefix + "description":   p.description,
		prefix + "source":        home,
		prefix + "url":           home,
		prefix + "documentation": home + "/blob/main/docs/image.md",
		prefix + "licenses":      "Apache-2.0",
		prefix + "version":       r.version,
		prefix + "revision":      r.revision,
		prefix + "created":       r.created.Format(time.RFC3339),
	}
}
