// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/util/compression"
)

// Kind is a kind of request.
type Kind struct {
	Name string
	// Weight is its share in the default mix.
	Weight int
	build  func(b *Builder, r *rand.Rand) request
}

// request is what differs between requests.
type request struct {
	path    string
	params  url.Values
	body    []byte // a POST with this body, if any
	mayPost bool   // may be a POST with its parameters as a form
}

// hostile is the selector of nearly everything: every histogram's buckets.
const hostile = `{le!=""}`

// Kinds are all kinds of requests, those of the dashboard last.
var Kinds = []Kind{
	{"series", 16, func(*Builder, *rand.Rand) request { return get("/api/v1/series", true, "match[]", hostile) }},
	{"series2", 10, func(*Builder, *rand.Rand) request {
		return get("/api/v1/series", true, "match[]", hostile, "match[]", `{job!=""}`)
	}},
	{"label-values", 6, func(*Builder, *rand.Rand) request {
		return get("/api/v1/label/instance/values", false, "match[]", hostile)
	}},
	{"federate", 8, func(*Builder, *rand.Rand) request { return get("/federate", false, "match[]", hostile) }},
	{"read-samples", 6, func(b *Builder, _ *rand.Rand) request {
		return request{path: "/api/v1/read", body: b.read(prompb.ReadRequest_SAMPLES)}
	}},
	{"read-chunks", 6, func(b *Builder, _ *rand.Rand) request {
		return request{path: "/api/v1/read", body: b.read(prompb.ReadRequest_STREAMED_XOR_CHUNKS)}
	}},
	{"query", 10, func(*Builder, *rand.Rand) request { return get("/api/v1/query", true, "query", hostile) }},
	{"query-range", 8, func(b *Builder, _ *rand.Rand) request {
		now := time.Now()
		return get("/api/v1/query_range", true, "query", hostile, "start", seconds(now.Add(-time.Duration(b.Points-1)*rangeStep)), "end", seconds(now), "step", seconds(time.Unix(0, int64(rangeStep))))
	}},
	{"query-exemplars", 4, func(b *Builder, _ *rand.Rand) request {
		return get("/api/v1/query_exemplars", true, "query", hostile, "start", seconds(b.From), "end", seconds(time.Now()))
	}},
	{"dashboard", 26, func(_ *Builder, r *rand.Rand) request {
		panel := panels[r.IntN(len(panels))]
		now := time.Now()
		if panel.ranged {
			return get(panel.path, true, "query", panel.value, "start", seconds(now.Add(-5*time.Minute)), "end", seconds(now), "step", "15")
		}
		return get(panel.path, true, panel.key, panel.value)
	}},
}

// panels are what an innocent dashboard asks.
var panels = []struct {
	path, key, value string
	ranged           bool
}{
	{path: "/api/v1/query", key: "query", value: "count by (job) (up)"},
	{path: "/api/v1/query", key: "query", value: `sum(up{job="live"}) / count(up{job="live"})`},
	{path: "/api/v1/query_range", value: `sum by (instance) (scrape_duration_seconds{job="live"})`, ranged: true},
	{path: "/api/v1/query_range", value: `max(up)`, ranged: true},
	{path: "/api/v1/series", key: "match[]", value: "up"},
}

const rangeStep = 5 * time.Second

func get(path string, post bool, pairs ...string) request {
	params := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		params.Add(pairs[i], pairs[i+1])
	}
	return request{path: path, params: params, mayPost: post}
}

func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

// Find is the kind of that name.
func Find(name string) (Kind, error) {
	for _, k := range Kinds {
		if k.Name == name {
			return k, nil
		}
	}
	names := make([]string, 0, len(Kinds))
	for _, k := range Kinds {
		names = append(names, k.Name)
	}
	return Kind{}, fmt.Errorf("%q is not a kind of request; there are %s", name, strings.Join(names, ", "))
}

// Mix is the weights of kinds by name.
type Mix map[string]int

// DefaultMix are the weights that kinds have if nothing else is said.
func DefaultMix() Mix {
	m := Mix{}
	for _, k := range Kinds {
		m[k.Name] = k.Weight
	}
	return m
}

// ParseMix parses "KIND=WEIGHT,...". Kinds that are not named have no weight.
func ParseMix(s string) (Mix, error) {
	m := Mix{}
	total := 0
	for field := range strings.SplitSeq(s, ",") {
		name, weight, ok := strings.Cut(strings.TrimSpace(field), "=")
		if !ok {
			return nil, fmt.Errorf("%q is not KIND=WEIGHT", field)
		}
		if _, err := Find(name); err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(weight)
		if err != nil || n < 0 || n > 1_000_000 {
			return nil, fmt.Errorf("the weight of %s must be a whole number from 0 to 1000000, got %q", name, weight)
		}
		if _, twice := m[name]; twice {
			return nil, fmt.Errorf("%s is named twice", name)
		}
		m[name] = n
		total += n
	}
	if total == 0 {
		return nil, fmt.Errorf("%q has no weight above 0", s)
	}
	return m, nil
}

// pick picks a kind by weight.
func (m Mix) pick(r *rand.Rand) Kind {
	total := 0
	for _, k := range Kinds {
		total += m[k.Name]
	}
	n := r.IntN(total)
	i := slices.IndexFunc(Kinds, func(k Kind) bool {
		n -= m[k.Name]
		return n < 0
	})
	return Kinds[i]
}

// Builder makes requests to a server.
type Builder struct {
	// URL is the server's.
	URL string
	// From is the time of the first sample.
	From time.Time
	// Points of a range query, 1 or more.
	Points int
}

// PointsFor is how many points a range query over nearly all of so many series
// can have without exceeding Prometheus' default limit of samples.
func PointsFor(series int) int { return max(1, min(36, 40_000_000/series)) }

// Build makes a request of a kind. With gzip it accepts compressed answers; with
// post, its parameters are a form, where the endpoint has it.
func (b *Builder) Build(ctx context.Context, k Kind, r *rand.Rand, gzip, post bool) (*http.Request, error) {
	q := k.build(b, r)
	method, target, contentType := http.MethodGet, b.URL+q.path, ""
	var body io.Reader = http.NoBody
	switch {
	case q.body != nil:
		method, contentType, body = http.MethodPost, "application/x-protobuf", bytes.NewReader(q.body)
	case post && q.mayPost:
		method, contentType, body = http.MethodPost, "application/x-www-form-urlencoded", strings.NewReader(q.params.Encode())
	default:
		target += "?" + q.params.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if q.body != nil {
		req.Header.Set("Content-Encoding", "snappy")
		req.Header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	}
	if gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	return req, nil
}

// read is the body of a remote read of everything.
func (b *Builder) read(kind prompb.ReadRequest_ResponseType) []byte {
	req := &prompb.ReadRequest{
		Queries: []*prompb.Query{{
			StartTimestampMs: b.From.UnixMilli(),
			EndTimestampMs:   time.Now().UnixMilli(),
			Matchers:         []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_NEQ, Name: "le"}},
		}},
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{kind},
	}
	raw, err := req.Marshal()
	if err == nil {
		raw, err = compression.Encode(compression.Snappy, raw, compression.NewSyncEncodeBuffer())
	}
	if err != nil {
		panic(err) // A message of fixed shape.
	}
	return raw
}
