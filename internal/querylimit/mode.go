// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"fmt"
	"strings"
)

// Mode says what happens to a request that exceeds a limit.
type Mode uint8

const (
	// ModeOff does not look at the limit at all.
	ModeOff Mode = iota
	// ModeObserve lets the request through and counts it.
	ModeObserve
	// ModeWarn lets the request through, counts it, and tells the client by a
	// warning in the answer.
	ModeWarn
	// ModeEnforce refuses the request.
	ModeEnforce
)

var modeNames = [...]string{ModeOff: "off", ModeObserve: "observe", ModeWarn: "warn", ModeEnforce: "enforce"}

// Modes returns every mode, from the most lenient to the strictest.
func Modes() []Mode { return []Mode{ModeOff, ModeObserve, ModeWarn, ModeEnforce} }

// ParseMode returns the mode of that name. The error lists the names that exist.
func ParseMode(s string) (Mode, error) {
	for _, m := range Modes() {
		if modeNames[m] == s {
			return m, nil
		}
	}
	return ModeOff, fmt.Errorf("unknown mode %q: use one of %s", s, strings.Join(modeNames[:], ", "))
}

// MarshalText implements encoding.TextMarshaler.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// String returns the name that ParseMode understands.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}
