// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/stretchr/testify/require"
	"github.com/thanos-io/objstore"

	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
)

func inDirectory(t *testing.T, dir string) *Bucket {
	t.Helper()
	b, err := Open(t.Context(), fmt.Appendf(nil, "type: FILESYSTEM\nconfig:\n  directory: %s\nprefix: some/where\n", dir), time.Minute)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// wal is a directory with a log.
func wal(t *testing.T) *datadir.Dir {
	t.Helper()
	dir := t.TempDir()
	w, err := wlog.New(nil, nil, filepath.Join(dir, "wal"), "none")
	require.NoError(t, err)
	require.NoError(t, w.Log([]byte("record")))
	require.NoError(t, w.Close())
	require.NoError(t, os.Mkdir(filepath.Join(dir, "chunks_head"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chunks_head", "000001"), make([]byte, 3<<20), 0o666))
	d, err := datadir.Open(dir)
	require.NoError(t, err)
	return d
}

func TestRecordingsComeBackAsTheyWent(t *testing.T) {
	b, d := inDirectory(t, t.TempDir()), wal(t)
	pushed, err := b.Push(t.Context(), d, "fleet/a")
	require.NoError(t, err)
	m, err := b.Manifest(t.Context(), "fleet/a")
	require.NoError(t, err)
	require.Equal(t, pushed, m)
	to := filepath.Join(t.TempDir(), "back")
	require.NoError(t, b.Fetch(t.Context(), "fleet/a", m, to))
	back, err := datadir.Open(to)
	require.NoError(t, err)
	again, err := back.Manifest(t.Context())
	require.NoError(t, err)
	require.Equal(t, m.Files, again.Files)

	_, err = b.Push(t.Context(), d, "fleet/a")
	require.ErrorContains(t, err, "holds fleet/a already; choose another name")
	_, err = b.Manifest(t.Context(), "fleet")
	require.ErrorContains(t, err, "holds no recording named fleet")
}

func TestWhatChangedInTheBucketIsNotTaken(t *testing.T) {
	dir := t.TempDir()
	b := inDirectory(t, dir)
	m, err := b.Push(t.Context(), wal(t), "a")
	require.NoError(t, err)
	object := filepath.Join(dir, "some/where/a/chunks_head/000001")
	content, err := os.ReadFile(object)
	require.NoError(t, err)
	out := t.TempDir()
	for _, change := range []func() error{
		func() error { content[1000] ^= 1; return os.WriteFile(object, content, 0o666) },
		func() error { return os.WriteFile(object, content[:1000], 0o666) },
		func() error { return os.WriteFile(object, append(content, 0), 0o666) },
		func() error { return os.Remove(object) },
	} {
		require.NoError(t, change())
		require.Error(t, b.Fetch(t.Context(), "a", m, filepath.Join(out, "a")))
		entries, err := os.ReadDir(out)
		require.NoError(t, err)
		require.Empty(t, entries)
	}
}

// failing fails every upload but the first ones.
type failing struct {
	objstore.Bucket

	left int
}

var errFull = errors.New("the quota\n is spent")

func (f *failing) Upload(ctx context.Context, name string, r io.Reader, o ...objstore.ObjectUploadOption) error {
	f.left--
	if f.left < 0 {
		return errFull
	}
	return f.Bucket.Upload(ctx, name, r, o...)
}

func TestUploadThatFailsLeavesNothingBehind(t *testing.T) {
	d := wal(t)
	for left := range 3 {
		in := objstore.NewInMemBucket()
		b := &Bucket{&failing{in, left}}
		_, err := b.Push(t.Context(), d, "a")
		require.ErrorContains(t, err, "the quota is spent")
		require.Empty(t, in.Objects())
	}
}

func TestConfigurationsThatAreWrongAreRefusedInOneLine(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"type: TAPE\n", `type must be FILESYSTEM, S3, GCS or AZURE, got "TAPE"`},
		{"", `type must be FILESYSTEM, S3, GCS or AZURE, got ""`},
		{"type: [", "the configuration of the bucket: yaml: "},
		{"tpye: S3\n", `unknown key "tpye", did you mean type?`},
		{"type: FILESYSTEM\n", "missing directory"},
		{"type: S3\nconfig: {bucket: b}\n", "endpoint"},
		{"type: S3\nconfig: {bucket: b, endpoint: e, color: red}\n", "color"},
		{"type: AZURE\nconfig: {container: c}\n", "the configuration of the bucket: "},
	} {
		_, err := Open(t.Context(), []byte(tc.text), time.Minute)
		require.ErrorContains(t, err, tc.want, tc.text)
		require.NotContains(t, err.Error(), "\n")
	}
	_, err := Open(t.Context(), []byte("type: GCS\n"), time.Minute)
	require.ErrorContains(t, err, "built without GCS")
}

func s3At(address string) []byte {
	return fmt.Appendf(nil, "type: S3\nconfig: {bucket: logs, endpoint: %q, region: here, insecure: true, access_key: a, secret_key: s}\n", address)
}

func TestBucketThatDoesNotAnswerIsToldInOneLine(t *testing.T) {
	release := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer silent.Close()
	defer close(release)
	_, err := Open(t.Context(), s3At(strings.TrimPrefix(silent.URL, "http://")), 300*time.Millisecond)
	require.ErrorContains(t, err, "a first request: the bucket logs: ")

	forbidding := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer forbidding.Close()
	_, err = Open(t.Context(), s3At(strings.TrimPrefix(forbidding.URL, "http://")), time.Minute)
	require.ErrorContains(t, err, "a first request: the bucket logs: ")
	require.NotContains(t, err.Error(), "\n")
}

func TestInterruptedOpeningIsAnInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Open(ctx, s3At("127.0.0.1:1"), time.Second)
	require.ErrorIs(t, err, context.Canceled)
}

func TestNamesStayInTheBucket(t *testing.T) {
	for _, name := range []string{"a", "fleet/2026-01-02.x_y", "0"} {
		require.NoError(t, CheckName(name))
	}
	for _, name := range []string{"", "/a", "a/", "a//b", "..", "../a", "a/../b", "a b", ".a", "a\n"} {
		require.Error(t, CheckName(name), name)
	}
}
