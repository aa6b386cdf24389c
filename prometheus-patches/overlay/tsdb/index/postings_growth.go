// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package index

import "slices"

// withRoom is how many elements a list of n has room for when it was just copied: a
// quarter more. Most lists of a head grow at the same time, so lists that double would
// be half empty at the same time, too.
func withRoom(n int) int { return n + n/4 + 1 }

// roomy returns a copy that has room, and all that is allocated for it.
func roomy[T any](a []T) []T {
	return append(slices.Grow([]T(nil), withRoom(len(a))), a...)
}

// trimmed returns a list, copied if it has more room than that.
func trimmed[T any](a []T) []T {
	if cap(a) > withRoom(len(a)) {
		return slices.Clone(a)
	}
	return a
}
