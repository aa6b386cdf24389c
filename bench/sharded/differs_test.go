// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
)

// tolerance is how much of a value the order in which it was summed may change.
const tolerance = 1e-9

// differs says how an answer differs from that of a server that knows all, or "".
func differs(got, want *reply) string {
	if got.Status != want.Status {
		return fmt.Sprintf("%s (%s) in place of %s (%s)", got.Status, got.Error, want.Status, want.Error)
	}
	if want.Status != "success" {
		return ""
	}
	g, err := got.points()
	if err != nil {
		return err.Error()
	}
	w, err := want.points()
	if err != nil {
		return "of the server that knows all: " + err.Error()
	}
	for at, v := range w {
		o, ok := g[at]
		if !ok {
			return at + " is missing"
		}
		if o != v && !(math.IsNaN(o) && math.IsNaN(v)) && (math.IsInf(o, 0) || math.IsInf(v, 0) || math.Abs(o-v) > tolerance*math.Max(math.Abs(o), math.Abs(v))) {
			return fmt.Sprintf("%s is %v in place of %v", at, o, v)
		}
	}
	for at := range g {
		if _, ok := w[at]; !ok {
			return at + " should not be there"
		}
	}
	return ""
}
