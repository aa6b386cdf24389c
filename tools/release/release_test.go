// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"release": main})
}

func goEnv(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// The binaries in the scripts print one line and import nothing, so that they are
// compiled within seconds for any machine.
func TestScripts(t *testing.T) {
	caches := goEnv(t, "env", "GOCACHE", "GOMODCACHE")
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Vars = append(env.Vars, "GOCACHE="+caches[0], "GOMODCACHE="+caches[1], "GOPROXY=off", "GOTOOLCHAIN=local",
				"GOFLAGS=-trimpath -buildvcs=false", "GOWORK=off", "CGO_ENABLED=0", "ROOT="+root,
				"GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
				"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
			for _, dir := range []string{"one", "somewhere/else"} {
				if err := os.CopyFS(filepath.Join(env.WorkDir, dir), os.DirFS("testdata/tiny")); err != nil {
					return err
				}
			}
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
	source := goEnv(t, "list", "-m", "-f", "{{.Dir}}", "github.com/prometheus/prometheus")[0]
	text, err := os.ReadFile(filepath.Join(source, "Dockerfile"))
	require.NoError(t, err)
	want := dockerfile(string(text))
	r := release{tree: source}
	p := r.products()[0]
	got := p.config

	require.Equal(t, list(t, want["ENTRYPOINT"][0]), got.Entrypoint)
	require.Equal(t, list(t, want["CMD"][0]), got.Cmd)
	require.Equal(t, []string{got.User}, want["USER"])
	require.Equal(t, []string{got.WorkingDir}, want["WORKDIR"])
	require.Equal(t, []string{want["EXPOSE"][0] + "/tcp"}, slices.Collect(maps.Keys(got.ExposedPorts)))
	require.Equal(t, list(t, want["VOLUME"][0]), slices.Collect(maps.Keys(got.Volumes)))
	require.Empty(t, want["ENV"])

	files := map[string]file{"/LICENSE": {}, "/NOTICE": {}}
	for _, f := range p.files {
		files["/"+strings.TrimSuffix(f.path, "/")] = f
	}
	for _, binary := range p.binaries {
		files["/bin/"+binary] = file{}
	}
	for _, c := range want["COPY"] {
		words := strings.Fields(c)
		require.Len(t, words, 2, "COPY %s", c)
		require.Contains(t, files, words[1])
		if f := files[words[1]]; f.source != "" {
			require.Equal(t, filepath.Join(source, words[0]), f.source)
		}
	}
	// What RUN does there.
	require.Equal(t, []string{"chown -R nobody:nobody /etc/prometheus /prometheus && chmod g+w /prometheus"}, want["RUN"])
	for _, path := range []string{"/etc/prometheus", "/etc/prometheus/prometheus.yml", "/prometheus"} {
		require.Equal(t, nobody, files[path].owner, path)
	}
	require.EqualValues(t, 0o775, files["/prometheus"].mode)

	labels := r.annotations(p)
	maps.Copy(labels, p.labels)
	for _, l := range want["LABEL"] {
		for _, key := range regexp.MustCompile(`([a-z.]+)="`).FindAllStringSubmatch(l, -1) {
			require.Contains(t, labels, key[1])
		}
	}
}

func TestRootCertificatesAreReadByGo(t *testing.T) {
	n := 0
	for rest := []byte(certificates()); len(rest) > 0; n++ {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		c, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		require.True(t, c.IsCA)
	}
	require.Greater(t, n, 100)
}

// unpacked returns what is in a compressed archive.
func unpacked(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	require.NoError(t, err)
	files := map[string]string{}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		files[h.Name] = string(text)
	}
}

func TestTheArchiveOfManifestsHoldsEverythingThatItsKustomizationsName(t *testing.T) {
	_, manifests, err := release{root: "../..", version: "1.0.0"}.deployFiles()
	require.NoError(t, err)
	archive, err := packed(manifests, time.Unix(0, 0))
	require.NoError(t, err)
	files := unpacked(t, archive)
	named := 0
	for name, text := range files {
		if path.Base(name) != "kustomization.yaml" {
			continue
		}
		var k struct {
			Resources          []string                   `yaml:"resources"`
			Components         []string                   `yaml:"components"`
			Patches            []struct{ Path string }    `yaml:"patches"`
			ConfigMapGenerator []struct{ Files []string } `yaml:"configMapGenerator"`
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &k), name)
		refs := slices.Concat(k.Resources, k.Components)
		for _, p := range k.Patches {
			if p.Path != "" {
				refs = append(refs, p.Path)
			}
		}
		for _, g := range k.ConfigMapGenerator {
			for _, f := range g.Files {
				refs = append(refs, f[strings.Index(f, "=")+1:])
			}
		}
		for _, ref := range refs {
			to := path.Join(path.Dir(name), ref)
			_, isFile := files[to]
			_, isDir := files[to+"/kustomization.yaml"]
			require.True(t, isFile || isDir, "%s names %s", name, ref)
			named++
		}
	}
	require.Greater(t, named, 20)
}

func TestTheChartIsPackedAsHelmReadsIt(t *testing.T) {
	chart, _, err := release{root: "../..", version: "1.0.0"}.deployFiles()
	require.NoError(t, err)
	archive, err := packed(chart, time.Unix(0, 0))
	require.NoError(t, err)
	files := unpacked(t, archive)
	for _, name := range []string{"Chart.yaml", "values.yaml", "values.schema.json", "templates/deployment.yaml", "templates/_helpers.tpl"} {
		text, err := os.ReadFile(filepath.Join("../../deploy/helm/promguard", name))
		require.NoError(t, err)
		require.Equal(t, string(text), files["promguard/"+name], name)
	}
}

func TestManifestsAndChartNameTheImagesOfThisVersion(t *testing.T) {
	upstream, err := os.ReadFile("../../prometheus-patches/UPSTREAM")
	require.NoError(t, err)
	field := func(name string) string {
		return regexp.MustCompile(`(?m)^` + name + ` +(\S+)$`).FindStringSubmatch(string(upstream))[1]
	}
	r := release{root: "../..", version: strings.TrimPrefix(field("tag"), "v") + "+" + field("release")}
	require.NoError(t, r.checkDeploy())
	r.version = "1.0.0+promguard.1"
	require.ErrorContains(t, r.checkDeploy(), "helm/promguard/Chart.yaml names v")
}

func TestTheLicencesOfTheWebUIGoAlongWithBinariesThatHaveIt(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/tiny")))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "netgo,"+webUITag, "-o", "dist/linux-amd64/hello", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	r := release{root: "../..", tree: dir, dist: filepath.Join(dir, "dist")}
	_, err = r.thirdParty(t.Context(), product{patched: true}, "linux/amd64", []string{"hello"})
	require.ErrorContains(t, err, "its licences are not in the source")

	var list bytes.Buffer
	w := gzip.NewWriter(&list)
	_, err = w.Write([]byte("Name: react"))
	require.NoError(t, errors.Join(err, w.Close()))
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, webUIList)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, webUIList), list.Bytes(), 0o644))
	texts, err := r.thirdParty(t.Context(), product{patched: true}, "linux/amd64", []string{"hello"})
	require.NoError(t, err)
	require.Contains(t, texts.String(), "npm packages in the web UI\n\nName: react\n")
	require.Regexp(t, `(?m)^golang.org/x/crypto/x509roots/fallback v0\S+, LICENSE$`, texts)
}

func TestLicencesAreFoundWhereverTheyLieInAModuleAndEachTextIsThereOnce(t *testing.T) {
	dir := t.TempDir()
	write := func(module, name, text string) {
		file := filepath.Join(dir, module, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	for _, name := range []string{"LICENSE", "third/COPYING.txt"} {
		write("a", name, "text of "+name+"\n")
	}
	for _, name := range []string{"license.go", "testdata/LICENSE", ".git/LICENSE", "licenses.md.go"} {
		write("a", name, "not a licence")
	}
	write("b", "Licence.md", "text of LICENSE\r\n")
	write("c", "sub/LICENSE", "of a part alone")
	write("d", "NOTICE", "a notice is no licence")
	texts := &licenceTexts{owners: map[string][]string{}}
	require.NoError(t, texts.addDir("a v1", filepath.Join(dir, "a")))
	require.NoError(t, texts.addDir("b v1", filepath.Join(dir, "b")))
	line := strings.Repeat("=", 80)
	require.Equal(t, "a v1, LICENSE\nb v1, Licence.md\n\ntext of LICENSE\n\n"+line+"\n\na v1, third/COPYING.txt\n\ntext of third/COPYING.txt\n", texts.String())
	require.ErrorContains(t, texts.addDir("c v1", filepath.Join(dir, "c")), "c v1: no licence is in the module")
	require.ErrorContains(t, texts.addDir("d v1", filepath.Join(dir, "d")), "d v1: no licence is in the module")
}

var changelogForm = regexp.MustCompile(`\A# Changelog\n(\n## Unreleased\n\n(\* ENTRY\n)*)?(\n## VERSION / DATE\n\n(\* ENTRY\n)+)*\z`)

// The forms of lines, for one expression over the whole file.
var changelogLines = map[string]*regexp.Regexp{
	"* ENTRY":           regexp.MustCompile(`(?m)^\* \[(SECURITY|CHANGE|FEATURE|ENHANCEMENT|PERF|BUGFIX)\] [^:\n]+: .*\.$`),
	"## VERSION / DATE": regexp.MustCompile(`(?m)^## [0-9]+\.[0-9]+\.[0-9]+\+promguard\.[0-9]+ / 20[0-9]{2}-[01][0-9]-[0-3][0-9]$`),
}

func TestTheChangelogHasItsForm(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	require.NoError(t, err)
	dates := regexp.MustCompile(`(?m)^## \S+ / (.*)$`).FindAllStringSubmatch(string(text), -1)
	for i, d := range dates {
		_, err := time.Parse(time.DateOnly, d[1])
		require.NoError(t, err)
		require.True(t, i == 0 || d[1] <= dates[i-1][1], "%s is later than what stands above it", d[1])
	}
	form := string(text)
	for as, line := range changelogLines {
		form = line.ReplaceAllString(form, as)
	}
	require.Regexp(t, changelogForm, form)
}
