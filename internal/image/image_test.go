// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

var at = time.Date(2026, time.October, 1, 12, 0, 0, 0, time.UTC)

func spec(files ...File) Spec {
	return Spec{
		Platform: v1.Platform{OS: "linux", Architecture: "arm64"},
		Config:   v1.Config{User: "nobody", Entrypoint: []string{"/bin/hello"}},
		Created:  at,
		Layers:   []Layer{{What: "test", Files: files}},
	}
}

func build(t *testing.T, s Spec) v1.Image {
	t.Helper()
	img, err := Build(s)
	require.NoError(t, err)
	return img
}

func index(t *testing.T, img v1.Image) v1.ImageIndex {
	t.Helper()
	i, err := Index(map[string]v1.Image{"linux/arm64": img}, map[string]string{"a": "b"})
	require.NoError(t, err)
	return i
}

// file writes a file on this machine, with a time and a mode of its own.
func file(t *testing.T, content string, mode fs.FileMode, mtime time.Time) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(content), mode))
	require.NoError(t, os.Chtimes(path, mtime, mtime))
	return path
}

func TestTheSameFilesGiveTheSameDigestWhateverTheirTimeModeAndOrder(t *testing.T) {
	a := build(t, spec(
		Copy("/bin/hello", 0o755, file(t, "hello", 0o600, at.Add(-time.Hour))),
		Text("/etc/passwd", "root"),
	))
	s := spec(
		Text("/etc/passwd", "root"),
		Copy("/bin/hello", 0o755, file(t, "hello", 0o777, at.Add(time.Hour))),
	)
	s.Created = at.In(time.FixedZone("east", 3600))
	b := build(t, s)
	one, err := a.Digest()
	require.NoError(t, err)
	two, err := b.Digest()
	require.NoError(t, err)
	require.Equal(t, one, two)

	s.Layers[0].Files[0].Text = []byte("toor")
	other, err := build(t, s).Digest()
	require.NoError(t, err)
	require.NotEqual(t, one, other)
}

func TestAnArchiveHoldsEveryFileOnceAfterItsDirectories(t *testing.T) {
	var buf bytes.Buffer
	require.NoError(t, WriteTar(&buf, []File{
		Text("/a/b/c", "text"), Dir("/tmp", fs.ModeSticky|0o777, 0, 0), Dir("/a", 0o700, 7, 8),
	}, at))
	archive := tar.NewReader(&buf)
	var names []string
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.True(t, h.ModTime.Equal(at))
		names = append(names, h.Name)
		switch h.Name {
		case "a/":
			require.EqualValues(t, 0o700, h.Mode)
			require.Equal(t, 7, h.Uid)
			require.Equal(t, 8, h.Gid)
		case "tmp/":
			require.EqualValues(t, 0o1777, h.Mode)
		}
	}
	require.Equal(t, []string{"a/", "a/b/", "a/b/c", "tmp/"}, names)
}

func TestFilesThatCannotBeTogetherAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		files []File
		want  string
	}{
		"the same path twice":          {[]File{Text("/a", ""), Text("/a", "")}, "/a is there twice"},
		"a file in a file":             {[]File{Text("/a", ""), Text("/a/b", "")}, "/a is a file, and /a/b lies in it"},
		"a relative path":              {[]File{Text("a", "")}, "is no absolute, clean path"},
		"a way out":                    {[]File{Text("/a/../../b", "")}, "is no absolute, clean path"},
		"a source that is not":         {[]File{Copy("/a", 0o644, filepath.Join(t.TempDir(), "none"))}, "no such file"},
		"a source that is a directory": {[]File{Copy("/a", 0o644, t.TempDir())}, "is no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Build(spec(tc.files...))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestALayoutIsValidAndIsReadBack(t *testing.T) {
	img := build(t, spec(Text("/a", "a")))
	i := index(t, img)
	subject, err := partial.Descriptor(img)
	require.NoError(t, err)
	document, err := Referrer(*subject, "application/spdx+json", []byte(`{"a":1}`), map[string]string{"k": "v"})
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "oci")
	require.NoError(t, WriteLayout(dir, "v1", i, []v1.Image{document}))

	tag, back, referrers, err := ReadLayout(dir)
	require.NoError(t, err)
	require.Equal(t, "v1", tag)
	require.NoError(t, validate.Index(back))
	require.Len(t, referrers, 1)
	manifest, err := referrers[0].Manifest()
	require.NoError(t, err)
	require.Equal(t, "application/spdx+json", manifest.ArtifactType)
	require.Equal(t, subject.Digest, manifest.Subject.Digest)
	layers, err := referrers[0].Layers()
	require.NoError(t, err)
	content, err := layers[0].Compressed()
	require.NoError(t, err)
	text, err := io.ReadAll(content)
	require.NoError(t, err)
	require.JSONEq(t, `{"a":1}`, string(text))
	// The config is a blob of the layout as well.
	_, err = os.Stat(filepath.Join(dir, "blobs/sha256", manifest.Config.Digest.Hex))
	require.NoError(t, err)

	require.ErrorContains(t, WriteLayout(dir, "v1", i, nil), "is there already")
	_, err = ForPlatform(back, "linux/s390x")
	require.ErrorContains(t, err, "there is no image for linux/s390x")
	same, err := ForPlatform(back, "linux/arm64")
	require.NoError(t, err)
	require.NoError(t, validate.Image(same))
}

func TestAnArchiveForDockerIsValid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, WriteArchive(path, "example.com/hello:v1", build(t, spec(Text("/a", "a")))))
	img, err := tarball.ImageFromPath(path, nil)
	require.NoError(t, err)
	require.NoError(t, validate.Image(img))
	require.Error(t, WriteArchive(path, "example.com/hello:v1+x", img))
}

func TestAnImageLiesOnItsBase(t *testing.T) {
	base := spec(Text("/bin/sh", "#!"), Text("/etc/passwd", "old"))
	base.Config.Env = []string{"PATH=/bin"}
	s := spec(Text("/etc/passwd", "new"))
	s.Base = build(t, base)
	path := filepath.Join(t.TempDir(), "oci")
	require.NoError(t, WriteLayout(path, "v1", index(t, build(t, s)), nil))
	_, back, _, err := ReadLayout(path)
	require.NoError(t, err)
	require.NoError(t, validate.Index(back))
	img, err := ForPlatform(back, "linux/arm64")
	require.NoError(t, err)
	config, err := img.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, []string{"PATH=/bin"}, config.Config.Env)
	require.Equal(t, "nobody", config.Config.User)

	dir := t.TempDir()
	require.NoError(t, Unpack(img, dir, false))
	for name, want := range map[string]string{"bin/sh": "#!", "etc/passwd": "new"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}

// As in most distributions, where /bin is a link to /usr/bin; and as Docker writes it.
func TestFilesComeToLieWhereTheLinksOfTheBaseLead(t *testing.T) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range []tar.Header{
		{Name: "usr/bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "usr/bin/sh", Typeflag: tar.TypeReg, Mode: 0o755},
		{Name: "bin", Typeflag: tar.TypeSymlink, Linkname: "usr/bin"},
		{Name: "etc", Typeflag: tar.TypeSymlink, Linkname: "/config/../settings"},
		{Name: "settings", Typeflag: tar.TypeSymlink, Linkname: "usr/settings"},
		{Name: "loop", Typeflag: tar.TypeSymlink, Linkname: "loop"},
	} {
		require.NoError(t, w.WriteHeader(&h))
	}
	require.NoError(t, w.Close())
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
	require.NoError(t, err)
	base, err := mutate.AppendLayers(empty.Image, layer)
	require.NoError(t, err)

	s := spec(Text("/bin/hello", "hello"), Dir("/etc", 0o755, 0, 0), Text("/etc/passwd", "root"))
	s.Base = base
	path := filepath.Join(t.TempDir(), "oci")
	require.NoError(t, WriteLayout(path, "v1", index(t, build(t, s)), nil))
	_, back, _, err := ReadLayout(path)
	require.NoError(t, err)
	require.NoError(t, validate.Index(back))
	img, err := ForPlatform(back, "linux/arm64")
	require.NoError(t, err)
	manifest, err := img.Manifest()
	require.NoError(t, err)
	for _, l := range manifest.Layers {
		require.Equal(t, types.OCILayer, l.MediaType)
	}
	dir := t.TempDir()
	require.NoError(t, Unpack(img, dir, false))
	to, err := os.Readlink(filepath.Join(dir, "bin"))
	require.NoError(t, err)
	require.Equal(t, "usr/bin", to)
	for _, name := range []string{"bin/hello", "bin/sh", "usr/settings/passwd"} {
		_, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
	}

	s.Layers = spec(Text("/loop/a", "")).Layers
	_, err = Build(s)
	require.ErrorContains(t, err, "/loop: too many symbolic links")
}

// As crane pull writes it.
func TestAnImageWithoutAPlatformInItsDescriptorIsFoundByItsConfig(t *testing.T) {
	path, err := layout.Write(filepath.Join(t.TempDir(), "oci"), empty.Index)
	require.NoError(t, err)
	img := build(t, spec(Text("/a", "a")))
	subject, err := partial.Descriptor(img)
	require.NoError(t, err)
	document, err := Referrer(*subject, "text/plain", []byte("x"), nil)
	require.NoError(t, err)
	require.NoError(t, path.AppendImage(document))
	require.NoError(t, path.AppendImage(img))
	index, err := path.ImageIndex()
	require.NoError(t, err)
	found, err := ForPlatform(index, "linux/arm64")
	require.NoError(t, err)
	want, err := img.Digest()
	require.NoError(t, err)
	got, err := found.Digest()
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, err = ForPlatform(index, "linux/amd64")
	require.Error(t, err)
}

func TestUnpackKeepsModesAndStaysInside(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, Unpack(build(t, spec(
		Dir("/tmp", fs.ModeSticky|0o777, 0, 0), Dir("/closed", 0o500, 0, 0), Text("/closed/a", "a"), Copy("/x", 0o751, file(t, "x", 0o600, at)),
	)), dir, false))
	for name, want := range map[string]fs.FileMode{
		"tmp": fs.ModeDir | fs.ModeSticky | 0o777, "closed": fs.ModeDir | 0o500, "closed/a": 0o644, "x": 0o751,
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, info.Mode(), name)
	}

	for name, entries := range map[string][]tar.Header{
		"a path that climbs": {{Name: "../../out", Typeflag: tar.TypeReg}},
		"a link that climbs": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../.."}, {Name: "l/out", Typeflag: tar.TypeReg}},
		"a device":           {{Name: "null", Typeflag: tar.TypeChar}},
	} {
		t.Run(name, func(t *testing.T) {
			var buf bytes.Buffer
			w := tar.NewWriter(&buf)
			for _, h := range entries {
				require.NoError(t, w.WriteHeader(&h))
			}
			require.NoError(t, w.Close())
			parent := t.TempDir()
			dir := filepath.Join(parent, "a", "b")
			// Either it is refused, or it lies inside; outside is nothing.
			err := untar(&buf, dir, false)
			found, globErr := filepath.Glob(filepath.Join(parent, "out"))
			require.NoError(t, globErr)
			require.Empty(t, found)
			if entries[0].Name != "../../out" {
				require.Error(t, err)
			}
		})
	}
}

// Whatever an archive says, nothing is written outside, and nothing panics.
func FuzzUntar(f *testing.F) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range []tar.Header{
		{Name: "a/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "a/l", Typeflag: tar.TypeSymlink, Linkname: "../.."},
		{Name: "a/l/x", Typeflag: tar.TypeReg},
	} {
		require.NoError(f, w.WriteHeader(&h))
	}
	require.NoError(f, w.Close())
	f.Add(buf.Bytes())
	f.Fuzz(func(t *testing.T, archive []byte) {
		parent := t.TempDir()
		_ = untar(bytes.NewReader(archive), filepath.Join(parent, "a", "b"), false)
		for _, dir := range []string{parent, filepath.Join(parent, "a")} {
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, entries, 1)
		}
	})
}
