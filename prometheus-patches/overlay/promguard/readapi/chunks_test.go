// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/util/teststorage"
)

// heapWatcher is a client that looks at the live heap of the server now and then: each series
// is a frame.
type heapWatcher struct {
	httptest.ResponseRecorder

	most, bytes, writes uint64
}

// Write implements http.ResponseWriter.
func (w *heapWatcher) Write(p []byte) (int, error) {
	w.bytes += uint64(len(p))
	w.writes++
	if w.writes%8_192 == 1 {
		w.most = max(w.most, liveHeap())
	}
	return len(p), nil
}

// Flush implements http.Flusher.
func (*heapWatcher) Flush() {}

func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestAReadInChunksHoldsNoMoreOfASeriesThanItsAccountSays(t *testing.T) {
	const few, many = 2_000, 32_000
	db := teststorage.New(t)
	app := db.Appender(t.Context())
	for i := range many {
		name := "few"
		if i >= few {
			name = "others"
		}
		_, err := app.Append(0, labels.FromStrings("__name__", name, "job", "kubelet", "instance", "node-"+strconv.Itoa(i%1000), "pod", "pod-"+strconv.Itoa(i)), 1000, 1)
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
	h := remote.NewReadHandler(promslog.NewNopLogger(), prometheus.NewRegistry(), db, func() config.Config { return config.Config{} }, 1, 1, 1<<20)
	held := func(name string, least uint64) uint64 {
		req := &prompb.ReadRequest{
			AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS},
			Queries:               []*prompb.Query{{EndTimestampMs: 2000, Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_RE, Name: "__name__", Value: name}}}},
		}
		message, err := req.Marshal()
		require.NoError(t, err)
		w, before := &heapWatcher{ResponseRecorder: *httptest.NewRecorder()}, liveHeap()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/read", bytes.NewReader(snappy.Encode(nil, message))))
		require.Greater(t, w.bytes, least)
		return w.most - min(before, w.most)
	}
	held("few", few*50) // What is made once.
	slope := float64(held("few|others", many*50)-held("few", few*50)) / (many - few)
	t.Logf("%.1f bytes a series", slope)
	require.Less(t, slope, float64(chunksSeriesBytes))
}
