// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/prometheus/prometheus/model/labels"
)

// tally counts what was refused of one request.
type tally struct {
	samples, histograms, exemplars int
	// points are the data points of OTLP that were refused. One that is a histogram or
	// summary becomes many series, of which one has neither bucket, quantile nor sum.
	points int
	first  *refusal
	series string
}

type tallyKey struct{}

func (t *tally) add(refused *refusal, ls labels.Labels, histogram bool) {
	if t.first == nil {
		t.first, t.series = refused, ls.String()
	}
	if histogram {
		t.histograms++
	} else {
		t.samples++
	}
	name := ls.Get(labels.MetricName)
	if !ls.Has(labels.BucketLabel) && !ls.Has(quantileLabel) && !strings.HasSuffix(name, "_sum") && name != "target_info" {
		t.points++
	}
}

// Error is what the sender is told.
func (t *tally) Error() string {
	return fmt.Sprintf("%d samples and %d histograms of new series were refused, the others are stored. The first: %s: %s", t.samples, t.histograms, t.series, t.first)
}

// Answer returns h with answers that say what was refused, as the protocols do it.
// Remote write is answered with 400: the sender must not retry, as it would hold up what
// can be stored. What was stored is in the headers of version 2. OTLP has an answer for
// partial success.
//
// A request is let in when there is memory for it.
func (g *Gate) Answer(source Source, h http.Handler) http.Handler {
	return g.admit(source, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer{ResponseWriter: w, source: source, json: isJSON(r)}
		h.ServeHTTP(a, r.WithContext(context.WithValue(r.Context(), tallyKey{}, &a.tally)))
		if !a.begun {
			a.WriteHeader(http.StatusOK)
		}
	}))
}

func isJSON(r *http.Request) bool {
	t, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return t == "application/json"
}

// answer is the answer to a request.
type answer struct {
	http.ResponseWriter
	source Source
	json   bool
	tally  tally
	begun  bool
	// replaced says that what the handler writes is not what is answered.
	replaced bool
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	a.begun = true
	if a.tally.first == nil || code/100 != 2 {
		a.ResponseWriter.WriteHeader(code)
		return
	}
	a.replaced = true
	if a.source == OTLP {
		a.partialSuccess()
		return
	}
	for header, refused := range map[string]int{"Samples": a.tally.samples, "Histograms": a.tally.histograms, "Exemplars": a.tally.exemplars} {
		header = "X-Prometheus-Remote-Write-" + header + "-Written"
		if n, err := strconv.Atoi(a.Header().Get(header)); err == nil {
			a.Header().Set(header, strconv.Itoa(max(0, n-refused)))
		}
	}
	http.Error(a.ResponseWriter, a.tally.Error(), http.StatusBadRequest)
}

func (a *answer) partialSuccess() {
	answer := pmetricotlp.NewExportResponse()
	answer.PartialSuccess().SetRejectedDataPoints(int64(a.tally.points))
	answer.PartialSuccess().SetErrorMessage(a.tally.Error())
	marshal, contentType := answer.MarshalProto, "application/x-protobuf"
	if a.json {
		marshal, contentType = answer.MarshalJSON, "application/json"
	}
	body, err := marshal()
	if err != nil {
		http.Error(a.ResponseWriter, err.Error(), http.StatusInternalServerError)
		return
	}
	a.Header().Set("Content-Type", contentType)
	a.ResponseWriter.WriteHeader(http.StatusOK)
	_, _ = a.ResponseWriter.Write(body)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	if a.replaced {
		return len(b), nil
	}
	return a.ResponseWriter.Write(b)
}
