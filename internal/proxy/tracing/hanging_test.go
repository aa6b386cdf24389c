// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	promconfig "github.com/prometheus/prometheus/config"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
)

// listenSilently takes connections, and says nothing on them until the test is over.
func listenSilently(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var accepting sync.WaitGroup
	var taken []net.Conn
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			taken = append(taken, c)
		}
	})
	t.Cleanup(func() {
		l.Close()
		accepting.Wait()
		for _, c := range taken {
			c.Close()
		}
	})
	return l.Addr().String()
}

// hangingService takes spans over gRPC, and never says that it has.
type hangingService struct {
	collector.UnimplementedTraceServiceServer
}

func (hangingService) Export(ctx context.Context, _ *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func serveHangingGRPC(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := grpc.NewServer()
	collector.RegisterTraceServiceServer(srv, hangingService{})
	served := make(chan error)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() { srv.Stop(); <-served })
	return l.Addr().String()
}

func serveHangingHTTP(t *testing.T) string {
	over := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	t.Cleanup(func() { close(over); srv.Close() })
	return strings.TrimPrefix(srv.URL, "http://")
}

func TestNothingGoesOnAfterCloseThoughTheCollectorHangs(t *testing.T) {
	for name, c := range map[string]struct {
		client promconfig.TracingClientType
		listen func(*testing.T) string
	}{
		"http, never answered": {promconfig.TracingClientHTTP, serveHangingHTTP},
		"http, never read":     {promconfig.TracingClientHTTP, listenSilently},
		"grpc, never answered": {promconfig.TracingClientGRPC, serveHangingGRPC},
		"grpc, never greeted":  {promconfig.TracingClientGRPC, listenSilently},
	} {
		t.Run(name, func(t *testing.T) {
			config := promconfig.TracingConfig{ClientType: c.client, Endpoint: c.listen(t), Insecure: true, SamplingFraction: 1}
			before := goleak.IgnoreCurrent() // Of the collector and of other tests.
			var logged strings.Builder
			m := NewManager(slog.New(slog.NewTextHandler(&logged, nil)))
			m.flush = 50 * time.Millisecond
			tracer, err := m.Apply(config)
			require.NoError(t, err)
			for range 5000 { // More than is kept, in several batches.
				_, span := tracer.Start(context.Background(), "x")
				span.End()
			}
			m.Close()
			require.Contains(t, logged.String(), errGivenUp.Error())
			require.Eventually(t, func() bool {
				return goleak.Find(before, goleak.IgnoreAnyFunction("net/http.(*conn).serve")) == nil // Of the collector.
			}, 20*time.Second, 10*time.Millisecond)
		})
	}
}
