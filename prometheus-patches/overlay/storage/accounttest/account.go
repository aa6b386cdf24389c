// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package accounttest has an account of a read for tests.
package accounttest

import (
	"context"
	"errors"
	"sync"

	"github.com/prometheus/prometheus/storage"
)

// ErrRefused is the error of an account that refuses.
var ErrRefused = errors.New("the account refuses")

// Account keeps what it is told. It may be used by several goroutines; its fields
// are read when they are done.
type Account struct {
	// Limits is what Bounds returns.
	Limits storage.ReadBounds
	// MaxExpected and MaxUsed are the bytes beyond which Expect and Use refuse. 0
	// means that they do not.
	MaxExpected, MaxUsed int64
	// OnYield is called by Yield, if it is set.
	OnYield func()

	mtx                  sync.Mutex
	Series               int64
	Expected, Used, Peak int64
	Begun, Yields        int
	Response             int64
	BrokenBy             error
	ExpectedBegun        int64 // What was expected when the first series was read.
	cancel               context.CancelCauseFunc
}

// New returns an account of the bounds and its context, which ends with the cause
// when the account refuses.
func New(ctx context.Context, limits storage.ReadBounds) (*Account, context.Context) {
	a := &Account{Limits: limits}
	ctx, a.cancel = context.WithCancelCause(ctx)
	return a, storage.WithReadAccount(ctx, a)
}

// Stop ends the context.
func (a *Account) Stop(cause error) { a.cancel(cause) }

// Expect implements storage.ReadAccount.
func (a *Account) Expect(bytes int64) error {
	a.mtx.Lock()
	defer a.mtx.Unlock()
	a.Expected += bytes
	return a.refuse(a.MaxExpected, a.Expected)
}

// Begin implements storage.ReadAccount.
func (a *Account) Begin(ctx context.Context) error {
	a.mtx.Lock()
	defer a.mtx.Unlock()
	a.Begun++
	if a.Begun == 1 {
		a.ExpectedBegun = a.Expected
	}
	return storage.ReadEnded(ctx)
}

// Use implements storage.ReadAccount.
func (a *Account) Use(bytes int64) error {
	a.mtx.Lock()
	defer a.mtx.Unlock()
	a.Used += bytes
	a.Peak = max(a.Peak, a.Used)
	return a.refuse(a.MaxUsed, a.Used)
}

// Yield implements storage.ReadAccount.
func (a *Account) Yield(ctx context.Context) error {
	a.mtx.Lock()
	a.Yields++
	a.mtx.Unlock()
	if a.OnYield != nil {
		a.OnYield()
	}
	return storage.ReadEnded(ctx)
}

// Selected implements storage.ReadAccount.
func (a *Account) Selected(series int64) {
	a.mtx.Lock()
	defer a.mtx.Unlock()
	a.Series += series
}

// Bounds implements storage.ReadAccount.
func (a *Account) Bounds() storage.ReadBounds { return a.Limits }

// CheckResponse implements storage.ReadAccount.
func (a *Account) CheckResponse(bytes int64) error {
	a.mtx.Lock()
	defer a.mtx.Unlock()
	a.Response = bytes
	return a.refuse(a.Limits.ResponseBytes, bytes)
}

// Break implements storage.ReadAccount.
func (a *Account) Break(err error) {
	a.BrokenBy = err
	a.cancel(err)
}

func (a *Account) refuse(most, n int64) error {
	if most == 0 || n <= most {
		return nil
	}
	a.cancel(ErrRefused)
	return ErrRefused
}
