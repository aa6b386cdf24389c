// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"

	"github.com/prometheus/prometheus/promguard/reads"
)

// labelLimit returns the limit for a selection of label names or values: the
// hint, or one more than a limited request may have in its answer. The database
// cuts the sorted lists of its head and blocks there before it merges them, so that
// neither that nor what is held of the answer grows with what there is, and the
// answer begins as upstream's does.
func labelLimit(ctx context.Context, hint int) int {
	r := reads.FromContext(ctx)
	if r == nil || r.MaxResults == 0 || 0 < hint && hint <= r.MaxResults {
		return hint
	}
	return r.MaxResults + 1
}
