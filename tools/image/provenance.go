// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/mod/modfile"

	"github.com/promguard/promguard/internal/bom"
)

const (
	mediaTypeInToto = "application/vnd.in-toto+json"
	// dirty is appended to the commit when files differ from it.
	dirty = "-dirty"
)

// The parts of an in-toto statement with SLSA's provenance, version 1.
type (
	statement struct {
		Type          string     `json:"_type"`
		Subject       []resource `json:"subject"`
		PredicateType string     `json:"predicateType"`
		Predicate     slsaBuild  `json:"predicate"`
	}
	resource struct {
		Name   string            `json:"name,omitempty"`
		URI    string            `json:"uri,omitempty"`
		Digest map[string]string `json:"digest,omitempty"`
	}
	slsaBuild struct {
		Definition slsaDefinition `json:"buildDefinition"`
		Run        slsaRun        `json:"runDetails"`
	}
	slsaDefinition struct {
		BuildType    string         `json:"buildType"`
		External     map[string]any `json:"externalParameters"`
		Dependencies []resource     `json:"resolvedDependencies"`
	}
	slsaRun struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	}
)

// provenance says what the images were built from, and how. It is a claim of
// whoever runs the build: nothing signs it here. Times and names of machines
// are left out, so that the same source gives the same statement.
func (b build) provenance(parts []part, index v1.ImageIndex) ([]byte, error) {
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	digest, err := index.Digest()
	if err != nil {
		return nil, err
	}
	s.Subject = []resource{{Name: b.repository + ":" + b.tag(), Digest: map[string]string{digest.Algorithm: digest.Hex}}}
	for _, p := range parts {
		digest, err := p.image.Digest()
		if err != nil {
			return nil, err
		}
		s.Subject = append(s.Subject, resource{
			Name: b.repository + ":" + b.tag() + " " + p.platform.String(), Digest: map[string]string{digest.Algorithm: digest.Hex},
		})
	}
	source := resource{URI: "git+" + home}
	// A commit that does not hold what was built is not its digest.
	if !strings.HasSuffix(b.revision, dirty) {
		source.Digest = map[string]string{"gitCommit": b.revision}
	}
	dependencies := []resource{source}
	if b.spec().upstream != "" {
		upstream, err := b.upstream()
		if err != nil {
			return nil, err
		}
		dependencies = append(dependencies, upstream)
	}
	dependencies = append(dependencies, resource{URI: "pkg:golang/stdlib@" + parts[0].binaries[0].Go()})
	for _, p := range parts {
		if p.base == nil {
			continue
		}
		digest, err := p.base.Digest()
		if err != nil {
			return nil, err
		}
		dependencies = append(dependencies, resource{Name: "base " + p.platform.String(), Digest: map[string]string{digest.Algorithm: digest.Hex}})
	}
	s.Predicate.Definition = slsaDefinition{
		BuildType: home + "/blob/main/docs/image.md",
		External: map[string]any{
			"target": "image", "product": b.product, "version": b.version, "platforms": b.platforms,
			"webUI": parts[0].binaries[0].HasTag(bom.WebUITag), "created": b.created.Unix(),
		},
		Dependencies: dependencies,
	}
	s.Predicate.Run.Builder.ID = home + "/blob/main/Makefile"
	return json.MarshalIndent(s, "", "  ")
}

// upstream is the module that was patched, with the checksum that the Go
// command held it against: the version is go.mod's, the sum go.sum's.
func (b build) upstream() (resource, error) {
	text, err := os.ReadFile(filepath.Join(b.root, "go.mod"))
	if err != nil {
		return resource{}, err
	}
	mod, err := modfile.ParseLax("go.mod", text, nil)
	if err != nil {
		return resource{}, err
	}
	sums, err := os.ReadFile(filepath.Join(b.root, "go.sum"))
	if err != nil {
		return resource{}, err
	}
	for _, r := range mod.Require {
		if r.Mod.Path != b.spec().upstream {
			continue
		}
		for line := range strings.Lines(string(sums)) {
			words := strings.Fields(line)
			if len(words) != 3 || words[0] != r.Mod.Path || words[1] != r.Mod.Version {
				continue
			}
			raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(words[2], "h1:"))
			if err != nil {
				return resource{}, fmt.Errorf("go.sum: %s: %w", r.Mod, err)
			}
			return resource{
				URI:    "pkg:golang/" + r.Mod.Path + "@" + r.Mod.Version,
				Digest: map[string]string{"goModuleH1": hex.EncodeToString(raw)},
			}, nil
		}
	}
	return resource{}, fmt.Errorf("go.mod and go.sum do not have %s", b.spec().upstream)
}
