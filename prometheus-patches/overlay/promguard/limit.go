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
	auto  bool
	n     int64 // 0: off, unless auto.
	bytes bool
}

// Set implements kingpin.Value.
func (l *limit) Set(s string) error {
	switch s {
	case "auto", "off", "0":
		l.auto, l.n = s == "auto", 0
		return nil
	}
	n, err := l.parse(s)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is neither auto, off, nor %s of at least 1", s, l.what())
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
	if l.bytes {
		return "a size such as 512MB"
	}
	return "a number"
}

// String implements kingpin.Value.
func (l *limit) String() string {
	switch {
	case l.auto:
		return "auto"
	case l.n == 0:
		return "off"
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
