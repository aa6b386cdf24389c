// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"time"

	"github.com/prometheus/prometheus/storage"
)

var _ storage.ReadAccount = (*Read)(nil)

// Expect implements storage.ReadAccount.
func (r *Read) Expect(bytes int64) error {
	if r.budget == nil {
		return nil
	}
	return r.budget.mayExpect(r, r.expected.Add(bytes))
}

// Begin implements storage.ReadAccount. It does not wait where it is called, but ends
// the request with an error, so that it waits with nothing in its hands: no place, no
// postings, nothing open in the database. Then the request begins again.
func (r *Read) Begin(context.Context) error {
	if r.budget == nil || r.expected.Load() <= r.reserved.Load() {
		return nil
	}
	return r.budget.begin(r)
}

// Use implements storage.ReadAccount.
func (r *Read) Use(bytes int64) error {
	used := r.used.Add(bytes)
	if r.budget == nil || bytes <= 0 || used <= r.granted.Load() {
		return nil
	}
	return r.budget.grow(r, used)
}

// Yield implements storage.ReadAccount.
func (r *Read) Yield(ctx context.Context) error {
	if err := storage.ReadEnded(ctx); err != nil {
		return err
	}
	if r.budget != nil {
		r.budget.backstop.Load().glance(time.Now())
	}
	if err := r.stay(ctx); err != nil {
		return err
	}
	r.procs.take(ctx, &r.proc)
	return storage.ReadEnded(ctx)
}

// Selected implements storage.ReadAccount.
func (r *Read) Selected(series int64) { r.series.Add(series) }

// Bounds implements storage.ReadAccount.
func (r *Read) Bounds() storage.ReadBounds { return r.ReadBounds }

// Break implements storage.ReadAccount.
func (r *Read) Break(err error) { r.Stop(&Stop{ReasonBroken, err.Error()}) }
