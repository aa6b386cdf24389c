// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package compression

// maxKept is the largest buffer in bytes that is kept for the next record. To make a
// larger one anew takes a hundredth of the time in which it is filled.
const maxKept = 1 << 20

// kept returns the buffer if it is to be kept, and nil otherwise: the largest record
// ever, such as that of all series of a large target, says nothing of the next.
func kept(buf []byte) []byte {
	if cap(buf) > maxKept {
		return nil
	}
	return buf
}
