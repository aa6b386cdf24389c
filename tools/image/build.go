// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"

	"github.com/promguard/promguard/internal/bom"
	"github.com/promguard/promguard/internal/image"
)

// build makes one product's image for all platforms.
type build struct {
	product, binaries, source, out string
	root                           string // of this repository
	platforms                      []string
	version, revision, repository  string
	base                           string
	created                        time.Time
}

// What build writes below out, beside an archive and a list of components for
// each platform.
const (
	layoutDir      = "oci"
	digestFile     = "digest"
	licencesFile   = "third-party-licenses.txt"
	provenanceFile = "provenance.intoto.json"
)

// part is the image for one platform, and what it is made of.
type part struct {
	platform   v1.Platform
	image      v1.Image
	binaries   []bom.Binary
	components []bom.Component
	npm        []bom.Component
	roots      bom.Component  // where the root certificates come from
	patched    *bom.Component // what the binaries' own module is a changed copy of, or nil
	base       v1.Image       // what the image lies on, or nil
}

// all are the components of everything in the image.
func (p part) all() []bom.Component {
	all := bom.Merge(p.components, p.npm, []bom.Component{p.roots})
	if p.patched != nil {
		all = bom.Merge(all, []bom.Component{*p.patched})
	}
	return all
}

func (b build) spec() product {
	if b.product == "promguard" {
		return promguard
	}
	return prometheus
}

// tag is the version as registries can have it.
func (b build) tag() string { return "v" + strings.ReplaceAll(b.version, "+", "-") }

// run builds into a directory of its own and puts it in place when it is
// whole.
func (b build) run(ctx context.Context) error {
	// The order in which they are asked for is no part of what they are.
	slices.Sort(b.platforms)
	b.platforms = slices.Compact(b.platforms)
	if err := os.MkdirAll(filepath.Dir(b.out), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(b.out), ".image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	digest, err := b.write(ctx, work)
	if err != nil {
		return err
	}
	if err := errors.Join(readable(work), os.RemoveAll(b.out)); err != nil {
		return err
	}
	if err := os.Rename(work, b.out); err != nil {
		return err
	}
	fmt.Printf("%s: %s:%s@%s for %s\n", b.out, b.repository, b.tag(), digest, strings.Join(b.platforms, ", "))
	return nil
}

// readable lets everyone read what is below dir, whatever the umask was.
func readable(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
}

// write makes the images and everything about them, and returns the digest of
// their index.
func (b build) write(ctx context.Context, dir string) (v1.Hash, error) {
	var parts []part
	images := map[string]v1.Image{}
	for _, name := range b.platforms {
		p, err := b.part(ctx, name)
		if err != nil {
			return v1.Hash{}, err
		}
		parts = append(parts, p)
		images[name] = p.image
	}
	index, err := image.Index(images, b.annotations())
	if err != nil {
		return v1.Hash{}, err
	}
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, err
	}
	referrers, err := b.documents(dir, parts, index)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := image.WriteLayout(filepath.Join(dir, layoutDir), b.tag(), index, referrers); err != nil {
		return v1.Hash{}, err
	}
	for _, p := range parts {
		archive := filepath.Join(dir, b.product+"-"+slug(p.platform)+".tar")
		if err := image.WriteArchive(archive, b.repository+":"+b.tag(), p.image); err != nil {
			return v1.Hash{}, err
		}
	}
	return digest, os.WriteFile(filepath.Join(dir, digestFile), []byte(digest.String()+"\n"), 0o644)
}

// part makes the image for one platform.
func (b build) part(ctx context.Context, name string) (part, error) {
	platform, err := v1.ParsePlatform(name)
	if err != nil {
		return part{}, err
	}
	p := part{platform: *platform}
	dir := filepath.Join(b.binaries, slug(*platform))
	for _, file := range b.spec().binaries {
		binary, err := bom.Read(filepath.Join(dir, file))
		if err != nil {
			return part{}, err
		}
		if binary.Platform() != name {
			return part{}, fmt.Errorf("%s is for %s, not for %s", binary.Path, binary.Platform(), name)
		}
		p.binaries = append(p.binaries, binary)
	}
	if p.components, err = bom.Of(ctx, b.source, p.binaries...); err != nil {
		return part{}, err
	}
	if p.npm, err = bom.WebUI(b.source, p.binaries...); err != nil {
		return part{}, err
	}
	if p.roots, err = bom.Pinned(ctx, b.root, rootsModule); err != nil {
		return part{}, err
	}
	if module := b.spec().upstream; module != "" {
		patched, err := bom.Pinned(ctx, b.root, module)
		if err != nil {
			return part{}, err
		}
		p.patched = &patched
	}
	layers, err := b.layers(p)
	if err != nil {
		return part{}, err
	}
	spec := image.Spec{Platform: *platform, Config: b.config(), Created: b.created, Layers: layers}
	if b.base != "" {
		if p.base, err = baseImage(b.base, name); err != nil {
			return part{}, err
		}
		spec.Base = p.base
	} else {
		spec.Config.Env = []string{defaultPath}
	}
	p.image, err = image.Build(spec)
	return p, err
}

// layers returns the image's layers: what changes seldom first.
func (b build) layers(p part) ([]image.Layer, error) {
	system, err := baseFiles()
	if err != nil {
		return nil, err
	}
	files := b.spec().files(b.source)
	for _, binary := range p.binaries {
		files = append(files, image.Copy("/bin/"+filepath.Base(binary.Path), 0o755, binary.Path))
	}
	licences := "/usr/share/licenses/" + b.product + "/"
	files = append(files, image.Text(licences+licencesFile, bom.Texts(p.all())))
	if b.spec().upstream != "" {
		// /NOTICE is that of the project whose binaries these are.
		files = append(files, image.Copy(licences+"NOTICE.promguard", 0o644, filepath.Join(b.root, "NOTICE")))
	}
	return []image.Layer{
		{What: "promguard: accounts, root certificates, /tmp", Files: system},
		{What: fmt.Sprintf("promguard: %s %s", b.product, b.version), Files: files},
	}, nil
}

// baseImage reads the image for a platform from the layout that lies at dir.
func baseImage(dir, platform string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	img, err := image.ForPlatform(index, platform)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return img, nil
}

// annotations say what the image is; they are the same in the index and in the
// labels.
func (b build) annotations() map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "authors":       authors,
		prefix + "vendor":        "promguard",
		prefix + "title":         b.spec().title,
		prefix + "description":   b.spec().description,
		prefix + "source":        home,
		prefix + "url":           home,
		prefix + "documentation": home + "/blob/main/docs/image.md",
		prefix + "licenses":      "Apache-2.0",
		prefix + "version":       b.version,
		prefix + "revision":      b.revision,
		prefix + "created":       b.created.UTC().Format(time.RFC3339),
	}
}

func (b build) config() v1.Config {
	contract := b.spec().config
	config := *contract.DeepCopy()
	config.Labels = b.annotations()
	maps.Copy(config.Labels, b.spec().labels)
	return config
}

// documents writes what there is to say about the images below dir, and
// returns it in the form that registries keep beside them.
func (b build) documents(dir string, parts []part, index v1.ImageIndex) ([]v1.Image, error) {
	var referrers []v1.Image
	created := map[string]string{"org.opencontainers.image.created": b.created.UTC().Format(time.RFC3339)}
	var all []bom.Component
	for _, p := range parts {
		all = bom.Merge(all, p.all())
		subject, err := partial.Descriptor(p.image)
		if err != nil {
			return nil, err
		}
		doc, err := bom.Document(bom.Subject{
			Name: b.repository, Version: b.version, Digest: subject.Digest.String(), Created: b.created,
			Download: "git+" + home + "@" + strings.TrimSuffix(b.revision, dirty), Namespace: home + "/spdx",
		}, bom.Contents{
			Binaries: p.binaries, Linked: p.components, Embedded: p.npm, EmbeddedTag: bom.WebUITag,
			Beside: []bom.Component{p.roots}, Patched: p.patched,
		})
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, b.product+"-"+slug(p.platform)+".spdx.json"), doc, 0o644); err != nil {
			return nil, err
		}
		r, err := image.Referrer(*subject, bom.MediaTypeSPDX, doc, created)
		if err != nil {
			return nil, err
		}
		referrers = append(referrers, r)
	}
	statement, err := b.provenance(parts, index)
	if err != nil {
		return nil, err
	}
	subject, err := partial.Descriptor(index)
	if err != nil {
		return nil, err
	}
	r, err := image.Referrer(*subject, mediaTypeInToto, statement, created)
	if err != nil {
		return nil, err
	}
	return append(referrers, r), errors.Join(
		os.WriteFile(filepath.Join(dir, provenanceFile), statement, 0o644),
		os.WriteFile(filepath.Join(dir, licencesFile), []byte(bom.Texts(all)), 0o644),
	)
}

// slug is a platform in file names: linux-arm64.
func slug(p v1.Platform) string { return p.OS + "-" + p.Architecture }
