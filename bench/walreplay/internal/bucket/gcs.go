// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build gcs

package bucket

import (
	"context"

	"github.com/go-kit/log"
	"github.com/thanos-io/objstore"
	"github.com/thanos-io/objstore/providers/gcs"
)

// Google's client compiles for longer than all the rest of this program, and
// triples its size.
func openGCS(c []byte) (objstore.Bucket, error) {
	return gcs.NewBucket(context.Background(), log.NewNopLogger(), c, "walreplay", nil)
}
