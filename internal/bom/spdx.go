// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package bom

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// MediaTypeSPDX is the media type of Document's result.
const MediaTypeSPDX = "application/spdx+json"

// Subject is what a document of components is about.
type Subject struct {
	// Name and Version of the product.
	Name, Version string
	// Digest of the image, such as sha256:..., or "" for binaries alone.
	Digest string
	// Download is where the product's source can be had.
	Download string
	// Namespace is the URL below which the document's own name lies.
	Namespace string
	// Created is the document's time, in seconds.
	Created time.Time
}

// The parts of SPDX 2.3 that are needed here.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		DataLicense   string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		CreationInfo  spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		Name             string         `json:"name"`
		ID               string         `json:"SPDXID"`
		Version          string         `json:"versionInfo,omitempty"`
		Supplier         string         `json:"supplier"`
		DownloadLocation string         `json:"downloadLocation"`
		FilesAnalyzed    bool           `json:"filesAnalyzed"`
		Checksums        []spdxChecksum `json:"checksums,omitempty"`
		LicenseConcluded string         `json:"licenseConcluded"`
		LicenseDeclared  string         `json:"licenseDeclared"`
		Copyright        string         `json:"copyrightText"`
		Comment          string         `json:"comment,omitempty"`
		Purpose          string         `json:"primaryPackagePurpose,omitempty"`
		ExternalRefs     []spdxRef      `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

// Contents is what a document lists.
type Contents struct {
	Binaries []Binary
	// Linked are what the binaries were linked from.
	Linked []Component
	// Embedded are npm packages in every binary that has the build tag EmbeddedTag.
	Embedded    []Component
	EmbeddedTag string
	// Patched is the module that the binaries' own is a changed copy of, or nil.
	// Whatever is known to be wrong with that may be wrong with them.
	Patched *Component
	// Beside are modules that lie beside the binaries, as data.
	Beside []Component
}

// Document renders an SPDX 2.3 document: the subject, the binaries in it, and
// what each of them holds. The same arguments give the same bytes.
func Document(s Subject, in Contents) ([]byte, error) {
	const root = "SPDXRef-Product"
	doc := spdxDocument{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: s.Name + " " + s.Version,
		CreationInfo: spdxCreation{
			Created:  s.Created.UTC().Format(time.RFC3339),
			Creators: []string{"Organization: promguard", "Tool: promguard-image"},
		},
		Relationships: []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", root}},
	}
	product := spdxPackage{
		Name: s.Name, ID: root, Version: s.Version, Supplier: "Organization: promguard", DownloadLocation: s.Download,
		LicenseConcluded: NoAssertion, LicenseDeclared: "Apache-2.0", Copyright: NoAssertion, Purpose: "APPLICATION",
	}
	if algorithm, sum, ok := strings.Cut(s.Digest, ":"); ok {
		product.Purpose = "CONTAINER"
		product.Checksums = []spdxChecksum{{strings.ToUpper(algorithm), sum}}
	}
	doc.Packages = append(doc.Packages, product)

	names := sha256.New()
	names.Write([]byte(s.Name + s.Version + s.Digest))
	for _, b := range in.Binaries {
		sum, err := fileSum(b.Path)
		if err != nil {
			return nil, err
		}
		names.Write([]byte(sum))
		id := spdxID("Binary", filepath.Base(b.Path))
		doc.Packages = append(doc.Packages, spdxPackage{
			Name: filepath.Base(b.Path), ID: id, Version: s.Version, Supplier: "Organization: promguard", DownloadLocation: s.Download,
			LicenseConcluded: NoAssertion, LicenseDeclared: "Apache-2.0", Copyright: NoAssertion, Purpose: "APPLICATION",
			Checksums: []spdxChecksum{{"SHA256", sum}},
			Comment:   "built for " + b.Platform() + " by Go " + b.Go() + " from " + b.info.Path,
		})
		doc.Relationships = append(doc.Relationships, spdxRelationship{root, "CONTAINS", id})
		for _, c := range in.Linked {
			if b.has(c) {
				doc.Relationships = append(doc.Relationships, spdxRelationship{id, "STATIC_LINK", spdxID("Go", c.Name+"@"+c.Version)})
			}
		}
		if in.Patched != nil {
			doc.Relationships = append(doc.Relationships, spdxRelationship{id, "DESCENDANT_OF", spdxID("Go", in.Patched.Name+"@"+in.Patched.Version)})
		}
		if b.HasTag(in.EmbeddedTag) {
			for _, c := range in.Embedded {
				doc.Relationships = append(doc.Relationships, spdxRelationship{id, "CONTAINS", spdxID("npm", c.Name+"@"+c.Version)})
			}
		}
	}
	for _, c := range in.Beside {
		doc.Relationships = append(doc.Relationships, spdxRelationship{root, "CONTAINS", spdxID("Go", c.Name+"@"+c.Version)})
	}
	modules := Merge(in.Linked, in.Beside)
	if in.Patched != nil {
		modules = Merge(modules, []Component{*in.Patched})
	}
	for _, c := range modules {
		doc.Packages = append(doc.Packages, c.spdx("Go"))
	}
	for _, c := range in.Embedded {
		doc.Packages = append(doc.Packages, c.spdx("npm"))
	}
	doc.Namespace = s.Namespace + "/" + slug(s.Name) + "-" + hex.EncodeToString(names.Sum(nil))
	return json.MarshalIndent(doc, "", "  ")
}

// has says whether the binary was linked from the component.
func (b Binary) has(c Component) bool {
	if c.Name == "stdlib" {
		return true
	}
	for _, m := range b.modules() {
		if m.Path == c.Name && m.Version == c.Version {
			return true
		}
	}
	return false
}

func (c Component) spdx(kind string) spdxPackage {
	p := spdxPackage{
		Name: c.Name, ID: spdxID(kind, c.Name+"@"+c.Version), Version: c.Version, Supplier: "Organization: " + c.Supplier,
		DownloadLocation: NoAssertion, LicenseConcluded: NoAssertion, LicenseDeclared: c.Declared, Copyright: NoAssertion,
		Purpose:      "LIBRARY",
		ExternalRefs: []spdxRef{{"PACKAGE-MANAGER", "purl", c.PURL}},
	}
	if c.Declared == "" {
		p.LicenseDeclared = NoAssertion
	}
	if c.Sum != "" {
		p.Comment = "go.sum " + c.Sum
	}
	return p
}

var notID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// spdxID makes an identifier of a name. Different names give different ones:
// what cannot be in an identifier goes into a checksum at its end.
func spdxID(kind, name string) string {
	sum := sha256.Sum256([]byte(name))
	return "SPDXRef-" + kind + "-" + slug(name) + "-" + hex.EncodeToString(sum[:4])
}

func slug(name string) string { return strings.Trim(notID.ReplaceAllString(name, "-"), "-") }

func fileSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
