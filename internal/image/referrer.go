// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// emptyConfig is the media type that OCI 1.1 has for an artifact's config,
// which says nothing.
const emptyConfig types.MediaType = "application/vnd.oci.empty.v1+json"

// Referrer is a document about an image, in the form in which registries keep
// such: an OCI 1.1 artifact that names its subject.
func Referrer(subject v1.Descriptor, mediaType string, document []byte, annotations map[string]string) (v1.Image, error) {
	config := []byte("{}")
	// A subject is named by its digest; what else an index says of it is not its own.
	subject = v1.Descriptor{MediaType: subject.MediaType, Size: subject.Size, Digest: subject.Digest}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		ArtifactType:  mediaType,
		Config:        describe(emptyConfig, config),
		Layers:        []v1.Descriptor{describe(types.MediaType(mediaType), document)},
		Subject:       &subject,
		Annotations:   annotations,
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(artifact{
		manifest: manifest,
		config:   config,
		document: static.NewLayer(document, types.MediaType(mediaType)),
	})
}

func describe(mediaType types.MediaType, content []byte) v1.Descriptor {
	sum := sha256.Sum256(content)
	return v1.Descriptor{
		MediaType: mediaType,
		Size:      int64(len(content)),
		Digest:    v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])},
	}
}

// artifact is a manifest with one document.
type artifact struct {
	manifest, config []byte
	document         v1.Layer
}

func (a artifact) RawManifest() ([]byte, error)      { return bytes.Clone(a.manifest), nil }
func (a artifact) RawConfigFile() ([]byte, error)    { return bytes.Clone(a.config), nil }
func (artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// LayerByDigest knows the document and the config, which registries ask for
// as if it were a layer.
func (a artifact) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	if digest, err := a.document.Digest(); err != nil || digest == h {
		return a.document, err
	}
	if describe(emptyConfig, a.config).Digest == h {
		return static.NewLayer(a.config, emptyConfig), nil
	}
	return nil, fmt.Errorf("the artifact has no blob %s", h)
}
