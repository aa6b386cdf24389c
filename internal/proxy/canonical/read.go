// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package canonical

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/promguard/promguard/internal/proxy/intake"
	"github.com/promguard/promguard/internal/proxy/remoteread"
	"github.com/promguard/promguard/internal/querylimit"
)

// ErrMedia is that of a body which comes in a form that is not understood.
var ErrMedia = errors.New("unsupported media type")

// mediaError is an ErrMedia with a text of its own.
type mediaError struct{ error }

func (mediaError) Is(target error) bool { return target == ErrMedia }

var (
	errOldHTTP   = Advise("Use HTTP/1.1 or later", "over HTTP/1.0, an answer of this endpoint that is cut off looks whole")
	errSemicolon = Advise("Use & between parameters", "a semicolon separates none")
)

// Read returns what r asks of an endpoint, and reads its whole body. The error is that
// of a malformed request, in Prometheus's words where it has some: an ErrMedia; an
// intake.ErrFull; or a *querylimit.Refusal if there is too much of it.
func Read(r *http.Request, e *Endpoint, label string, policy *querylimit.Policy) (*Request, error) {
	q := &Request{Endpoint: e, Method: r.Method, label: label}
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
	if text := q.Get("timeout"); text != "" {
		if q.Timeout, err = parseTimeout(text); err != nil {
			return nil, invalid("timeout", err)
		}
	}
	return q, q.readOptions(r.Header)
}

// readBody reads the body of a request. That of a remote read is no form.
func (q *Request) readBody(r *http.Request, policy *querylimit.Policy) (form string, err error) {
	if q.Endpoint.Class == querylimit.ClassBulk && !r.ProtoAtLeast(1, 1) {
		return "", errOldHTTP
	}
	if !q.Endpoint.isRemoteRead() {
		return readForm(r, policy)
	}
	ct, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if enc := r.Header.Get("Content-Encoding"); err != nil || ct != ProtobufType || enc != SnappyEncoding {
		return "", mediaError{Advise("Use %s with %s", "content type %q with encoding %q is not supported",
			ProtobufType, SnappyEncoding, r.Header.Get("Content-Type"), enc)}
	}
	limit := policy.RequestBytesMax()
	body, err := readUpTo(r, limit, policy)
	if err != nil {
		return "", err
	}
	q.remote, err = remoteread.Decode(body, limit)
	switch {
	case errors.Is(err, remoteread.ErrTooLong):
		return "", policy.RefuseRequestBytes()
	case err != nil:
		return "", err
	}
	q.texts = q.remote.Selectors()
	return "", nil
}

// readForm returns the body of a POST.
func readForm(r *http.Request, policy *querylimit.Policy) (string, error) {
	if r.ContentLength == 0 {
		return "", nil
	}
	if r.Method != http.MethodPost {
		// Prometheus ignores it, and until it is read the departure of the
		// client goes unnoticed.
		return "", Advise("Put the parameters into the URL, or use POST", "a %s request must not have a body", r.Method)
	}
	// Of two headers, somebody else might believe the other.
	if enc := strings.Join(r.Header["Content-Encoding"], ", "); enc != "" && enc != "identity" {
		return "", mediaError{Advise("Send the form as it is", "content encoding %q of the request is not supported", Shorten(enc))}
	}
	types := strings.Join(r.Header["Content-Type"], ", ")
	if ct, _, err := mime.ParseMediaType(types); err != nil || ct != FormType {
		return "", mediaError{Advise("Use %s", "content type %q is not supported", FormType, Shorten(types))}
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
		return nil, Advise("Try again in some seconds", "%w", intake.ErrFull)
	case err != nil:
		return nil, fmt.Errorf("reading the body: %w", err)
	case len(body) > limit:
		return nil, policy.RefuseRequestBytes()
	}
	return body, nil
}

// parse adds the known parameters of a query string or form. It decodes as
// net/url does, and refuses where net/http would drop a part or pick one of two.
func (q *Request) parse(text string, count *int, policy *querylimit.Policy) error {
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
			return errSemicolon
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			return fmt.Errorf("parameters: %w", err)
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return fmt.Errorf("parameter %q: %w", name, err)
		}
		if err := q.add(name, value); err != nil {
			return err
		}
	}
	return nil
}

func (q *Request) add(name, value string) error {
	switch {
	case q.Endpoint.isList(name):
	case q.Endpoint.isScalar(name):
		for _, p := range q.params {
			if p.name == name {
				return Advise("Give the parameter %q once", "it is there more than once, in the URL or in the body", name)
			}
		}
	default:
		return nil // Nothing that the server would read.
	}
	q.params = append(q.params, parameter{name, value})
	return nil
}

// Advise puts what to do in front of why: Grafana shows two lines of an error. What
// Prometheus would say of a request itself stands in its words.
func Advise(do, why string, args ...any) error { return fmt.Errorf(do+": "+why, args...) }

// Shorten keeps a client from writing its own novel into an error.
func Shorten(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
