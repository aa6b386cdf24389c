// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package canonical

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/proxy/remoteread"
	"github.com/promguard/promguard/internal/querylimit"
)

// The types of bodies.
const (
	FormType       = "application/x-www-form-urlencoded"
	ProtobufType   = "application/x-protobuf"
	SnappyEncoding = "snappy"
)

// parameter is one known parameter with its decoded value.
type parameter struct{ name, value string }

// Request is all that was understood of a client's request, and all that the
// upstream server gets to see of it, apart from headers.
type Request struct {
	Endpoint *Endpoint
	Method   string
	// Timeout is the client's own; 0 for none.
	Timeout time.Duration
	// When is what time it reads, and Limit how many results it asks for: 0 for
	// all, -1 if it does not say. Of endpoints that take neither, nothing.
	When  Evaluation
	Limit int

	label string // of label/:name/values
	// params holds known parameters in the order in which net/http's FormValue
	// and Form put them: body first, then URL. A scalar occurs at most once.
	params []parameter
	// startTimestamps is the header of that name, true or false; empty for none.
	startTimestamps string
	// remote is the body of a remote read, and texts are its selectors.
	remote *remoteread.Request
	texts  []string
}

// Evaluation is when a request wants to be evaluated, or what time it reads. A
// zero time is one that the request leaves out.
type Evaluation struct {
	Start, End     time.Time
	Given          bool // An instant, which may well be the zero time.
	Step, Lookback time.Duration
}

// Get returns the value of a scalar, or "".
func (q *Request) Get(name string) string {
	for _, p := range q.params {
		if p.name == name {
			return p.value
		}
	}
	return ""
}

// all returns the values of a list in order.
func (q *Request) all(name string) []string {
	var values []string
	for _, p := range q.params {
		if p.name == name {
			values = append(values, p.value)
		}
	}
	return values
}

// set gives a scalar a value, in place of the client's if there is one.
func (q *Request) set(name, value string) {
	for i := range q.params {
		if q.params[i].name == name {
			q.params[i].value = value
			return
		}
	}
	q.params = append(q.params, parameter{name, value})
}

// SetStart has the server read from a time on.
func (q *Request) SetStart(t time.Time) { q.set("start", formatTime(t)) }

// Cap lowers how long the server may take: the client's timeout to deadline, and how
// long it may evaluate to most. 0 means no bound.
func (q *Request) Cap(deadline, most time.Duration) {
	if q.Timeout > deadline && deadline > 0 {
		q.set("timeout", formatDuration(deadline))
	}
	if d, err := q.maxDuration(); err == nil && most > 0 && d > most {
		q.set(paramMaxDuration, formatDuration(most))
	}
}

// Label returns the label whose values are asked for, as Prometheus reads it.
func (q *Request) Label() string {
	if strings.HasPrefix(q.label, "U__") {
		return model.UnescapeName(q.label, model.ValueEncodingEscaping)
	}
	return q.label
}

// PromQL returns the queries or selectors of the request.
func (q *Request) PromQL() []string {
	if q.remote != nil {
		return q.texts
	}
	switch q.Endpoint.Takes {
	case querylimit.TakesExpr, querylimit.TakesBareExpr:
		return []string{q.Get("query")}
	case querylimit.TakesSelectors:
		return q.all("match[]")
	case querylimit.TakesSelector:
		if text := q.Get("match_target"); text != "" {
			return []string{text}
		}
	}
	return nil
}

// Malformed returns the error about PromQL that does not parse, as Prometheus words
// it at this endpoint.
func (q *Request) Malformed(err error) error {
	if !q.Endpoint.wrapsErrors {
		return err
	}
	name := "query"
	switch q.Endpoint.Takes {
	case querylimit.TakesSelectors:
		name = "match[]"
	case querylimit.TakesSelector:
		name = "match_target"
	}
	return invalid(name, err)
}

// IsRemoteRead reports whether the answer is one to a remote read, and no JSON.
func (q *Request) IsRemoteRead() bool { return q.remote != nil }

// Windows returns what the queries of a remote read read.
func (q *Request) Windows() []querylimit.Window {
	if q.remote == nil {
		return nil
	}
	return q.remote.Windows()
}

// lightResults is how many results a list may have for its request to be light.
const lightResults = 10_000

// Light reports whether a request cannot be what broke a server. PromQL never is:
// nobody knows how many series a selector has.
func (q *Request) Light() bool {
	switch e := q.Endpoint; {
	case e.Class == querylimit.ClassStatus:
		return true
	case e.Class != querylimit.ClassMetadata:
		return false
	case !e.Limited:
		return true // Of what is scraped, or of the text of a query alone.
	}
	if len(q.all("match[]")) > 0 {
		return false // The limit bounds the answer, not what a selector reads.
	}
	limit, err := strconv.Atoi(q.Get("limit"))
	return err == nil && limit > 0 && limit <= lightResults
}

// Write makes out this request: its path below the root of a server, and everything
// that the server reads of it but who asks. It returns what tells the request from
// others to the same path.
func (q *Request) Write(out *http.Request) (key string) {
	out.URL = &url.URL{Path: q.Endpoint.Path}
	if q.label != "" {
		out.URL.Path = labelPrefix + q.label + labelSuffix
		out.URL.RawPath = labelPrefix + url.PathEscape(q.label) + labelSuffix
	}
	if q.startTimestamps != "" {
		out.Header.Set(headerStartTimestamps, q.startTimestamps)
	}
	params := q.encode()
	switch {
	case q.remote != nil:
		return q.writeRead(out, params)
	case q.Method == http.MethodPost:
		out.Header.Set("Content-Type", FormType)
		setBody(out, params)
	default:
		out.URL.RawQuery = params
		out.ContentLength = 0
		out.Body, out.GetBody = Once{}, nil
	}
	return params
}

// encode writes the parameters as a query string or form.
func (q *Request) encode() string {
	n := 0
	for _, p := range q.params {
		n += len(p.name) + len(p.value) + 2
	}
	var b strings.Builder
	b.Grow(n + n/4)
	for i, p := range q.params {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(url.QueryEscape(p.name))
		b.WriteByte('=')
		b.WriteString(url.QueryEscape(p.value))
	}
	return b.String()
}

// writeRead gives out the body of a remote read.
func (q *Request) writeRead(out *http.Request, params string) (key string) {
	body := string(q.remote.Body())
	out.URL.RawQuery = params
	out.Header.Set("Content-Type", ProtobufType)
	out.Header.Set("Content-Encoding", SnappyEncoding)
	setBody(out, body)
	return body + "?" + params
}

// setBody gives out a body that can be sent again.
func setBody(out *http.Request, body string) {
	open := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
	out.ContentLength = int64(len(body))
	out.Body, _ = open() // It never fails.
	out.GetBody = open
}

// Once is an empty body that cannot be rewound. With it, the transport does not
// send a GET again when the server dies under it: a query that killed the server
// would kill it again as soon as it is back.
type Once struct{}

// Read implements io.Reader.
func (Once) Read([]byte) (int, error) { return 0, io.EOF }

// Close implements io.Closer.
func (Once) Close() error { return nil }

// Again returns the request that was written to req for another try, with its body.
func Again(req *http.Request) (*http.Request, error) {
	again := req.Clone(req.Context())
	if req.GetBody == nil {
		again.Body = Once{}
		return again, nil
	}
	body, err := req.GetBody()
	again.Body = body
	return again, err
}
