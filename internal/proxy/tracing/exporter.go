// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"errors"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// endTimeout is how long it may take to end what was given up.
const endTimeout = time.Second

// errGivenUp is what becomes of spans that a collector does not take in time.
var errGivenUp = errors.New("the collector did not take them in time")

// exporter is one that can be given up: a batch processor that is shut down goes on
// with all that it has, each batch with a time of its own, though nobody waits for
// it any more.
type exporter struct {
	sdktrace.SpanExporter

	given  context.Context //nolint:containedctx // It ends once the exporter is given up.
	giveUp context.CancelCauseFunc
}

func newExporter(e sdktrace.SpanExporter) *exporter {
	x := &exporter{SpanExporter: e}
	x.given, x.giveUp = context.WithCancelCause(context.Background())
	return x
}

// ExportSpans implements sdktrace.SpanExporter.
func (x *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if x.given.Err() != nil {
		return context.Cause(x.given)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(x.given, func() { cancel(context.Cause(x.given)) })()
	return x.SpanExporter.ExportSpans(ctx, spans)
}

// provider sends the spans of a configuration.
type provider struct {
	*sdktrace.TracerProvider

	exporter *exporter
}

// shutdown sends what there is within the timeout, and gives the rest up. When it
// returns, nothing of the provider runs any more, unless that took endTimeout.
func (p *provider) shutdown(timeout time.Duration) error {
	late := time.AfterFunc(timeout, func() { p.exporter.giveUp(errGivenUp) })
	defer late.Stop()
	defer p.exporter.giveUp(nil)
	ctx, cancel := context.WithTimeout(context.Background(), timeout+endTimeout)
	defer cancel()
	return errors.Join(p.Shutdown(ctx), context.Cause(p.exporter.given))
}
