// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/image"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"image": main})
}

func goEnv(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// The binaries in the scripts print one line and import nothing, so that they
// are compiled within seconds for any machine.
func TestScripts(t *testing.T) {
	dirs := strings.Split(goEnv(t, ".", "env", "GOCACHE", "GOMODCACHE"), "\n")
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Vars = append(env.Vars, "GOCACHE="+dirs[0], "GOMODCACHE="+dirs[1], "GOPROXY=off", "GOTOOLCHAIN=local",
				"GOFLAGS=-trimpath -buildvcs=false", "GOWORK=off", "CGO_ENABLED=0", "ROOT="+root)
			return nil
		},
	})
}

var instruction = regexp.MustCompile(`(?m)^([A-Z]+)\s+((?:.*\\\n)*.*)$`)

// dockerfile returns the arguments of each instruction of a Dockerfile.
func dockerfile(text string) map[string][]string {
	found := map[string][]string{}
	for _, m := range instruction.FindAllStringSubmatch(text, -1) {
		found[m[1]] = append(found[m[1]], strings.Join(strings.Fields(strings.ReplaceAll(m[2], "\\\n", " ")), " "))
	}
	return found
}

func list(t *testing.T, text string) []string {
	t.Helper()
	var out []string
	require.NoError(t, json.Unmarshal([]byte(text), &out))
	return out
}

func TestTheContractIsThatOfThePinnedReleasesDockerfile(t *testing.T) {
	source := goEnv(t, "../..", "list", "-m", "-f", "{{.Dir}}", prometheus.upstream)
	text, err := os.ReadFile(filepath.Join(source, "Dockerfile"))
	require.NoError(t, err)
	want := dockerfile(string(text))
	got := prometheus.config

	require.Equal(t, list(t, want["ENTRYPOINT"][0]), got.Entrypoint)
	require.Equal(t, list(t, want["CMD"][0]), got.Cmd)
	require.Equal(t, []string{got.User}, want["USER"])
	require.Equal(t, []string{got.WorkingDir}, want["WORKDIR"])
	require.Len(t, want["EXPOSE"], 1)
	require.Contains(t, got.ExposedPorts, want["EXPOSE"][0]+"/tcp")
	require.Len(t, got.ExposedPorts, 1)
	for _, volume := range list(t, want["VOLUME"][0]) {
		require.Contains(t, got.Volumes, volume)
	}
	require.Empty(t, want["ENV"])

	files := map[string]image.File{}
	for _, f := range prometheus.files(source) {
		files[f.Path] = f
	}
	for _, binary := range prometheus.binaries {
		files["/bin/"+binary] = image.File{}
	}
	for _, c := range want["COPY"] {
		words := strings.Fields(c)
		require.Len(t, words, 2, "COPY %s", c)
		require.Contains(t, files, words[1])
		if f := files[words[1]]; f.Source != "" {
			require.Equal(t, filepath.Join(source, words[0]), f.Source)
		}
	}
	// What RUN does there.
	require.Equal(t, []string{"chown -R nobody:nobody /etc/prometheus /prometheus && chmod g+w /prometheus"}, want["RUN"])
	for _, path := range []string{"/etc/prometheus", "/etc/prometheus/prometheus.yml", "/prometheus"} {
		require.Equal(t, nobody, files[path].UID, path)
		require.Equal(t, nobody, files[path].GID, path)
	}
	require.EqualValues(t, 0o775, files["/prometheus"].Mode.Perm())

	labels := build{product: "prometheus"}.config().Labels
	for _, l := range want["LABEL"] {
		for _, key := range regexp.MustCompile(`([a-z.]+)="`).FindAllStringSubmatch(l, -1) {
			require.Contains(t, labels, key[1])
		}
		if key, _, ok := strings.Cut(l, "="); ok {
			require.Contains(t, labels, key)
		}
	}
}

func TestTheDockerfileSaysWhatTheImagesSay(t *testing.T) {
	text, err := os.ReadFile("../../deploy/image/Dockerfile")
	require.NoError(t, err)
	for name, product := range map[string]product{"prometheus": prometheus, "promguard": promguard} {
		t.Run(name, func(t *testing.T) {
			_, stage, ok := strings.Cut(string(text), "FROM scratch AS "+name+"\n")
			require.True(t, ok)
			stage, _, _ = strings.Cut(stage, "\nFROM ")
			got := dockerfile(stage)
			want := product.config
			require.Equal(t, want.Entrypoint, list(t, got["ENTRYPOINT"][0]))
			require.Equal(t, want.Cmd, list(t, got["CMD"][0]))
			require.Equal(t, []string{want.User}, got["USER"])
			require.Equal(t, []string{want.WorkingDir}, got["WORKDIR"])
			require.Equal(t, []string{defaultPath}, got["ENV"])
			require.Len(t, got["EXPOSE"], len(want.ExposedPorts))
			require.Contains(t, want.ExposedPorts, got["EXPOSE"][0]+"/tcp")
			var volumes []string
			for _, v := range got["VOLUME"] {
				volumes = append(volumes, list(t, v)...)
			}
			require.ElementsMatch(t, slices.Collect(maps.Keys(want.Volumes)), volumes)

			labels := map[string]string{}
			for _, l := range got["LABEL"] {
				for _, kv := range regexp.MustCompile(`([a-z.]+)="([^"]*)"`).FindAllStringSubmatch(l, -1) {
					labels[kv[1]] = kv[2]
				}
			}
			wantLabels := build{product: name}.config().Labels
			for _, perBuild := range []string{"version", "revision", "created"} {
				delete(wantLabels, "org.opencontainers.image."+perBuild)
			}
			require.Equal(t, wantLabels, labels)
		})
	}
}

func TestRootCertificatesAreReadByGo(t *testing.T) {
	text, err := certificates()
	require.NoError(t, err)
	n := 0
	for rest := []byte(text); ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		require.True(t, c.IsCA)
	}
	require.Greater(t, n, 100)
	require.Regexp(t, `^# \d+ root certificates`, text)
}

// tiny builds a small image and returns its layout.
func tiny(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/tiny")))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", "bin/linux-amd64/promguard", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-trimpath -buildvcs=false")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, run(t.Context(), []string{
		"build", "promguard", "--binaries=" + dir + "/bin", "--platform=linux/amd64", "--source=" + dir, "--root=../..", "--out=" + dir + "/out",
		"--version=1.0.0+x.1", "--revision=abc", "--created=1800000000", "--repository=example.com/promguard",
	}))
	return filepath.Join(dir, "out", layoutDir)
}

func TestAPushedImageComesBackWithItsDocuments(t *testing.T) {
	layout := tiny(t)
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)), registry.WithReferrersSupport(true)))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/promguard"
	require.NoError(t, pushLayout(t.Context(), layout, to, true))

	ref, err := name.ParseReference(to + ":v1.0.0-x.1")
	require.NoError(t, err)
	pulled, err := remote.Index(ref)
	require.NoError(t, err)
	require.NoError(t, validate.Index(pulled))
	_, local, _, err := image.ReadLayout(layout)
	require.NoError(t, err)
	want, err := local.Digest()
	require.NoError(t, err)
	got, err := pulled.Digest()
	require.NoError(t, err)
	require.Equal(t, want, got)

	manifest, err := pulled.IndexManifest()
	require.NoError(t, err)
	for digest, artifact := range map[string]string{
		got.String():                          mediaTypeInToto,
		manifest.Manifests[0].Digest.String(): "application/spdx+json",
	} {
		referrers, err := remote.Referrers(ref.Context().Digest(digest))
		require.NoError(t, err)
		list, err := referrers.IndexManifest()
		require.NoError(t, err)
		require.Len(t, list.Manifests, 1)
		document, err := remote.Image(ref.Context().Digest(list.Manifests[0].Digest.String()))
		require.NoError(t, err)
		pulled, err := document.Manifest()
		require.NoError(t, err)
		require.Equal(t, artifact, pulled.ArtifactType)
		layers, err := document.Layers()
		require.NoError(t, err)
		content, err := layers[0].Compressed()
		require.NoError(t, err)
		var parsed map[string]any
		require.NoError(t, json.NewDecoder(content).Decode(&parsed))
		require.NoError(t, content.Close())
	}
}
