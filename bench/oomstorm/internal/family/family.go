// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package family has requests that take much of a server, as families: each is a
// template of one request, whose size follows that of the server's data.
package family

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/util/compression"
	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/promapi"
)

// Family is a kind of request. Texts are templates.
type Family struct {
	Name string `yaml:"name"`
	Path string `yaml:"path"`
	// Params of a request; a value of several lines is several values.
	Params map[string]string `yaml:"params,omitempty"`
	// Post sends the parameters as a form.
	Post   bool              `yaml:"post,omitempty"`
	Header map[string]string `yaml:"header,omitempty"`
	// Read is the body of a remote read.
	Read *Read `yaml:"read,omitempty"`
}

// Read is a remote read.
type Read struct {
	// Queries of the series that have this label, Empty ones besides.
	Label   string `yaml:"label,omitempty"`
	Queries int    `yaml:"queries,omitempty"`
	Empty   int    `yaml:"empty,omitempty"`
	// Chunks are asked for instead of samples.
	Chunks bool `yaml:"chunks,omitempty"`
}

//go:embed families.yaml
var shipped []byte

// Shipped are the families that come with the program.
var Shipped = sync.OnceValue(func() (all []Family) {
	if err := yaml.Unmarshal(shipped, &all); err != nil {
		panic(err) // A test reads them.
	}
	return all
})

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// Check says what is wrong with a family.
func (f *Family) Check() error {
	if !nameRE.MatchString(f.Name) {
		return fmt.Errorf("the name %q must be of lower-case letters, digits and '-'", f.Name)
	}
	if !strings.HasPrefix(f.Path, "/") {
		return fmt.Errorf("family %s: path must begin with /, got %q", f.Name, f.Path)
	}
	if f.Read != nil && (len(f.Params) > 0 || f.Read.Queries < 0 || f.Read.Empty < 0 || f.Read.Empty > maxEmpty) {
		return fmt.Errorf("family %s: a read has no params, and queries and empty from 0 to %d", f.Name, maxEmpty)
	}
	_, err := f.values(Data{Points: 1})
	return err
}

// maxEmpty bounds the body, of two bytes for each.
const maxEmpty = 1 << 25

// Find are the families whose names match one of the patterns, such as series-*.
func Find(all []Family, patterns []string) (found []Family, err error) {
	matched := map[string]bool{}
	for _, f := range all {
		ok := len(patterns) == 0
		for _, p := range patterns {
			m, err := path.Match(p, f.Name)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", p, err)
			}
			matched[p] = matched[p] || m
			ok = ok || m
		}
		if ok {
			found = append(found, f)
		}
	}
	for _, p := range patterns {
		if !matched[p] {
			return nil, fmt.Errorf("no family is called %q", p)
		}
	}
	return found, nil
}

// Data is what templates can use.
type Data struct {
	Points int // of a range query of all buckets, within the server's limit of samples
}

// All is a selector of every series that was written; the others are of fewer.
func (Data) All() string { return `{job!=""}` }

// Buckets is a selector of every histogram's buckets.
func (Data) Buckets() string { return `{le!=""}` }

// Some selects about 1,500 series, if there are as many.
func (Data) Some() string {
	return `apiserver_request_duration_seconds_bucket{resource="pods",instance=~"10.201.0.[0-8]:6443"}`
}

// Few selects about 75.
func (Data) Few() string {
	return `apiserver_request_duration_seconds_bucket{resource="pods",verb="GET",instance=~"10.201.0.[0-2]:6443"}`
}

// PointsFor is how many points a range query over nearly all of so many series
// can have without exceeding Prometheus' default limit of samples.
func PointsFor(series int) int { return max(1, min(36, 40_000_000/series)) }

// maxRepeat bounds what one call makes in a template.
const maxRepeat = 1 << 20

var functions = template.FuncMap{
	"repeat": func(n int, s string) (string, error) {
		if n < 0 || n*len(s) > maxRepeat {
			return "", fmt.Errorf("repeat makes at most %d bytes", maxRepeat)
		}
		return strings.Repeat(s, n), nil
	},
	"seq": func(n int) ([]struct{}, error) {
		if n < 0 || n > maxRepeat {
			return nil, fmt.Errorf("seq counts to at most %d", maxRepeat)
		}
		return make([]struct{}, n), nil
	},
	"ago": func(d string) (string, error) {
		ago, err := time.ParseDuration(d)
		return promapi.Seconds(time.Now().Add(-ago)), err
	},
}

func (f *Family) values(d Data) (url.Values, error) {
	values := url.Values{}
	for key, text := range f.Params {
		t, err := template.New(key).Funcs(functions).Parse(text)
		if err != nil {
			return nil, fmt.Errorf("family %s: %w", f.Name, err)
		}
		var out strings.Builder
		if err := t.Execute(&out, d); err != nil {
			return nil, fmt.Errorf("family %s: %w", f.Name, err)
		}
		for line := range strings.Lines(out.String()) {
			values.Add(key, strings.TrimSpace(line))
		}
	}
	return values, nil
}

// Request is a request of the family to the server at a URL.
func (f *Family) Request(ctx context.Context, server string, d Data) (*http.Request, error) {
	values, err := f.values(d)
	if err != nil {
		return nil, err
	}
	method, target := http.MethodGet, server+f.Path
	header := http.Header{}
	var body io.Reader = http.NoBody
	switch {
	case f.Read != nil:
		raw, err := f.Read.body()
		if err != nil {
			return nil, err
		}
		method, body = http.MethodPost, bytes.NewReader(raw)
		header.Set("Content-Type", "application/x-protobuf")
		header.Set("Content-Encoding", "snappy")
		header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	case f.Post:
		method, body = http.MethodPost, strings.NewReader(values.Encode())
		header.Set("Content-Type", "application/x-www-form-urlencoded")
	case len(values) > 0:
		target += "?" + values.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	for k, v := range f.Header {
		header.Set(k, v)
	}
	req.Header = header
	return req, nil
}

// emptyBodies are kept: the longest takes a while to compress.
var emptyBodies sync.Map

func (r *Read) body() ([]byte, error) {
	if known, ok := emptyBodies.Load(r.Empty); ok && r.Queries == 0 {
		return known.([]byte), nil
	}
	now := time.Now()
	q := &prompb.Query{
		StartTimestampMs: now.Add(-time.Hour).UnixMilli(), EndTimestampMs: now.UnixMilli(),
		Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_NEQ, Name: r.Label}},
	}
	req := &prompb.ReadRequest{AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_SAMPLES}}
	if r.Chunks {
		req.AcceptedResponseTypes[0] = prompb.ReadRequest_STREAMED_XOR_CHUNKS
	}
	for range r.Queries {
		req.Queries = append(req.Queries, q)
	}
	raw, err := req.Marshal()
	if err != nil {
		return nil, err
	}
	const empty = "\x0a\x00" // Field 1 of the request, of no bytes.
	raw = append(raw, strings.Repeat(empty, r.Empty)...)
	raw, err = compression.Encode(compression.Snappy, raw, compression.NewSyncEncodeBuffer())
	if err == nil && r.Queries == 0 {
		emptyBodies.Store(r.Empty, raw)
	}
	return raw, err
}

// Merge adds families to others; a name is taken once.
func Merge(families, more []Family) ([]Family, error) {
	names := map[string]bool{}
	var errs []error
	all := append(append([]Family(nil), families...), more...)
	for _, f := range all {
		if names[f.Name] {
			errs = append(errs, fmt.Errorf("two families are called %s", f.Name))
		}
		names[f.Name] = true
	}
	return all, errors.Join(errs...)
}
