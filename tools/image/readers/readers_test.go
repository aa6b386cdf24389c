// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readers

import (
	"debug/buildinfo"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdxlib"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"
	orasregistry "oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
)

// binaries are what is in the image of each product.
var binaries = map[string][]string{"prometheus": {"prometheus", "promtool"}, "promguard": {"promguard"}}

// forEachProduct runs a test in the directory that make image wrote for each.
func forEachProduct(t *testing.T, test func(t *testing.T, product, dir string)) {
	t.Helper()
	images := os.Getenv("PROMGUARD_IMAGES")
	if images == "" {
		t.Skip("PROMGUARD_IMAGES is not set: make test-image builds the images and sets it")
	}
	for product := range binaries {
		t.Run(product, func(t *testing.T) { test(t, product, filepath.Join(images, product)) })
	}
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return text
}

// fetch reads a JSON document out of a layout or a registry.
func fetch[T any](t *testing.T, from content.Fetcher, d ocispec.Descriptor) T {
	t.Helper()
	text, err := content.FetchAll(t.Context(), from, d)
	require.NoError(t, err)
	var out T
	require.NoError(t, json.Unmarshal(text, &out))
	return out
}

// The minimum elements of NTIA: supplier, name, version and another identifier of
// each component, how they depend on each other, and who said so when.
func TestTheBillOfMaterialsIsSPDXWithAllThatNTIAAsksFor(t *testing.T) {
	forEachProduct(t, func(t *testing.T, product, dir string) {
		files, err := filepath.Glob(filepath.Join(dir, "*.spdx.json"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			f, err := os.Open(file)
			require.NoError(t, err)
			defer f.Close()
			doc, err := spdxjson.Read(f)
			require.NoError(t, err)
			require.NoError(t, spdxlib.ValidateDocument(doc))
			described, err := spdxlib.GetDescribedPackageIDs(doc)
			require.NoError(t, err)
			require.Len(t, described, 1)
			require.NotEmpty(t, doc.CreationInfo.Creators)
			_, err = time.Parse(time.RFC3339, doc.CreationInfo.Created)
			require.NoError(t, err)

			related := map[spdx.ElementID]bool{}
			for _, r := range doc.Relationships {
				related[r.RefB.ElementRefID] = true
			}
			for _, p := range doc.Packages {
				require.NotEmpty(t, p.PackageName)
				require.NotEmpty(t, p.PackageVersion, p.PackageName)
				require.NotNil(t, p.PackageSupplier, p.PackageName)
				require.NotContains(t, []string{"", "NOASSERTION"}, p.PackageSupplier.Supplier, p.PackageName)
				require.True(t, related[p.PackageSPDXIdentifier], p.PackageName)
				if p.PrimaryPackagePurpose == "LIBRARY" {
					require.Len(t, p.PackageExternalReferences, 1, p.PackageName)
					require.Regexp(t, `^pkg:(golang|npm)/.+@.+`, p.PackageExternalReferences[0].Locator)
				} else {
					require.Len(t, p.PackageChecksums, 1, p.PackageName)
				}
			}
		}
	})
}

// linked are the modules that a document says a binary was linked from.
func linked(doc *spdx.Document, binary string) []string {
	byID := map[spdx.ElementID]*spdx.Package{}
	for _, p := range doc.Packages {
		byID[p.PackageSPDXIdentifier] = p
	}
	var found []string
	for _, r := range doc.Relationships {
		if r.Relationship == "STATIC_LINK" && byID[r.RefA.ElementRefID].PackageName == binary {
			p := byID[r.RefB.ElementRefID]
			found = append(found, p.PackageName+" "+p.PackageVersion)
		}
	}
	return found
}

func TestEveryModuleInABinaryIsInTheBillAndItsLicenceInTheImage(t *testing.T) {
	forEachProduct(t, func(t *testing.T, product, dir string) {
		licences := string(read(t, dir, "third-party-licenses.txt"))
		files, err := filepath.Glob(filepath.Join(dir, "*.spdx.json"))
		require.NoError(t, err)
		for _, file := range files {
			f, err := os.Open(file)
			require.NoError(t, err)
			defer f.Close()
			doc, err := spdxjson.Read(f)
			require.NoError(t, err)
			platform := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), product+"-"), ".spdx.json")
			for _, binary := range binaries[product] {
				info, err := buildinfo.ReadFile(filepath.Join(os.Getenv("PROMGUARD_DIST"), platform, binary))
				require.NoError(t, err)
				want := []string{"stdlib " + strings.TrimPrefix(info.GoVersion, "go")}
				for _, m := range info.Deps {
					if m.Replace != nil {
						m = m.Replace
					}
					want = append(want, m.Path+" "+m.Version)
				}
				require.ElementsMatch(t, want, linked(doc, binary), "%s %s", platform, binary)
				for _, m := range want {
					licence := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(m) + `, (?i:licen[cs]e|copying|unlicense|copyright)`)
					require.True(t, licence.MatchString(licences), "%s: the licence of %s", platform, m)
				}
			}
		}
	})
}

func TestTheProvenanceIsInTotosAndSLSAs(t *testing.T) {
	forEachProduct(t, func(t *testing.T, _, dir string) {
		var s intoto.Statement
		require.NoError(t, protojson.Unmarshal(read(t, dir, "provenance.intoto.json"), &s))
		require.NoError(t, s.Validate())
		require.Equal(t, "https://slsa.dev/provenance/v1", s.GetPredicateType())
		predicate, err := protojson.Marshal(s.GetPredicate())
		require.NoError(t, err)
		var p slsa.Provenance
		require.NoError(t, protojson.Unmarshal(predicate, &p))
		require.NoError(t, p.Validate())

		digest := strings.TrimSpace(string(read(t, dir, "digest")))
		require.Equal(t, digest, "sha256:"+s.GetSubject()[0].GetDigest()["sha256"])
	})
}

func TestTheLayoutGoesThroughARegistryWithItsDocuments(t *testing.T) {
	server := httptest.NewServer(registry.New(
		registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)), registry.WithReferrersSupport(true)))
	defer server.Close()
	forEachProduct(t, func(t *testing.T, product, dir string) {
		ctx := t.Context()
		layout, err := oci.NewFromFS(ctx, os.DirFS(filepath.Join(dir, "oci")))
		require.NoError(t, err)
		var tag string
		require.NoError(t, layout.Tags(ctx, "", func(tags []string) error {
			require.Len(t, tags, 1)
			tag = tags[0]
			return nil
		}))
		to, err := remote.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/" + product)
		require.NoError(t, err)
		to.PlainHTTP = true
		// As oras copy --recursive does: the image, its platforms, and what refers to each.
		options := oras.DefaultExtendedCopyOptions
		top, err := oras.ExtendedCopy(ctx, layout, tag, to, tag, options)
		require.NoError(t, err)
		require.Equal(t, strings.TrimSpace(string(read(t, dir, "digest"))), top.Digest.String())
		subjects := map[string]ocispec.Descriptor{"application/vnd.in-toto+json": top}
		for _, d := range fetch[ocispec.Index](t, to, top).Manifests {
			subjects["application/spdx+json"] = d
			require.NoError(t, oras.ExtendedCopyGraph(ctx, layout, to, d, options.ExtendedCopyGraphOptions))
		}
		for artifact, subject := range subjects {
			documents, err := orasregistry.Referrers(ctx, to, subject, artifact)
			require.NoError(t, err)
			require.Len(t, documents, 1)
			manifest := fetch[ocispec.Manifest](t, to, documents[0])
			require.Equal(t, artifact, manifest.Layers[0].MediaType)
			fetch[map[string]any](t, to, manifest.Layers[0])
		}
	})
}
