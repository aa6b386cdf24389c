// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// refName is the annotation by which tools find an image in a layout.
const refName = "org.opencontainers.image.ref.name"

// WriteLayout writes an OCI layout into the directory dir, which must not
// exist: the index under its tag, then what refers to it.
func WriteLayout(dir, tag string, index v1.ImageIndex, referrers []v1.Image) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already", dir)
	}
	l, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	if err := l.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: tag})); err != nil {
		return err
	}
	for _, r := range referrers {
		if err := l.AppendImage(r); err != nil {
			return err
		}
	}
	return nil
}

// ReadLayout returns what WriteLayout wrote.
func ReadLayout(dir string) (tag string, index v1.ImageIndex, referrers []v1.Image, err error) {
	root, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return "", nil, nil, err
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		return "", nil, nil, err
	}
	for _, d := range manifest.Manifests {
		if d.MediaType.IsIndex() {
			if index != nil {
				return "", nil, nil, fmt.Errorf("%s holds several images", dir)
			}
			tag = d.Annotations[refName]
			if index, err = root.ImageIndex(d.Digest); err != nil {
				return "", nil, nil, err
			}
			continue
		}
		r, err := root.Image(d.Digest)
		if err != nil {
			return "", nil, nil, err
		}
		referrers = append(referrers, r)
	}
	if index == nil {
		return "", nil, nil, fmt.Errorf("%s holds no image index", dir)
	}
	return tag, index, referrers, nil
}

// ForPlatform returns an index's image for a platform such as linux/arm64.
func ForPlatform(index v1.ImageIndex, platform string) (v1.Image, error) {
	want, err := v1.ParsePlatform(platform)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range manifest.Manifests {
		switch {
		// An index in an index is how some tools write a layout of several platforms.
		case d.MediaType.IsIndex():
			inner, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, err
			}
			if img, err := ForPlatform(inner, platform); err == nil {
				return img, nil
			}
		case d.Platform != nil && d.Platform.Satisfies(*want):
			return index.Image(d.Digest)
		case d.Platform == nil && d.MediaType.IsImage():
			img, err := index.Image(d.Digest)
			if err != nil {
				return nil, err
			}
			// A document about an image has no platform.
			file, err := img.ConfigFile()
			if err != nil {
				return nil, err
			}
			if has := file.Platform(); has != nil && has.Satisfies(*want) {
				return img, nil
			}
		}
	}
	return nil, fmt.Errorf("there is no image for %s", platform)
}

// WriteArchive writes a file that docker load and podman load read, with the
// image under the reference ref.
func WriteArchive(file, ref string, img v1.Image) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(file, tag, img)
}

// Unpack writes an image's files into the directory dir, with their modes and,
// where owners is set, which needs root, their owners.
func Unpack(img v1.Image, dir string, owners bool) error {
	files := mutate.Extract(img)
	err := untar(files, dir, owners)
	// What is left unread would block the writer at the other end.
	_, drained := io.Copy(io.Discard, files)
	return errors.Join(err, drained, files.Close())
}
