// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"slices"
	"sync/atomic"
)

// ReadAccount is told by the code on a read's way what memory the read takes, and
// says when it must end. A context without one belongs to a read that nobody
// counts: a rule, a scrape, or any request of a server without limits.
//
// Its methods may be called by several goroutines at a time.
type ReadAccount interface {
	// Expect adds to what the read will need, in bytes, before it takes any. The
	// error says that it is more than any read may have.
	Expect(bytes int64) error
	// Begin waits until all that is expected is reserved, and returns the cause if
	// the context ends first. It is called before the first of what was expected is
	// taken. Later calls return at once.
	Begin(ctx context.Context) error
	// Use changes what the read holds, in bytes; a negative number gives back. It
	// never waits. The error stops the read.
	Use(bytes int64) error
	// Yield lets others have the processor, and returns the cause if the context has
	// ended. It is called about every 100 microseconds of work.
	Yield(ctx context.Context) error
	// Selected notes that so many more series were selected.
	Selected(series int64)
	// Bounds returns what the read may have.
	Bounds() ReadBounds
	// CheckResponse returns an error, and stops the read, if an answer of so many
	// bytes is too large. It is called before the answer's first byte.
	CheckResponse(bytes int64) error
	// Break stops a read whose answer has begun and cannot be completed.
	Break(err error)
}

// ReadBounds is what a read may have. 0 means no bound.
type ReadBounds struct {
	// SeriesBytes is what each series of a selection is reckoned to take, beside its
	// points; 0 if selections are not counted.
	SeriesBytes int64
	// ResponseBytes is the maximum size of an answer that is not streamed.
	ResponseBytes int64
}

// ListElementBytes is the memory of an element in a list of label names or values. Its
// text belongs to the index.
const ListElementBytes = 16

type readAccountKey struct{}

// countedRead is what the code on a read's way shares.
type countedRead struct {
	account    ReadAccount
	selections atomic.Int64
}

// WithReadAccount returns a context in which reads are told to the account.
func WithReadAccount(ctx context.Context, a ReadAccount) context.Context {
	return context.WithValue(ctx, readAccountKey{}, &countedRead{account: a})
}

// ReadAccountFrom returns the account of the context, or nil.
func ReadAccountFrom(ctx context.Context) ReadAccount {
	if r, ok := ctx.Value(readAccountKey{}).(*countedRead); ok {
		return r.account
	}
	return nil
}

// CountSelection counts a selection of a read that is counted, and returns the count,
// which grows. Selections may be merged: what is done with a series of one is done
// with those of all then.
func CountSelection(ctx context.Context) *atomic.Int64 {
	r := ctx.Value(readAccountKey{}).(*countedRead)
	r.selections.Add(1)
	return &r.selections
}

// ReadShape is what an evaluation makes of each series of a selection.
type ReadShape struct {
	// Points is how many are made of one; 0 if as many as the selection has.
	Points int64
	// Copies is how often they are held at a time.
	Copies int64
}

type readShapeKey struct{}

// WithReadShape returns the context for a selection of which the shape is known.
func WithReadShape(ctx context.Context, s ReadShape) context.Context {
	return context.WithValue(ctx, readShapeKey{}, s)
}

// ReadPointsFrom returns how many points are held of a series of a selection that has
// so many itself.
func ReadPointsFrom(ctx context.Context, selected int64) int64 {
	s, ok := ctx.Value(readShapeKey{}).(ReadShape)
	if !ok {
		return selected
	}
	if s.Points > 0 {
		selected = s.Points
	}
	return selected * s.Copies
}

// ReadEnded returns why the context has ended, or nil.
func ReadEnded(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// SortYieldEvery is how many elements are compared between two calls of Yield.
// Labels are compared in 100 to 400 ns.
const SortYieldEvery = 256

// SortRead is slices.SortFunc for a read that is counted: it ends soon after the
// context does, with s in any order, and returns why. Any other read is sorted to
// the end.
func SortRead[T any](ctx context.Context, s []T, compare func(a, b T) int) error {
	account := ReadAccountFrom(ctx)
	if account == nil {
		slices.SortFunc(s, compare)
		return nil
	}
	var err error
	compared := 0
	slices.SortFunc(s, func(a, b T) int {
		compared++
		if err == nil && compared%SortYieldEvery == 0 {
			err = account.Yield(ctx)
		}
		if err != nil {
			return 0 // To the sort, equal elements are in order: it ends in one pass.
		}
		return compare(a, b)
	})
	return err
}
