// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package imagetest reads and starts what make image built, as a container runtime
// would. It needs PROMGUARD_IMAGES, the directory of the images, and PROMGUARD_DIST,
// that of the binaries, which make test-image sets.
package imagetest

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

var products = []string{"prometheus", "promguard"}

// made returns the directory that a variable of make test-image names.
func made(t *testing.T, variable string) string {
	t.Helper()
	dir := os.Getenv(variable)
	if dir == "" {
		t.Skip(variable + " is not set: make test-image builds the images and sets it")
	}
	return dir
}

// index returns a product's image for all platforms.
func index(t *testing.T, product string) v1.ImageIndex {
	t.Helper()
	top, err := layout.ImageIndexFromPath(filepath.Join(made(t, "PROMGUARD_IMAGES"), product, "oci"))
	require.NoError(t, err)
	manifest, err := top.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	i, err := top.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	return i
}

// digest returns what make image printed.
func digest(t *testing.T, product string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(made(t, "PROMGUARD_IMAGES"), product, "digest"))
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

func TestTheLayoutsAndTheArchivesAreValid(t *testing.T) {
	for _, product := range products {
		t.Run(product, func(t *testing.T) {
			i := index(t, product)
			require.NoError(t, validate.Index(i))
			d, err := i.Digest()
			require.NoError(t, err)
			require.Equal(t, digest(t, product), d.String())

			archives, err := filepath.Glob(filepath.Join(made(t, "PROMGUARD_IMAGES"), product, "*.tar"))
			require.NoError(t, err)
			manifest, err := i.IndexManifest()
			require.NoError(t, err)
			require.Len(t, archives, len(manifest.Manifests))
			for _, archive := range archives {
				img, err := tarball.ImageFromPath(archive, nil)
				require.NoError(t, err)
				require.NoError(t, validate.Image(img))
			}
		})
	}
}

func TestAPushedImageIsTheOneThatWasBuilt(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelError))))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://")
	for _, product := range products {
		digest := digest(t, product)
		cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=tools/release.mod", "crane", "push",
			filepath.Join(made(t, "PROMGUARD_IMAGES"), product, "oci"), to+"/"+product+":v1")
		cmd.Dir = "../../.."
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		resp, err := http.Head(server.URL + "/v2/" + product + "/manifests/v1")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, digest, resp.Header.Get("Docker-Content-Digest"))
	}
}

func TestTheBillOfMaterialsNamesExactlyTheModulesOfTheBinary(t *testing.T) {
	boms, err := filepath.Glob(filepath.Join(made(t, "PROMGUARD_DIST"), "*", "*.cdx.json"))
	require.NoError(t, err)
	require.NotEmpty(t, boms)
	for _, file := range boms {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var bom struct {
			Components []struct{ PURL string }
		}
		require.NoError(t, json.Unmarshal(text, &bom))
		var got []string
		for _, c := range bom.Components {
			purl, _, _ := strings.Cut(c.PURL, "?")
			got = append(got, purl)
		}
		info, err := buildinfo.ReadFile(strings.TrimSuffix(file, ".cdx.json"))
		require.NoError(t, err)
		want := []string{"pkg:golang/std@" + info.GoVersion}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			want = append(want, "pkg:golang/"+m.Path+"@"+m.Version)
		}
		require.ElementsMatch(t, want, got, file)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// get asks until there is an answer, which must be a 200.
func get(t *testing.T, c *container, url string) string {
	t.Helper()
	for deadline := time.Now().Add(c.patience); time.Now().Before(deadline) && !c.ended(); time.Sleep(100 * time.Millisecond) {
		if body, err := ask(url); err == nil {
			return body
		}
	}
	t.Fatalf("no answer from %s; ended: %t\n%s", url, c.ended(), c.printed())
	return ""
}

func ask(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), err
}

func TestPrometheusBecomesReadyAsNobodyWithTheImagesOwnCommand(t *testing.T) {
	inEachWay(t, func(t *testing.T, w way) {
		port := freePort(t)
		url := "http://127.0.0.1:" + port
		// What an operator adds to the image's own arguments; all else is as it is.
		c := w.start(t, index(t, "prometheus"), "--web.listen-address=127.0.0.1:"+port)
		get(t, c, url+"/-/ready")
		require.Equal(t, nobody, c.user(t))

		var answer struct {
			Data struct {
				Version string `json:"version"`
				CWD     string `json:"CWD"`
			} `json:"data"`
		}
		require.NoError(t, json.Unmarshal([]byte(get(t, c, url+"/api/v1/status/buildinfo")), &answer))
		require.Contains(t, answer.Data.Version, "+promguard.")
		require.NoError(t, json.Unmarshal([]byte(get(t, c, url+"/api/v1/status/runtimeinfo")), &answer))
		require.Equal(t, "/prometheus", answer.Data.CWD)
		// It keeps its data where the volume is.
		_, err := os.Stat(filepath.Join(c.rootfs, "prometheus", "wal"))
		require.NoError(t, err)
		// The web UI is a part of the image, unless it was built with UI=0.
		if os.Getenv("PROMGUARD_IMAGES_UI") != "0" {
			require.Contains(t, get(t, c, url+"/query"), "<title>Prometheus")
		}
		c.stop(t)
	})
}

func TestWhatUsersRunInTheImageIsThere(t *testing.T) {
	inEachWay(t, func(t *testing.T, w way) {
		i := index(t, "prometheus")
		// Arguments take the place of the image's own, as with upstream's.
		require.Regexp(t, `^prometheus, version [0-9.]+\+promguard\.[0-9]+ `, w.run(t, i, "--version"))
		require.Contains(t, w.run(t, i, "/bin/promtool", "check", "config", "/etc/prometheus/prometheus.yml"), "SUCCESS")
		require.Contains(t, w.run(t, index(t, "promguard"), "--version"), "+promguard.")
	})
}

func TestPromguardServesInFrontOfTheImageOfPrometheus(t *testing.T) {
	inEachWay(t, func(t *testing.T, w way) {
		behind, front := freePort(t), freePort(t)
		p := w.start(t, index(t, "prometheus"), "--web.listen-address=127.0.0.1:"+behind)
		get(t, p, "http://127.0.0.1:"+behind+"/-/ready")
		g := w.start(t, index(t, "promguard"), "--upstream.url=http://127.0.0.1:"+behind,
			"--web.listen-address=127.0.0.1:"+front, "--web.telemetry-address=127.0.0.1:"+freePort(t))
		require.Contains(t, get(t, g, "http://127.0.0.1:"+front+"/api/v1/query?query=vector(1)"), `"success"`)
		require.Equal(t, nobody, g.user(t))
		g.stop(t)
		// A probe that runs a command in the container.
		ready := w.run(t, index(t, "prometheus"), "/bin/promtool", "check", "ready", "--url=http://127.0.0.1:"+behind)
		require.Contains(t, ready, "SUCCESS")
		p.stop(t)
	})
}
