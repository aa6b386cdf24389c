// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
)

// maxMultipartMemory is what net/http's FormValue takes.
const maxMultipartMemory = 32 << 20

// parse reads what is looked at before the request has its turn: the form, or the
// message of a remote read. It returns the regular expressions that are not part of
// PromQL, and what else is found.
func parse(e *endpoint, r *http.Request) (s readScan, err error) {
	if err := parseForm(e, r); err != nil {
		return s, fmt.Errorf("error parsing form values: %w", err)
	}
	if e.remoteRead {
		return scanRead(r)
	}
	return readScan{regexes: r.Form["metric_name_pattern"]}, nil
}

// parseForm parses the form as the endpoint's handler would, and returns the
// error that most handlers keep to themselves.
func parseForm(e *endpoint, r *http.Request) error {
	if err := r.ParseForm(); err != nil || !e.multipart {
		return err
	}
	err := r.ParseMultipartForm(maxMultipartMemory)
	if errors.Is(err, http.ErrNotMultipart) {
		return nil
	}
	return err
}

// ownTimeout returns the request's own timeout= and its text, or 0 if there is
// none. The form is parsed already.
func ownTimeout(r *http.Request) (time.Duration, string, error) {
	text := r.Form.Get("timeout")
	if text == "" {
		return 0, "", nil
	}
	own, err := parseDuration(text)
	if err != nil {
		return 0, "", fmt.Errorf("invalid parameter \"timeout\": %w", err)
	}
	return own, text, nil
}

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
