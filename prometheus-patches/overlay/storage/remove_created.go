// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storage

import "context"

type removeCreatedKey struct{}

// RemoveCreated returns a context for appenders whose rollback removes the series that they
// created.
func RemoveCreated(ctx context.Context) context.Context {
	return context.WithValue(ctx, removeCreatedKey{}, true)
}

// RemovesCreated reports whether the context is one of RemoveCreated.
func RemovesCreated(ctx context.Context) bool { return ctx.Value(removeCreatedKey{}) != nil }
