// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"bufio"
	"bytes"
	"crypto/md5" //nolint:gosec // S3's ETag is one.
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
)

// fakeS3 is as much of S3 as the client asks of it. It checks no signatures.
type fakeS3 struct {
	mu      sync.Mutex
	objects map[string][]byte
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	object := strings.TrimPrefix(r.URL.Path, "/logs/")
	content, found := f.objects[object]
	switch {
	case r.Method == http.MethodPut:
		body, err := payload(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		f.objects[object] = body
		w.Header().Set("ETag", etag(body))
	case r.Method == http.MethodDelete:
		delete(f.objects, object)
		w.WriteHeader(http.StatusNoContent)
	case !found:
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusNotFound)
		_ = xml.NewEncoder(w).Encode(struct {
			XMLName xml.Name `xml:"Error"`
			Code    string
		}{Code: "NoSuchKey"})
	default:
		w.Header().Set("ETag", etag(content))
		w.Header().Set("Last-Modified", time.Unix(0, 0).UTC().Format(http.TimeFormat))
		http.ServeContent(w, r, "", time.Unix(0, 0), bytes.NewReader(content))
	}
}

func etag(b []byte) string { return fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum(b))) } //nolint:gosec // See above.

// payload is the body without the chunks that a signature is put in.
func payload(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return io.ReadAll(r.Body)
	}
	var whole []byte
	in := bufio.NewReader(r.Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		hexSize, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		size, err := strconv.ParseInt(hexSize, 16, 64)
		if err != nil {
			return nil, err
		}
		if size == 0 {
			return whole, nil
		}
		chunk := make([]byte, size+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, err
		}
		whole = append(whole, chunk[:size]...)
	}
}

func TestRecordingsGoToS3AndBack(t *testing.T) {
	fake := &fakeS3{objects: map[string][]byte{}}
	server := httptest.NewServer(fake)
	defer server.Close()
	b, err := Open(t.Context(), s3At(strings.TrimPrefix(server.URL, "http://")), time.Minute)
	require.NoError(t, err)
	defer b.Close()
	_, err = b.Manifest(t.Context(), "fleet/a")
	require.ErrorContains(t, err, "the bucket logs holds no recording named fleet/a")

	d := wal(t)
	pushed, err := b.Push(t.Context(), d, "fleet/a")
	require.NoError(t, err)
	require.Contains(t, fake.objects, "fleet/a/wal/00000000")
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
}
