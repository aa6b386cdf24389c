// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/promguard/promguard/internal/proxy/canonical"
	"github.com/promguard/promguard/internal/proxy/jsonedit"
	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
)

// modifyResponse looks at the headers of an answer before they are passed on.
func (p *Proxy) modifyResponse(res *http.Response) error {
	switch res.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		// The client would follow it around promguard, with its credentials.
		return fmt.Errorf("%w to %q", errRedirect, canonical.Shorten(res.Header.Get("Location")))
	case upstream.StatusLoop:
		return errLoop
	}
	x := exchangeOf(res.Request.Context())
	if res.StatusCode/100 == 2 && res.ContentLength < 0 && res.ProtoMajor == 1 && !slices.Contains(res.TransferEncoding, "chunked") {
		return errNoEnd // It ends with the connection, so that a part looks whole.
	}
	if p.seesPartial(x) && res.StatusCode/100 == 2 && isPlain(res) && isJSON(res) {
		res.Body = jsonedit.New(res.Body, jsonedit.Options{Seen: func(warnings []string) { p.notePartial(x, warnings) }})
	}
	if err := p.limitSize(res, x); err != nil {
		return err
	}
	if len(x.warnings) > 0 {
		injectWarnings(res, x.warnings, p.metrics.lostWarnings.Inc)
	}
	return nil
}

// measuresPlain reports whether the answer must come uncompressed to be measured.
func (x *exchange) measuresPlain() bool {
	l, mode := x.verdict.Policy.Response(x.endpoint.Class)
	return mode == querylimit.ModeEnforce && l.Max > 0
}

// limitSize bounds the bytes of an answer, before they come.
func (p *Proxy) limitSize(res *http.Response, x *exchange) error {
	class := x.endpoint.Class
	l, mode := x.verdict.Policy.Response(class)
	if mode == querylimit.ModeOff {
		return nil
	}
	// What snappy compresses of a remote read is the answer itself.
	plain, enforce := isPlain(res) || x.request.IsRemoteRead() && isEncoded(res, canonical.SnappyEncoding), mode == querylimit.ModeEnforce
	if enforce && l.Max > 0 && !plain {
		if err := decode(res); err != nil {
			return err
		}
	}
	limit := l.WireMax
	if l.Max > 0 && (limit == 0 || l.Max < limit) {
		limit = l.Max // Compressed, it has even more.
	}
	refusal := x.verdict.Policy.RefuseResponse(class, limit)
	if enforce && res.ContentLength > limit {
		return refusal
	}
	x.bounded = &sizeLimiter{ReadCloser: res.Body, left: limit, exceeded: func() { p.exceed(x, refusal) }, observe: !enforce}
	res.Body = x.bounded
	return nil
}

// errTooLarge ends an answer that is longer than allowed.
var errTooLarge = errors.New("the answer is too long")

// sizeLimiter breaks an answer off that is longer than allowed, or only notices.
type sizeLimiter struct {
	io.ReadCloser

	left     int64
	exceeded func()
	observe  bool
}

// Read implements io.Reader.
func (l *sizeLimiter) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.left < 0 {
		return n, err
	}
	if l.left -= int64(n); l.left >= 0 {
		return n, err
	}
	l.exceeded()
	if l.observe {
		return n, err
	}
	return 0, errTooLarge
}

// broke reports whether the answer was broken off.
func (l *sizeLimiter) broke() bool { return l.left < 0 && !l.observe }

// injectWarnings makes the body of res carry warnings, which Grafana shows as
// notices, and calls lost once if it cannot.
func injectWarnings(res *http.Response, warnings []string, lost func()) {
	if res.StatusCode/100 != 2 || !isPlain(res) || !isJSON(res) {
		lost()
		return
	}
	res.Header.Del("Content-Length")
	res.ContentLength = -1
	res.Body = jsonedit.New(res.Body, jsonedit.Options{Warnings: warnings, Lost: lost})
}

// isPlain looks at all encodings: those of several lines add up.
func isPlain(res *http.Response) bool {
	return !slices.ContainsFunc(res.Header["Content-Encoding"], func(encoding string) bool {
		return encoding != "" && !strings.EqualFold(encoding, "identity")
	})
}

// isEncoded reports whether res has this encoding and no other.
func isEncoded(res *http.Response, encoding string) bool {
	all := res.Header["Content-Encoding"]
	return len(all) == 1 && strings.EqualFold(all[0], encoding)
}

func isJSON(res *http.Response) bool {
	return strings.HasPrefix(res.Header.Get("Content-Type"), "application/json")
}

// decode takes the compression off an answer, so that its bytes can be counted. A
// server does not compress what it was asked not to, but something in front of it
// may. The error is errEncoded, or what kept the body from being read.
func decode(res *http.Response) error {
	if !isEncoded(res, "gzip") {
		return errEncoded
	}
	switch plain, err := gzip.NewReader(res.Body); {
	case err == nil:
		res.Body = readCloser{plain, res.Body}
	case errors.Is(err, gzip.ErrHeader):
		return errEncoded
	case err != io.EOF: //nolint:errorlint // io.EOF itself: there is no body, and so nothing is compressed.
		return err
	}
	res.Header.Del("Content-Encoding")
	res.Header.Del("Content-Length")
	res.ContentLength = -1
	return nil
}
