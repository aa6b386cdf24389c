// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"math"
	"strconv"
)

// Notes returns, by rule, what is odd about it though no expression breaks.
func (c *Checker) Notes() map[string]string {
	notes := map[string]string{}
	for _, r := range c.rules {
		if r.le == nil {
			continue
		}
		for _, b := range wholeBounds() {
			short := strconv.FormatFloat(b, 'g', -1, 64)
			long := short + ".0"
			if in := r.le.Contains(short); in != r.le.Contains(long) {
				if !in {
					short, long = long, short
				}
				notes[r.ID] = fmt.Sprintf("it drops le=%q but not le=%q: Prometheus 2 writes a bound the one way, Prometheus 3 the other", short, long)
				break
			}
		}
	}
	return notes
}

// wholeBounds are whole numbers that bounds of histograms have. From a million on
// both versions write them with an exponent.
func wholeBounds() []float64 {
	var out []float64
	for i := range 1000 {
		out = append(out, float64(i), float64(i)*1000, math.Ldexp(1, i%20))
	}
	return out
}
