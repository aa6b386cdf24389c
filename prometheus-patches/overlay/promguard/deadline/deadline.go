// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package deadline bounds the time that a read request may take.
//
// A request that is bounded carries a mark in its context, see Bounds. Code on
// the way of such a request that can run for long checks the context; all other
// code, rule evaluation among it, behaves as if this package did not exist.
package deadline

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Flag is the name of the flag that sets the deadline, for messages.
const Flag = "--guard.api-timeout"

// ExceededError is the cause of a context that ended at a request's deadline.
type ExceededError struct {
	Method, Endpoint string
	// Timeout is the deadline that applied.
	Timeout time.Duration
	// Source says where Timeout comes from.
	Source string
}

func (e *ExceededError) Error() string {
	return fmt.Sprintf("%s %s was stopped at its deadline of %s (%s): narrow the selectors or the time range, set limit=, or raise the deadline",
		e.Method, e.Endpoint, e.Timeout, e.Source)
}

// Is makes errors.Is(err, context.DeadlineExceeded) hold.
func (*ExceededError) Is(target error) bool { return target == context.DeadlineExceeded }

type boundKey struct{}

// Bind returns ctx with the deadline e.Timeout, whose cause is e, and with the
// mark of Bounds.
func Bind(ctx context.Context, e *ExceededError) (context.Context, context.CancelFunc) {
	ctx = context.WithValue(ctx, boundKey{}, true)
	return context.WithTimeoutCause(ctx, e.Timeout, e)
}

// Bounds says whether the context is that of a request with a deadline.
func Bounds(ctx context.Context) bool {
	bound, _ := ctx.Value(boundKey{}).(bool)
	return bound
}

// exceeded returns why the context's deadline passed, or nil if it did not.
func exceeded(ctx context.Context) *ExceededError {
	var e *ExceededError
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &e) {
		return e
	}
	return nil
}
