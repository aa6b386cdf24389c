// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// answer is Prometheus's envelope.
type answer[T any] struct {
	Status   string
	Error    string
	Warnings []string
	Data     *T // nil is not even an empty list
}

// envelope is an answer of any kind of data.
type envelope interface {
	// decode reads a text, of which nothing stays of an earlier one.
	decode(text []byte) error
	// said returns the status, and the server's own words of an error.
	said() (status, problem string)
}

func (a *answer[T]) decode(text []byte) error {
	*a = answer[T]{}
	return json.Unmarshal(text, a)
}

func (a *answer[T]) said() (status, problem string) {
	if a.Status == "success" && a.Data == nil {
		return "", ""
	}
	return a.Status, a.Error
}

// failure is an error of the server or of the way to it, and not of what was asked.
type failure struct {
	error

	// again is set if the same question may be answered after a wait.
	again bool
	wait  time.Duration
	// unreached is set if there is no answer at all.
	unreached bool
}

func (f *failure) Unwrap() error { return f.error }

// request makes one request.
func (c *Client) request(ctx context.Context, endpoint string, params url.Values, into envelope) error {
	timeout := max(min(c.budget.Timeout, time.Until(c.until)), time.Millisecond)
	limited, cancel := context.WithTimeout(ctx, timeout+grace)
	defer cancel()
	req, err := c.newRequest(limited, endpoint, params, timeout)
	if err != nil {
		return err
	}
	n, err := c.server.exchange(req, c.budget.Bytes-c.bytes, into)
	c.bytes += n
	switch failed, _ := errors.AsType[*failure](err); {
	case c.bytes > c.budget.Bytes:
		return c.tooLong()
	case failed == nil || !failed.unreached:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return &failure{error: fmt.Errorf("%s: no answer within %s (--query-timeout)", where(req), timeout+grace)}
	default: // A server that answered before may be restarting.
		failed.again, failed.wait = c.answered, time.Second
		return failed
	}
}

// newRequest tells the server how long a query may take. A query may be longer than
// a URL can be.
func (c *Client) newRequest(ctx context.Context, endpoint string, params url.Values, timeout time.Duration) (*http.Request, error) {
	if endpoint != queryEndpoint {
		return c.server.newRequest(ctx, http.MethodGet, endpoint, params)
	}
	params.Set("timeout", strconv.FormatFloat(timeout.Seconds(), 'f', -1, 64))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.server.target(endpoint).String(), strings.NewReader(params.Encode()))
	if err == nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return req, err
}

// judge decodes an answer, or says what it is instead of one.
func judge(where string, res *http.Response, text []byte, into envelope) error {
	err := into.decode(text)
	if other, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("a JSON %s is at byte %d where another value should be", other.Value, other.Offset)
	}
	status, problem := into.said()
	switch {
	case status == "success" && err == nil && res.StatusCode/100 == 2:
		return nil
	case status == "error" && strings.Contains(problem, "--"): // It names the way out itself.
		err = fmt.Errorf("%s: %s: %s", where, res.Status, problem)
	case status == "error":
		err = fmt.Errorf("%s: %s: %s%s", where, res.Status, problem, wayIn(res.StatusCode))
	default:
		err = fmt.Errorf("%s: %s%s", where, res.Status, insteadOf(res, text, err))
	}
	err = &StatusError{err, res.StatusCode}
	if wait, again := putOff(res, status == "error"); again || res.StatusCode >= http.StatusInternalServerError {
		return &failure{error: err, again: again, wait: wait}
	}
	return err
}

// putOff reports whether the server asks to come again, and when. One that gave up
// a query says so in its own words, and would give up again.
func putOff(res *http.Response, ownWords bool) (wait time.Duration, again bool) {
	after := res.Header.Get("Retry-After")
	switch res.StatusCode {
	case http.StatusTooManyRequests:
		again = true
	case http.StatusServiceUnavailable, http.StatusBadGateway:
		again = after != "" || !ownWords
	}
	wait = time.Second
	if seconds, err := strconv.Atoi(after); err == nil && seconds > 0 {
		wait = min(time.Duration(min(seconds, int(maxWait.Seconds())))*time.Second, maxWait)
	}
	return wait, again
}

// StatusError is the error of a server that answered.
type StatusError struct {
	error

	Code int
}

func (e *StatusError) Unwrap() error { return e.error }

// wayIn is what to do about a server that lets nobody in.
func wayIn(code int) string {
	if code == http.StatusUnauthorized || code == http.StatusForbidden {
		return " (credentials go into --prometheus.http-config.file)"
	}
	return ""
}

// insteadOf says what came instead of an answer of Prometheus's API, and what to do.
func insteadOf(res *http.Response, text []byte, err error) string {
	const root = "is the URL the root of the server, as in http://prometheus:9090 or http://mimir/prometheus?"
	start := strings.TrimSpace(string(text[:min(len(text), 200)]))
	switch way := wayIn(res.StatusCode); {
	case way != "":
		return way
	case res.StatusCode/100 == 3:
		return fmt.Sprintf(": it redirects to %q, which is not followed: give the URL that answers", res.Header.Get("Location"))
	case strings.HasPrefix(start, "<"):
		return ", and a web page is not an answer of Prometheus's API: " + root
	case res.StatusCode == http.StatusNotFound:
		return ", and no answer of Prometheus's API: " + root
	case strings.Contains(start, "HTTP request to an HTTPS server"):
		return ": it speaks TLS: use https://"
	case res.StatusCode/100 != 2 && start != "":
		first, _, _ := strings.Cut(start, "\n")
		return fmt.Sprintf(", and no answer of Prometheus's API: %q", first)
	case err != nil:
		return fmt.Sprintf(", and no answer of Prometheus's API: %s", err)
	}
	return ", and no answer of Prometheus's API"
}

func bytesText(n int64) string {
	if n >= 10<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}
