// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	promconfig "github.com/prometheus/prometheus/config"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newCollector counts spans of promguard that come with the header.
func newCollector(t *testing.T, spans *atomic.Int64) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			gz, err := gzip.NewReader(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			body = gz
		}
		text, err := io.ReadAll(body)
		var req collector.ExportTraceServiceRequest
		if err != nil || r.Header.Get("X-Scope") != "ops" || proto.Unmarshal(text, &req) != nil {
			http.Error(w, "no spans", http.StatusBadRequest)
			return
		}
		for _, rs := range req.GetResourceSpans() {
			for _, a := range rs.GetResource().GetAttributes() {
				if a.GetKey() == "service.name" && a.GetValue().GetStringValue() == "promguard" {
					for _, ss := range rs.GetScopeSpans() {
						spans.Add(int64(len(ss.GetSpans())))
					}
				}
			}
		}
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

func TestSpansAreSentToTheCollectorOfTheConfiguration(t *testing.T) {
	var first, second atomic.Int64
	c := promconfig.TracingConfig{
		ClientType: promconfig.TracingClientHTTP, Endpoint: newCollector(t, &first), Insecure: true, SamplingFraction: 1,
		Compression: promconfig.GzipCompression, Headers: map[string]string{"X-Scope": "ops"},
	}
	m := NewManager(promslog.NewNopLogger())
	defer m.Close()
	tracer, err := m.Apply(promconfig.TracingConfig{})
	require.NoError(t, err)
	require.Nil(t, tracer, "off")
	send := func() {
		_, span := tracer.Start(context.Background(), "x")
		require.True(t, span.IsRecording())
		span.End()
	}
	tracer, err = m.Apply(c)
	require.NoError(t, err)
	send()
	same, err := m.Apply(c)
	require.NoError(t, err)
	require.Equal(t, tracer, same, "nothing has changed")
	c.Endpoint = newCollector(t, &second)
	tracer, err = m.Apply(c)
	require.NoError(t, err)
	send()
	bad := c
	bad.Insecure, bad.TLSConfig.CAFile = false, "absent"
	_, err = m.Apply(bad)
	require.ErrorContains(t, err, "absent")
	send() // As before.
	m.Close()
	require.EqualValues(t, 1, first.Load())
	require.EqualValues(t, 2, second.Load())
	tracer, err = m.Apply(promconfig.TracingConfig{ClientType: "smoke", Endpoint: "x:1"})
	require.ErrorContains(t, err, `client_type "smoke": use grpc or http`)
	require.Nil(t, tracer)
}

func TestAReloadBuildsAnewOnlyWhatHasChanged(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(ca, text, 0o600))
	c := promconfig.TracingConfig{ClientType: promconfig.TracingClientGRPC, Endpoint: "127.0.0.1:1", SamplingFraction: 1}
	c.TLSConfig.CAFile, c.TLSConfig.ServerName = ca, "otel"
	m := NewManager(promslog.NewNopLogger())
	defer m.Close()
	before, err := m.Apply(c)
	require.NoError(t, err)
	same, err := m.Apply(c)
	require.NoError(t, err)
	require.Same(t, before, same)
	require.NoError(t, os.WriteFile(ca, append(text, text...), 0o600))
	changed, err := m.Apply(c)
	require.NoError(t, err)
	require.NotSame(t, before, changed, "what the file holds")
	require.NoError(t, os.Remove(ca))
	_, err = m.Apply(c)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestACollectorThatIsAwayHoldsNobodyUp(t *testing.T) {
	m := NewManager(promslog.NewNopLogger())
	tracer, err := m.Apply(promconfig.TracingConfig{ClientType: promconfig.TracingClientGRPC, Endpoint: "127.0.0.1:1", Insecure: true, SamplingFraction: 1, Timeout: model.Duration(20 * time.Millisecond)})
	require.NoError(t, err)
	for range 5000 { // More than is kept.
		_, span := tracer.Start(context.Background(), "x")
		span.End()
	}
	m.Close()
}
