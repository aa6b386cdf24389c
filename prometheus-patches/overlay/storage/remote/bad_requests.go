// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"errors"
	"fmt"
)

// maxBadRequestBytes is how much a sender is told of what is wrong with its request.
const maxBadRequestBytes = 1 << 20

// badRequests are what is wrong with the samples of a request: the first of them, and how
// many more.
type badRequests struct {
	errs  []error
	bytes int
	more  int
}

// add adds an error, or returns false if there are enough to tell.
func (b *badRequests) add(format string, args ...any) bool {
	if b.bytes > maxBadRequestBytes {
		b.more++
		return false
	}
	err := fmt.Errorf(format, args...)
	b.bytes += len(err.Error())
	b.errs = append(b.errs, err)
	return true
}

func (b *badRequests) join() error {
	if b.more > 0 {
		b.errs = append(b.errs, fmt.Errorf("and %d more", b.more))
	}
	return errors.Join(b.errs...)
}
