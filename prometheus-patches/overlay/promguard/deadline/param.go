// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package deadline

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
)

// maxForm is the size of a form's body in bytes from which net/http refuses it.
const maxForm = 10 << 20

// shorten applies the request's own timeout= to the deadline, which it can only
// bring forward.
func shorten(e *ExceededError, r *http.Request) error {
	text := timeoutParam(r)
	if text == "" {
		return nil
	}
	own, err := parseDuration(text)
	if err != nil {
		return fmt.Errorf("invalid parameter \"timeout\": %w", err)
	}
	if own < e.Timeout {
		e.Source = fmt.Sprintf("timeout=%s of the request; at most %s", text, e.Source)
		e.Timeout = own
	}
	return nil
}

// timeoutParam returns what the handlers' r.FormValue("timeout") will return.
// It leaves the body as it found it, because net/http reports a malformed form
// only to whoever parses it first, and that must stay the handler.
func timeoutParam(r *http.Request) string {
	if r.Method == http.MethodPost && isForm(r) && r.Body != nil {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxForm+1))
		rest := io.Reader(r.Body)
		if err != nil {
			rest = errorReader{err}
		}
		r.Body = readCloser{io.MultiReader(bytes.NewReader(body), rest), r.Body}
		if form, _ := url.ParseQuery(string(body)); form.Has("timeout") {
			return form.Get("timeout")
		}
	}
	return r.URL.Query().Get("timeout")
}

func isForm(r *http.Request) bool {
	mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return mediaType == "application/x-www-form-urlencoded"
}

type readCloser struct {
	io.Reader
	io.Closer
}

// errorReader gives the handler the error that reading its body gave.
type errorReader struct{ err error }

func (e errorReader) Read([]byte) (int, error) { return 0, e.err }

// parseDuration reads a positive duration in the forms of the query API: a
// number of seconds, or a Prometheus duration such as 1m30s.
func parseDuration(s string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(s, 64); err == nil {
		d := seconds * float64(time.Second)
		if !(d > 0 && d < math.MaxInt64) {
			return 0, fmt.Errorf("%q is out of range: it must be positive", s)
		}
		return time.Duration(d), nil
	}
	d, err := model.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("cannot parse %q to a valid duration", s)
	}
	if d <= 0 {
		return 0, fmt.Errorf("%q is out of range: it must be positive", s)
	}
	return time.Duration(d), nil
}
