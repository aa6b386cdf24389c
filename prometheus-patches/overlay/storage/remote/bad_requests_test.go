// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/golang/snappy"
	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/storage"
)

func TestWhatIsWrongWithMillionsOfSamplesIsToldInAMegabyte(t *testing.T) {
	const samples = 10_000
	request := &writev2.Request{
		Symbols:    []string{"", "__name__", "a", strings.Repeat("x", 1<<10)},
		Timeseries: []writev2.TimeSeries{{LabelsRefs: []uint32{1, 2, 2, 3}, Samples: make([]writev2.Sample, samples)}},
	}
	body, err := request.Marshal()
	require.NoError(t, err)
	var log bytes.Buffer
	h := NewWriteHandler(promslog.New(&promslog.Config{Writer: &log}), nil, &mockAppendable{appendSampleErr: storage.ErrOutOfBounds}, remoteapi.MessageTypes{remoteapi.WriteV2MessageType}, false, false)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(snappy.Encode(nil, body)))
	r.Header.Set("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.InDelta(t, maxBadRequestBytes, w.Body.Len(), 1<<13)
	require.Less(t, log.Len(), 2*maxBadRequestBytes)
	told := strings.Count(w.Body.String(), storage.ErrOutOfBounds.Error())
	require.Contains(t, w.Body.String(), "\nand ")
	require.Contains(t, w.Body.String(), " more")
	require.Less(t, told, samples/5)
}
