// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build slicelabels || dedupelabels

package tsdb

import "github.com/prometheus/prometheus/model/labels"

// verbatimLabels leaves it to another decoder: these labels are not encoded as
// in a record.
func verbatimLabels([]byte) (labels.Labels, int) { return labels.EmptyLabels(), 0 }
