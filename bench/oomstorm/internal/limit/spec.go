// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package limit puts a process under a real limit of memory: a memory cgroup,
// whose limit the kernel enforces.
package limit

import (
	"fmt"
	"strconv"

	"github.com/alecthomas/units"
)

// Spec is a limit as it was asked for: a multiple of the memory at rest, a
// number of bytes, or, if both are 0, none.
type Spec struct {
	Factor float64
	Bytes  int64
}

// UnmarshalText parses "off", a factor greater than 1 such as "2.5", or a size
// such as "4GiB".
func (s *Spec) UnmarshalText(text []byte) error {
	*s = Spec{}
	if string(text) == "off" {
		return nil
	}
	if v, err := strconv.ParseFloat(string(text), 64); err == nil {
		if !(v > 1 && v <= 1000) {
			return fmt.Errorf("a limit's factor must be greater than 1 and at most 1000, got %s", text)
		}
		s.Factor = v
		return nil
	}
	n, err := units.ParseBase2Bytes(string(text))
	if err != nil || n < 1 {
		return fmt.Errorf("a limit must be off, a factor such as 2.5, a size such as 4GiB or 512MiB, got %q", text)
	}
	s.Bytes = int64(n)
	return nil
}

// Of is the limit in bytes for a server that takes rest bytes at rest; 0 is
// none.
func (s Spec) Of(rest int64) int64 {
	if s.Factor > 0 {
		return int64(s.Factor * float64(rest))
	}
	return s.Bytes
}
