// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package promapi reads the HTTP API of a live Prometheus, or of what speaks it,
// within a budget, so that the server does not suffer: one request at a time, and
// after each as long a pause as it took. It is not for what has to watch a server.
package promapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Budget bounds what is asked of a server. All of it must be above 0. The flags in
// parentheses are those that errors name.
type Budget struct {
	// Requests is how many are made, repeated ones included (--max-queries).
	Requests int
	// Total is how long the server is asked, pauses included (--max-time), and
	// Timeout how long one request may take (--query-timeout).
	Total, Timeout time.Duration
	// Series is how many one query reads, as far as that is known beforehand, and
	// how many rows it returns (--max-series).
	Series int
	// Bytes is how long all answers together may be (--max-bytes).
	Bytes int64
}

// Validate returns what is wrong with the budget.
func (b Budget) Validate() error {
	if b.Requests < 1 || b.Total <= 0 || b.Timeout <= 0 || b.Series < 1 || b.Bytes < 1 {
		return errors.New("--max-queries, --max-time, --query-timeout, --max-series and --max-bytes must be above 0")
	}
	return nil
}

// ErrBudget says that no more may be asked of the server.
var ErrBudget = errors.New("the budget is used up")

const (
	// maxFailures is after how many questions in a row that the server could not
	// answer no more are asked.
	maxFailures = 3
	// maxAttempts is how often a question is asked that the server puts off.
	maxAttempts = 3
	// maxWarnings bounds how many different ones are kept.
	maxWarnings = 5
	// maxWait bounds for how long a server may put off a question.
	maxWait = 30 * time.Second
	// grace is how much longer than told a server may take, so that it can say
	// itself that time is up.
	grace = 5 * time.Second
)

// Client asks one server. It is not safe for concurrent use.
type Client struct {
	server *Server
	budget Budget
	// Asked, if it is set, is called with the number of requests before each.
	Asked func(requests int)

	requests int
	failures int // in a row
	bytes    int64
	warnings []string
	answered bool
	at       time.Time // what is now for the server; zero: now
	until    time.Time // the end of Budget.Total
	next     time.Time // the end of the pause
}

// New returns a client of the API at a URL, as NewServer does.
func New(text string, transport http.RoundTripper, b Budget) (*Client, error) {
	server, err := NewServer(text, transport)
	if err != nil {
		return nil, err
	}
	if err := b.Validate(); err != nil {
		return nil, err
	}
	return &Client{server: server, budget: b}, nil
}

// As has queries be evaluated as of a time: that at which the data end of a server that
// scrapes nothing.
func (c *Client) As(at time.Time) { c.at = at }

// String is the URL without a password.
func (c *Client) String() string { return c.server.String() }

// Budget returns what the client was made with.
func (c *Client) Budget() Budget { return c.budget }

// Requests returns how many were made.
func (c *Client) Requests() int { return c.requests }

// Warnings returns the first different ones of what the server warned of, which may
// be that its answers lack something.
func (c *Client) Warnings() []string { return c.warnings }

// Close closes the connections.
func (c *Client) Close() { c.server.Close() }

// get asks an endpoint of the API. truncated says that the server left something
// out.
func get[T any](ctx context.Context, c *Client, endpoint string, params url.Values) (data T, truncated bool, err error) {
	var a answer[T]
	if err := c.ask(ctx, endpoint, params, &a); err != nil {
		return data, false, err
	}
	for _, w := range a.Warnings {
		switch {
		case strings.Contains(w, "truncated"):
			truncated = true
		case len(c.warnings) < maxWarnings && !slices.Contains(c.warnings, w):
			c.warnings = append(c.warnings, w)
		}
	}
	return *a.Data, truncated, nil
}

// ask asks until there is an answer, or an error that would come again.
func (c *Client) ask(ctx context.Context, endpoint string, params url.Values, into envelope) (err error) {
	for attempt := 1; ; attempt++ {
		if refused := c.admit(ctx); refused != nil {
			return cmp.Or(err, refused)
		}
		began := time.Now()
		err = c.request(ctx, endpoint, params, into)
		ended := time.Now()
		c.next = ended.Add(ended.Sub(began))
		failed, ok := errors.AsType[*failure](err)
		switch {
		case !ok:
			c.failures, c.answered = 0, true
			return err
		case !failed.again || attempt == maxAttempts || ctx.Err() != nil:
			c.failures++
			return err
		}
		if wait := ended.Add(failed.wait); wait.After(c.next) {
			c.next = wait
		}
	}
}

// admit takes a request from the budget, and waits for the end of the pause.
func (c *Client) admit(ctx context.Context) error {
	now := time.Now()
	if c.until.IsZero() {
		c.until = now.Add(c.budget.Total)
	}
	switch {
	case c.requests >= c.budget.Requests:
		return fmt.Errorf("%w: %d requests have been made (--max-queries)", ErrBudget, c.requests)
	case c.bytes > c.budget.Bytes:
		return c.tooLong()
	case c.failures >= maxFailures:
		return fmt.Errorf("%w: the server did not answer %d times in a row", ErrBudget, c.failures)
	case !now.Before(c.until) || !c.next.Before(c.until):
		return fmt.Errorf("%w: %s have passed (--max-time)", ErrBudget, c.budget.Total)
	}
	pause := time.NewTimer(c.next.Sub(now))
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-pause.C:
	}
	c.requests++
	if c.Asked != nil {
		c.Asked(c.requests)
	}
	return nil
}

func (c *Client) tooLong() error {
	return fmt.Errorf("%w: the answers are longer than %s together (--max-bytes)", ErrBudget, bytesText(c.budget.Bytes))
}
