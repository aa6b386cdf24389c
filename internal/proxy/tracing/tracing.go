// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package tracing sends traces by OpenTelemetry, as it is configured by the same
// block as in Prometheus. Prometheus's own package of that name is not used
// because it calls every service prometheus, and installs what it builds for the
// whole process.
package tracing

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"sync"
	"time"

	httpconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/version"
	promconfig "github.com/prometheus/prometheus/config"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/credentials"
)

const (
	serviceName = "promguard"
	scopeName   = "github.com/promguard/promguard"
	// flushTimeout bounds how long a configuration that is replaced may take to send
	// what it has.
	flushTimeout = 5 * time.Second
)

// Manager holds what sends spans. Safe for concurrent use.
type Manager struct {
	logger *slog.Logger

	mu       sync.Mutex
	config   promconfig.TracingConfig
	files    [sha256.Size]byte        // of what the config names
	provider *sdktrace.TracerProvider // nil while tracing is off
	retired  sync.WaitGroup
}

// NewManager returns a Manager that sends nothing yet. Spans that cannot be sent
// are lost, and logged for the process as a whole.
func NewManager(logger *slog.Logger) *Manager {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		logger.Warn("Spans not sent", "err", err)
	}))
	return &Manager{logger: logger}
}

// Apply returns the tracer of a configuration, or nil if it has no endpoint. The
// one before sends the spans that have ended. Nothing changes on an error, nor if neither the configuration does nor what is in its
// files.
func (m *Manager) Apply(c promconfig.TracingConfig) (trace.Tracer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	files, err := hashFiles(&c.TLSConfig)
	if err != nil {
		return nil, err
	}
	if files != m.files || !reflect.DeepEqual(m.config, c) {
		var p *sdktrace.TracerProvider
		if c.Endpoint != "" {
			if p, err = newProvider(c); err != nil {
				return nil, err
			}
		}
		m.retire()
		m.provider, m.config, m.files = p, c, files
	}
	if m.provider == nil {
		return nil, nil
	}
	return m.provider.Tracer(scopeName), nil
}

// hashFiles returns a hash of the files of a configuration.
func hashFiles(c *httpconfig.TLSConfig) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	for _, path := range []string{c.CAFile, c.CertFile, c.KeyFile} {
		var text []byte
		if path != "" {
			if text, err = os.ReadFile(path); err != nil {
				return sum, err
			}
		}
		part := sha256.Sum256(text)
		h.Write(part[:])
	}
	h.Sum(sum[:0])
	return sum, nil
}

// retire sends what the provider has, without anybody waiting for it but Close.
func (m *Manager) retire() {
	p := m.provider
	if p == nil {
		return
	}
	m.provider = nil
	m.retired.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			m.logger.Warn("Not all spans were sent", "err", err)
		}
	})
}

// Close sends what is left, for some seconds at most.
func (m *Manager) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.retire()
	m.config = promconfig.TracingConfig{}
	m.retired.Wait()
}

func newProvider(c promconfig.TracingConfig) (*sdktrace.TracerProvider, error) {
	client, err := newClient(c)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	sends, err := otlptrace.New(ctx, client) // It connects when there is something to send.
	if err != nil {
		return nil, err
	}
	res, err := resource.New(ctx, resource.WithSchemaURL(semconv.SchemaURL), resource.WithAttributes(
		semconv.ServiceNameKey.String(serviceName), semconv.ServiceVersionKey.String(version.Version),
	), resource.WithProcessRuntimeDescription(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, err
	}
	return sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(sends),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(c.SamplingFraction))),
		sdktrace.WithResource(res),
	), nil
}

func newClient(c promconfig.TracingConfig) (otlptrace.Client, error) {
	tls, err := httpconfig.NewTLSConfig(&c.TLSConfig)
	if err != nil {
		return nil, err
	}
	timeout, compressed := time.Duration(c.Timeout), c.Compression == promconfig.GzipCompression
	switch c.ClientType {
	case promconfig.TracingClientHTTP:
		opts := []otlptracehttp.Option{otlptracehttp.WithEndpoint(c.Endpoint), otlptracehttp.WithHeaders(c.Headers)}
		if c.Insecure {
			opts = append(opts, otlptracehttp.WithInsecure())
		} else {
			opts = append(opts, otlptracehttp.WithTLSClientConfig(tls))
		}
		if compressed {
			opts = append(opts, otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
		}
		if timeout > 0 {
			opts = append(opts, otlptracehttp.WithTimeout(timeout))
		}
		return otlptracehttp.NewClient(opts...), nil
	case promconfig.TracingClientGRPC:
		opts := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(c.Endpoint), otlptracegrpc.WithHeaders(c.Headers)}
		if c.Insecure {
			opts = append(opts, otlptracegrpc.WithInsecure())
		} else {
			opts = append(opts, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(tls)))
		}
		if compressed {
			opts = append(opts, otlptracegrpc.WithCompressor(promconfig.GzipCompression))
		}
		if timeout > 0 {
			opts = append(opts, otlptracegrpc.WithTimeout(timeout))
		}
		return otlptracegrpc.NewClient(opts...), nil
	}
	return nil, fmt.Errorf("client_type %q: use %s or %s", c.ClientType, promconfig.TracingClientGRPC, promconfig.TracingClientHTTP)
}
