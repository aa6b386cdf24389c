// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// onBase returns a base in the formats of OCI, and the layers as they have to be
// to lie on it.
func onBase(base v1.Image, layers []Layer) (v1.Image, []Layer, error) {
	links, err := symlinks(base)
	if err != nil {
		return nil, nil, err
	}
	layers = slices.Clone(layers)
	for i, l := range layers {
		files := slices.Clone(l.Files)
		for j := range files {
			if files[j].Path, err = links.place(files[j]); err != nil {
				return nil, nil, err
			}
		}
		layers[i].Files = files
	}
	img, err := converted(base)
	return img, layers, err
}

// links are the symbolic links of an image: absolute paths, and where they lead.
type links map[string]string

func symlinks(img v1.Image) (links, error) {
	found := links{}
	files := mutate.Extract(img)
	defer files.Close()
	for archive := tar.NewReader(files); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeSymlink {
			found[path.Clean("/"+h.Name)] = h.Linkname
		}
	}
}

// place is where a file lies once the links on its way are followed. A directory
// in the place of a link, /bin in that of one to /usr/bin, would hide what is
// behind it.
func (l links) place(f File) (string, error) {
	if f.Mode.IsDir() {
		return l.follow(f.Path)
	}
	dir, err := l.follow(path.Dir(f.Path))
	return path.Join(dir, path.Base(f.Path)), err
}

// maxLinks is how many links the kernel follows in one path.
const maxLinks = 40

func (l links) follow(p string) (string, error) {
	at, rest := "/", strings.Split(strings.Trim(p, "/"), "/")
	for n := 0; len(rest) > 0; {
		next := path.Join(at, rest[0])
		rest = rest[1:]
		to, ok := l[next]
		if !ok {
			at = next
			continue
		}
		n++
		if n > maxLinks {
			return "", fmt.Errorf("%s: too many symbolic links", p)
		}
		if path.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(strings.Trim(to, "/"), "/"), rest...)
	}
	return at, nil
}

func asOCI(img v1.Image) v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
}

// converted is an image in the formats of OCI, with the same layers and
// configuration. Docker's names for layers have no place in such an image, and
// some tools refuse them there.
func converted(img v1.Image) (v1.Image, error) {
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	out := asOCI(empty.Image)
	for _, l := range layers {
		mediaType, err := l.MediaType()
		if err != nil {
			return nil, err
		}
		switch mediaType {
		case types.DockerLayer:
			mediaType = types.OCILayer
		case types.DockerUncompressedLayer:
			mediaType = types.OCIUncompressedLayer
		}
		if out, err = mutate.Append(out, mutate.Addendum{Layer: l, MediaType: mediaType}); err != nil {
			return nil, err
		}
	}
	return mutate.ConfigFile(out, config)
}
