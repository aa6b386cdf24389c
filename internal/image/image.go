// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package image packs files into container images without a container daemon.
//
// The same files give the same digests, wherever and whenever they are packed:
// of a file on disk only its content goes in, never its time, its owner or its
// mode. Compressed bytes are those of this program's Go release.
//
// The package knows nothing about what it packs.
package image

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Layer is one layer of an image.
type Layer struct {
	// What is what the image's history says of the layer.
	What  string
	Files []File
}

// Spec is what an image for one platform is made of.
type Spec struct {
	Platform v1.Platform
	Config   v1.Config
	// Created is the time of the image and of every file in it, in seconds.
	Created time.Time
	// Base is what the layers lie on; nil is nothing. Its environment is kept
	// where Config sets none, and so are its symbolic links to directories:
	// files below one come to lie where it leads.
	Base   v1.Image
	Layers []Layer
}

// Build packs an image in the formats of OCI.
func Build(s Spec) (v1.Image, error) {
	img := asOCI(empty.Image)
	layers := s.Layers
	if s.Base != nil {
		var err error
		if img, layers, err = onBase(s.Base, s.Layers); err != nil {
			return nil, fmt.Errorf("base: %w", err)
		}
	}
	created := v1.Time{Time: s.Created.UTC()}
	for _, l := range layers {
		packed, err := pack(l.Files, s.Created)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.What, err)
		}
		img, err = mutate.Append(img, mutate.Addendum{
			Layer:     packed,
			MediaType: types.OCILayer,
			History:   v1.History{Created: created, CreatedBy: l.What},
		})
		if err != nil {
			return nil, err
		}
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	env := file.Config.Env
	file.Config = *s.Config.DeepCopy()
	if len(file.Config.Env) == 0 {
		file.Config.Env = env
	}
	file.OS, file.Architecture, file.Variant = s.Platform.OS, s.Platform.Architecture, s.Platform.Variant
	file.Created = created
	return mutate.ConfigFile(img, file)
}

// Index joins the images of several platforms, in the order of the platforms'
// names, so that every one of them is known under one digest.
func Index(images map[string]v1.Image, annotations map[string]string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, name := range slices.Sorted(maps.Keys(images)) {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        images[name],
			Descriptor: v1.Descriptor{Platform: platform},
		})
	}
	annotated, ok := mutate.Annotations(index, annotations).(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("annotating an index gave a %T", annotated)
	}
	return annotated, nil
}
