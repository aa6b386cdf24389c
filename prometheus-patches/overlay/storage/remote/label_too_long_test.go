// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package remote

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/util/teststorage"
)

// What is received with a label that is too long is answered as what cannot be stored, so
// that it is not sent again.
func TestWhatIsReceivedWithALabelThatIsTooLongIsABadRequest(t *testing.T) {
	long := strings.Repeat("x", 1<<24)
	now := time.Now().UnixMilli()
	v1, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
		{Labels: []prompb.Label{{Name: "__name__", Value: "a"}, {Name: "l", Value: long}}, Samples: []prompb.Sample{{Timestamp: now, Value: 1}}},
	}}).Marshal()
	require.NoError(t, err)
	v2 := func(symbols []string, refs []uint32) []byte {
		b, err := (&writev2.Request{Symbols: symbols, Timeseries: []writev2.TimeSeries{
			{LabelsRefs: refs, Samples: []writev2.Sample{{Timestamp: now, Value: 1}}},
			{LabelsRefs: []uint32{1, 2}, Samples: []writev2.Sample{{Timestamp: now, Value: 1}}},
		}}).Marshal()
		require.NoError(t, err)
		return b
	}
	many := make([]uint32, 2_000_000)
	for i := range many {
		many[i] = 3
	}
	metrics := pmetric.NewMetrics()
	point := metrics.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	point.SetName("a")
	p := point.SetEmptyGauge().DataPoints().AppendEmpty()
	p.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	p.SetDoubleValue(1)
	p.Attributes().PutStr("l", long)
	otlp, err := pmetricotlp.NewExportRequestFromMetrics(metrics).MarshalProto()
	require.NoError(t, err)

	writeHandler := func(db *teststorage.TestStorage, typeAndUnit bool) http.Handler {
		return NewWriteHandler(promslog.NewNopLogger(), nil, db, remoteapi.MessageTypes{remoteapi.WriteV1MessageType, remoteapi.WriteV2MessageType}, typeAndUnit, false)
	}
	for name, c := range map[string]struct {
		contentType string
		body        []byte
		series      int
	}{
		"remote write 1":          {"application/x-protobuf;proto=prometheus.WriteRequest", v1, 0},
		"remote write 2":          {"application/x-protobuf;proto=io.prometheus.write.v2.Request", v2([]string{"", "__name__", "a", long}, []uint32{1, 2, 3, 3}), 1},
		"a long label many times": {"application/x-protobuf;proto=io.prometheus.write.v2.Request", v2([]string{"", "__name__", "a", long[:1<<22]}, many), 1},
		"OTLP":                    {"application/x-protobuf", otlp, 0},
	} {
		t.Run(name, func(t *testing.T) {
			db := teststorage.New(t)
			var h http.Handler
			if name == "OTLP" {
				h = NewOTLPWriteHandler(promslog.NewNopLogger(), nil, db, func() config.Config { return config.Config{OTLPConfig: config.DefaultOTLPConfig} }, OTLPOptions{})
			} else {
				h, c.body = writeHandler(db, true), snappy.Encode(nil, c.body)
			}
			req := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(c.body))
			req.Header.Set("Content-Type", c.contentType)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			require.Equal(t, http.StatusBadRequest, w.Code, w.Body.String())
			require.EqualValues(t, c.series, db.Head().NumSeries())
		})
	}
}

// Several servers are read in goroutines that nobody recovers.
func TestAnAnswerToARemoteReadWithALabelThatIsTooLongIsAnError(t *testing.T) {
	set := FromQueryResult(true, &prompb.QueryResult{Timeseries: []*prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: "up"}, {Name: "instance", Value: strings.Repeat("a", 1<<24)}},
		Samples: []prompb.Sample{{Value: 1, Timestamp: 1}},
	}}})
	require.False(t, set.Next())
	require.ErrorAs(t, set.Err(), new(labels.TooLongError))
}
