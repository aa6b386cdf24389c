// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// withAll is a generated directory with everything that is replayed, and more.
func withAll(t *testing.T) string {
	t.Helper()
	path, _ := generate(t)
	for _, name := range []string{"lock", "queries.active", "chunks_head/000001", "wbl/00000000", "chunk_snapshot.000003.0000000100/00000000", "series_state.json", "wal/checkpoint.00000000/00000000"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(path, name)), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(path, name), []byte(name), 0o666))
	}
	return path
}

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path)
	require.NoError(t, err)
	return d
}

func TestRecordingHoldsWhatIsReplayedAndItsManifest(t *testing.T) {
	path := withAll(t)
	to := filepath.Join(t.TempDir(), "rec")
	m, err := open(t, path).Record(t.Context(), to)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(to, ManifestName))
	require.NoError(t, err)
	read, err := ParseManifest(text)
	require.NoError(t, err)
	require.Equal(t, m, read)
	names := map[string]bool{}
	for _, f := range m.Files {
		names[f.Path] = true
		want, err := os.ReadFile(filepath.Join(path, f.Path))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(to, f.Path))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, name := range []string{"wal/00000000", "chunks_head/000001", "wbl/00000000", "chunk_snapshot.000003.0000000100/00000000", "series_state.json", "wal/checkpoint.00000000/00000000"} {
		require.True(t, names[name], name)
	}
	require.NoFileExists(t, filepath.Join(to, "lock"))
	// A recording is a data directory, and can be recorded again.
	again, err := open(t, to).Manifest(t.Context())
	require.NoError(t, err)
	require.Equal(t, m.Files, again.Files)

	_, err = open(t, path).Record(t.Context(), to)
	require.ErrorContains(t, err, to+" exists; name a new directory")
}

func TestRecordingOfAWalDirectoryHasNoMore(t *testing.T) {
	path := withAll(t)
	to := filepath.Join(t.TempDir(), "rec")
	m, err := open(t, filepath.Join(path, "wal")).Record(t.Context(), to)
	require.NoError(t, err)
	for _, f := range m.Files {
		require.True(t, strings.HasPrefix(f.Path, "wal/"), f.Path)
	}
	require.FileExists(t, filepath.Join(to, "wal", "00000000"))
}

// requireEmpty is for the directory beside which a recording was written.
func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestFailedRecordingLeavesNothing(t *testing.T) {
	path := withAll(t)
	out := t.TempDir()
	to := filepath.Join(out, "rec")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := open(t, path).Record(ctx, to)
	require.ErrorIs(t, err, context.Canceled)
	requireEmpty(t, out)

	m, err := open(t, path).Manifest(t.Context())
	require.NoError(t, err)
	full := errors.New("no space left on device")
	write := func(in io.Reader) error {
		return Write(t.Context(), to, m, func(File) (io.ReadCloser, error) { return io.NopCloser(in), nil }, nil)
	}
	err = write(io.MultiReader(strings.NewReader("part"), iotest.ErrReader(full)))
	require.ErrorIs(t, err, full)
	requireEmpty(t, out)

	err = write(strings.NewReader("something else"))
	require.ErrorContains(t, err, "of its manifest")
	requireEmpty(t, out)

	taken := int64(0)
	err = write(iotest.OneByteReader(readerFunc(func(b []byte) (int, error) { taken += int64(len(b)); return len(b), nil })))
	require.EqualError(t, err, fmt.Sprintf("%s has more than the %d bytes of its manifest", m.Files[0].Path, m.Files[0].Size))
	require.Equal(t, m.Files[0].Size+1, taken, "no more than there is room for")
	requireEmpty(t, out)

	_, err = open(t, path).Record(t.Context(), filepath.Join(out, "missing", "rec"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	requireEmpty(t, out)
}

// readerFunc is an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestSizesThatNoNumberHoldsAreMoreThanIsFree(t *testing.T) {
	m := &Manifest{Files: []File{{Size: math.MaxInt64}, {Size: math.MaxInt64}, {Size: 2}}}
	require.EqualValues(t, math.MaxInt64, m.Bytes())
	out := t.TempDir()
	err := Write(t.Context(), filepath.Join(out, "rec"), m, nil, nil)
	require.ErrorContains(t, err, "MiB free")
	requireEmpty(t, out)
}

func TestFilesThatChangeMeanwhileAreTold(t *testing.T) {
	path := withAll(t)
	d := open(t, path)
	for _, change := range []func() error{
		func() error { return os.WriteFile(filepath.Join(path, "wal", "00000009"), nil, 0o666) },
		func() error { return os.Truncate(filepath.Join(path, "chunks_head", "000001"), 3) },
		func() error { return os.Remove(filepath.Join(path, "wbl", "00000000")) },
	} {
		before, err := d.stat()
		require.NoError(t, err)
		require.NoError(t, d.unchanged(before))
		require.NoError(t, change())
		require.ErrorContains(t, d.unchanged(before), "changed while it was read")
	}
}

const okSum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestManifestsThatLeadElsewhereAreRefused(t *testing.T) {
	manifest := func(path, size, sum string) string {
		return `{"format":1,"created":"2026-01-01T00:00:00Z","files":[{"path":"` + path + `","size":` + size + `,"sha256":"` + sum + `"}]}`
	}
	_, err := ParseManifest([]byte(manifest("wal/00000000", "0", okSum)))
	require.NoError(t, err)
	for _, text := range []string{
		"", "{}", "[]", `{"format":2}`, `{"format":1,"files":[]}`, `{"format":1,"more":1}`,
		manifest("../x", "0", okSum), manifest("/etc/passwd", "0", okSum), manifest("wal/../../x", "0", okSum), manifest("wal//x", "0", okSum),
		manifest("lock", "0", okSum), manifest("", "0", okSum), manifest("wal/0", "-1", okSum), manifest("wal/0", "0", "abc"), manifest("wal/0", "0", "zz"),
	} {
		_, err := ParseManifest([]byte(text))
		require.ErrorContains(t, err, ManifestName, text)
	}
}

// FuzzParseManifest looks for a manifest that leads out of its directory.
func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(`{"format":1,"created":"2026-01-01T00:00:00Z","files":[{"path":"wal/00000000","size":0,"sha256":"` + okSum + `"}]}`))
	f.Add([]byte(`{"format":1,"files":[{"path":"wal/../x"},{"path":"chunk_snapshot.1/0"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseManifest(b)
		if err != nil {
			return
		}
		for _, file := range m.Files {
			rel, err := filepath.Rel("/data", filepath.Join("/data", file.Path))
			require.NoError(t, err)
			require.Equal(t, filepath.FromSlash(file.Path), rel)
			root, _, _ := strings.Cut(rel, "/")
			require.True(t, isReplayed(root), root)
		}
		text, err := m.Text()
		require.NoError(t, err)
		again, err := ParseManifest(text)
		require.NoError(t, err)
		require.Equal(t, m.Files, again.Files)
	})
}
