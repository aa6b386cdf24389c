// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"

	"github.com/prometheus/prometheus/storage"
)

var _ storage.ReadAccount = (*Read)(nil)

// Expect implements storage.ReadAccount.
func (r *Read) Expect(bytes int64) error {
	if r.budget == nil {
		return nil
	}
	if r.expected.Add(bytes) > r.budget.room(r) {
		return r.tooLarge()
	}
	return nil
}

// Begin implements storage.ReadAccount.
func (r *Read) Begin(ctx context.Context) error {
	return r.Reserve(ctx, r.expected.Swap(0))
}

// Use implements storage.ReadAccount.
func (r *Read) Use(bytes int64) error {
	if used := r.used.Add(bytes); r.budget != nil {
		return r.budget.use(r, used)
	}
	return nil
}

// Yield implements storage.ReadAccount.
func (r *Read) Yield(ctx context.Context) error {
	if ctx.Err() == nil {
		r.turns.take(ctx, r)
	}
	return storage.ReadEnded(ctx)
}

// Selected implements storage.ReadAccount.
func (r *Read) Selected(series int64) { r.series.Add(series) }

// Bounds implements storage.ReadAccount.
func (r *Read) Bounds() storage.ReadBounds { return r.ReadBounds }

// Truncate implements storage.ReadAccount.
func (r *Read) Truncate() { r.cut.Store(true) }

// Break implements storage.ReadAccount.
func (r *Read) Break(err error) { r.Stop(&Stop{ReasonBroken, err.Error()}) }
