// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"fmt"
	"strconv"

	"github.com/alecthomas/units"
)

// limit is the value of a flag that bounds something: auto, off, or a number
// with or without a unit.
type limit struct {
	hasAuto bool
	auto    bool
	n       int64 // 0: off, unless auto.
	bytes   bool
	// least is the smallest number that makes sense, if that is not 1, and why.
	least    int64
	leastWhy string
}

// Set implements kingpin.Value.
func (l *limit) Set(s string) error {
	switch s {
	case off, "0":
		l.auto, l.n = false, 0
		return nil
	case "auto":
		if l.hasAuto {
			l.auto, l.n = true, 0
			return nil
		}
	}
	n, err := l.parse(s)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is neither %s of at least 1", s, l.what())
	}
	if n < l.least {
		return fmt.Errorf("%q is less than %s: %s", s, (&limit{n: l.least, bytes: l.bytes}).String(), l.leastWhy)
	}
	l.auto, l.n = false, n
	return nil
}

func (l *limit) parse(s string) (int64, error) {
	if !l.bytes {
		return strconv.ParseInt(s, 10, 32)
	}
	n, err := units.ParseBase2Bytes(s)
	if err != nil {
		return strconv.ParseInt(s, 10, 64)
	}
	return int64(n), nil
}

func (l *limit) what() string {
	what := "off nor a number"
	if l.bytes {
		what = "off nor a size such as 512MB"
	}
	if l.hasAuto {
		what = "auto, " + what
	}
	return what
}

// String implements kingpin.Value.
func (l *limit) String() string {
	switch {
	case l.auto:
		return "auto"
	case l.n == 0:
		return off
	case l.bytes:
		return units.Base2Bytes(l.n).String()
	default:
		return strconv.FormatInt(l.n, 10)
	}
}

// or returns the limit, or what auto stands for. 0 means off.
func (l *limit) or(auto int64) int64 {
	if l.auto {
		return auto
	}
	return l.n
}
