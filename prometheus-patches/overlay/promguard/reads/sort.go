// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"slices"
)

// yieldEvery is how many elements are compared between two calls of Yield. Labels
// are compared in 100 to 400 ns.
const yieldEvery = 256

// SortFunc is slices.SortFunc for a read: it ends soon after the context does,
// with s in any order, and returns why. Without a read in the context it sorts to
// the end.
func SortFunc[T any](ctx context.Context, s []T, compare func(a, b T) int) error {
	if FromContext(ctx) == nil {
		slices.SortFunc(s, compare)
		return nil
	}
	var err error
	compared := 0
	slices.SortFunc(s, func(a, b T) int {
		compared++
		if err == nil && compared%yieldEvery == 0 {
			err = Yield(ctx)
		}
		if err != nil {
			return 0 // To the sort, equal elements are in order: it ends in one pass.
		}
		return compare(a, b)
	})
	return err
}
