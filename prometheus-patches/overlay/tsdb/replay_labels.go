// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package tsdb

import (
	"unsafe"

	"github.com/prometheus/prometheus/model/labels"
)

// verbatimLabels decodes the labels at the start of p, part of a record, and
// returns how many bytes they take; 0 means that another decoder has to do it. They
// are part of p, too.
//
// These labels are a string of lengths and bytes as in a record, where lengths
// are of one byte up to 127 and here up to 254: labels with shorter names and
// values are taken as they are.
func verbatimLabels(p []byte) (lset labels.Labels, n int) {
	if len(p) == 0 || p[0] > 127 {
		return lset, 0
	}
	n = 1
	for range 2 * int(p[0]) {
		if n >= len(p) || p[n] > 127 {
			return lset, 0
		}
		n += 1 + int(p[n])
	}
	if n > len(p) {
		return lset, 0
	}
	return labels.FromEncoded(unsafe.String(unsafe.SliceData(p[1:n]), n-1)), n
}
