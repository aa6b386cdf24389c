// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package limit puts a process under a real limit of memory: a memory cgroup,
// whose limit the kernel enforces.
package limit

import (
	"fmt"
	"strconv"
	"strings"
)

// Spec is a limit as it was asked for: a multiple of the memory at rest, a
// number of bytes, or, if both are 0, none.
type Spec struct {
	Factor float64
	Bytes  int64
}

var units = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}}

// ParseSpec parses "off", a factor greater than 1 such as "2.5", or a size such
// as "4GiB".
func ParseSpec(s string) (Spec, error) {
	if s == "off" {
		return Spec{}, nil
	}
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(number, 64)
		if err != nil || !(v*float64(u.bytes) >= 1 && v*float64(u.bytes) < 1<<62) {
			return Spec{}, fmt.Errorf("%q is not a size such as 4GiB", s)
		}
		return Spec{Bytes: int64(v * float64(u.bytes))}, nil
	}
	v, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil:
		return Spec{}, fmt.Errorf("%q must be off, a factor such as 2.5, a size such as 4GiB or 512MiB", s)
	case !(v > 1 && v <= 1000):
		return Spec{}, fmt.Errorf("the factor must be greater than 1 and at most 1000, got %s", s)
	}
	return Spec{Factor: v}, nil
}

// Of is the limit in bytes for a server that takes rest bytes at rest; 0 is
// none.
func (s Spec) Of(rest int64) int64 {
	if s.Factor > 0 {
		return int64(s.Factor * float64(rest))
	}
	return s.Bytes
}
