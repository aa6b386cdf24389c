// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/proxy/intake"
	"github.com/promguard/promguard/internal/proxy/remoteread"
	"github.com/promguard/promguard/internal/querylimit"
)

const formType = "application/x-www-form-urlencoded"

// parameter is one known parameter with its decoded value.
type parameter struct{ name, value string }

// request is all that the guard understood of a client's request, and all that
// the upstream server gets to see of it, apart from headers.
type request struct {
	endpoint *endpoint
	method   string
	label    string // of label/:name/values
	// params holds known parameters in the order in which net/http's FormValue
	// and Form put them: body first, then URL. A scalar occurs at most once.
	params []parameter
	// timeout is the client's own; 0 for none.
	timeout time.Duration
	// when is what time it reads, and limit how many results it asks for: 0 for
	// all, -1 if it does not say. Of endpoints that take neither, nothing.
	when  evaluation
	limit int
	// startTimestamps is the header of that name, true or false; empty for none.
	startTimestamps string
	// remote is the body of a remote read, and texts are its selectors.
	remote *remoteread.Request
	texts  []string
}

// get returns the value of a scalar, or "".
func (q *request) get(name string) string {
	for _, p := range q.params {
		if p.name == name {
			return p.value
		}
	}
	return ""
}

// all returns the values of a list in order.
func (q *request) all(name string) []string {
	var values []string
	for _, p := range q.params {
		if p.name == name {
			values = append(values, p.value)
		}
	}
	return values
}

// set gives a scalar a value, in place of the client's if there is one.
func (q *request) set(name, value string) {
	for i := range q.params {
		if q.params[i].name == name {
			q.params[i].value = value
			return
		}
	}
	q.params = append(q.params, parameter{name, value})
}

// listed returns the label whose values are asked for, as Prometheus reads it.
func (q *request) listed() string {
	if strings.HasPrefix(q.label, "U__") {
		return model.UnescapeName(q.label, model.ValueEncodingEscaping)
	}
	return q.label
}

// path returns the escaped and the decoded path below the API's root.
func (q *request) path() (decoded, escaped string) {
	if q.label == "" {
		return q.endpoint.path, ""
	}
	return labelPrefix + q.label + labelSuffix, labelPrefix + url.PathEscape(q.label) + labelSuffix
}

// encode writes the parameters as a query string or form.
func (q *request) encode() string {
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

// rewriteParams puts the parameters where the method wants them, and returns them.
func (q *request) rewriteParams(out *http.Request) string {
	params := q.encode()
	if q.method == http.MethodPost {
		out.Header.Set("Content-Type", formType)
		setBody(out, params)
	} else {
		out.URL.RawQuery = params
		out.ContentLength = 0
		out.Body, out.GetBody = once{}, nil
	}
	return params
}

// setBody gives out a body that can be sent again.
func setBody(out *http.Request, body string) {
	open := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
	out.ContentLength = int64(len(body))
	out.Body, _ = open() // It never fails.
	out.GetBody = open
}

// readRequest turns r into a request, or says in the words of an API error why
// it does not. It reads the whole body.
func readRequest(r *http.Request, e *endpoint, label string, policy *querylimit.Policy) (*request, error) {
	q := &request{endpoint: e, method: r.Method, label: label}
	if r.Method == http.MethodOptions {
		return q, nil // Prometheus reads no parameters, nor shall the server get any.
	}
	if len(r.URL.RawQuery) > policy.RequestBytesMax() {
		return nil, policy.RefuseRequestBytes()
	}
	form, err := q.readBody(r, policy)
	if err != nil {
		return nil, err
	}
	count := 0
	for _, part := range [...]string{form, r.URL.RawQuery} {
		if err := q.parse(part, &count, policy); err != nil {
			return nil, err
		}
	}
	if err := q.readTimes(); err != nil {
		return nil, err
	}
	if text := q.get("timeout"); text != "" {
		if q.timeout, err = parseTimeout(text); err != nil {
			return nil, badData(fmt.Errorf("invalid parameter %q: %w", "timeout", err))
		}
	}
	return q, q.readOptions(r.Header)
}

// readForm returns the body of a POST.
func readForm(r *http.Request, policy *querylimit.Policy) (string, error) {
	if r.ContentLength == 0 {
		return "", nil
	}
	if r.Method != http.MethodPost {
		// Prometheus ignores it, and until it is read the departure of the
		// client goes unnoticed.
		return "", badData(advise("Put the parameters into the URL, or use POST", "a %s request must not have a body", r.Method))
	}
	// Of two headers, somebody else might believe the other.
	if enc := strings.Join(r.Header["Content-Encoding"], ", "); enc != "" && enc != "identity" {
		return "", unsupportedMedia(advise("Send the form as it is", "content encoding %q of the request is not supported", shorten(enc)))
	}
	types := strings.Join(r.Header["Content-Type"], ", ")
	if ct, _, err := mime.ParseMediaType(types); err != nil || ct != formType {
		return "", unsupportedMedia(advise("Use %s", "content type %q is not supported", formType, shorten(types)))
	}
	body, err := readUpTo(r, policy.RequestBytesMax()-len(r.URL.RawQuery), policy)
	return string(body), err
}

// readUpTo returns the whole body, or an error if it has more bytes than limit.
func readUpTo(r *http.Request, limit int, policy *querylimit.Policy) ([]byte, error) {
	if r.ContentLength > int64(limit) {
		return nil, policy.RefuseRequestBytes()
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(limit)+1))
	switch {
	case errors.Is(err, intake.ErrFull):
		return nil, &apiError{http.StatusServiceUnavailable, typeUnavailable, reasonSaturated, advise("Try again in some seconds", "%w", intake.ErrFull)}
	case err != nil:
		return nil, badData(fmt.Errorf("reading the body: %w", err))
	case len(body) > limit:
		return nil, policy.RefuseRequestBytes()
	}
	return body, nil
}

var errSemicolon = advise("Use & between parameters", "a semicolon separates none")

// parse adds the known parameters of a query string or form. It decodes as
// net/url does, and refuses where net/http would drop a part or pick one of two.
func (q *request) parse(text string, count *int, policy *querylimit.Policy) error {
	for text != "" {
		var pair string
		pair, text, _ = strings.Cut(text, "&")
		if pair == "" {
			continue
		}
		*count++
		if *count > policy.ParametersMax() {
			return policy.RefuseParameters()
		}
		if strings.Contains(pair, ";") {
			return badData(errSemicolon)
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			return badData(fmt.Errorf("parameters: %w", err))
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return badData(fmt.Errorf("parameter %q: %w", name, err))
		}
		if err := q.add(name, value); err != nil {
			return err
		}
	}
	return nil
}

func (q *request) add(name, value string) error {
	switch {
	case q.endpoint.isList(name):
	case q.endpoint.isScalar(name):
		for _, p := range q.params {
			if p.name == name {
				return badData(advise("Give the parameter %q once", "it is there more than once, in the URL or in the body", name))
			}
		}
	default:
		return nil // Nothing that the server would read.
	}
	q.params = append(q.params, parameter{name, value})
	return nil
}

// parseTimeout reads a duration as Prometheus's API does, and refuses what would
// be over before it begins.
func parseTimeout(s string) (time.Duration, error) {
	timeout, err := parseDuration(s)
	if err == nil && timeout <= 0 {
		err = fmt.Errorf("timeout must be positive, got %s", timeout)
	}
	return timeout, err
}
