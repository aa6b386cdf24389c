// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/prometheus/prometheus/model/labels"
)

// A family is a histogram or summary of one set of labels: the series of its buckets or
// quantiles, its sum and its count. They are told by name, as there are no types where
// samples are received; a counter that is called x_count is a family of one.
type family struct {
	key  uint64
	base string
	// suffix is "bucket", "sum", "count", "gsum", "gcount", or empty for a quantile.
	suffix string
}

// familyOf returns the family of a series, or false if it is none of one.
func familyOf(ls labels.Labels, buf []byte) (family, []byte, bool) {
	name := ls.Get(labels.MetricName)
	f := family{base: name}
	if i := strings.LastIndexByte(name, '_'); i > 0 {
		switch suffix := name[i+1:]; suffix {
		case "sum", "count", "gsum", "gcount":
			f.base, f.suffix = name[:i], suffix
		case "bucket":
			if ls.Has(labels.BucketLabel) {
				f.base, f.suffix = name[:i], suffix
			}
		}
	}
	if f.suffix == "" && !ls.Has(quantileLabel) {
		return family{}, buf, false
	}
	f.key, buf = ls.HashWithoutLabels(buf, labels.BucketLabel, quantileLabel)
	f.key ^= xxhash.Sum64String(f.base)
	return f, buf, true
}

const quantileLabel = "quantile"

// others calls f with the series by which a family is known, until it returns true.
// Each family has at least two of them, so that each is known by another one.
func (fam family) others(ls labels.Labels, f func(labels.Labels) bool) bool {
	b := labels.NewBuilder(ls).Del(labels.BucketLabel, quantileLabel)
	for _, suffix := range []string{"count", "sum", "gcount", "gsum"} {
		if suffix != fam.suffix && f(b.Set(labels.MetricName, fam.base+"_"+suffix).Labels()) {
			return true
		}
	}
	return fam.suffix != "bucket" && f(b.Set(labels.MetricName, fam.base+"_bucket").Set(labels.BucketLabel, "+Inf").Labels())
}
