// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"
)

// off is the value of every flag that is switched off.
const off = "off"

// namedValue is a value whose errors name the flag.
type namedValue struct {
	kingpin.Value
	flag string
}

// Set implements kingpin.Value.
func (v namedValue) Set(s string) error {
	if err := v.Value.Set(s); err != nil {
		return fmt.Errorf("--%s: %w", v.flag, err)
	}
	return nil
}

// period is the value of a flag that is a duration; 0 if it is off.
type period struct{ model.Duration }

// Set implements kingpin.Value.
func (p *period) Set(s string) error {
	if s == off {
		p.Duration = 0
		return nil
	}
	d, err := model.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is neither off nor a duration such as 30s", s)
	}
	p.Duration = d
	return nil
}

// String implements kingpin.Value.
func (p *period) String() string {
	if p.Duration == 0 {
		return off
	}
	return p.Duration.String()
}

// choice is the value of a flag that is one of some words. The last of them is
// what off means.
type choice struct {
	words []string
	word  string
}

// Set implements kingpin.Value.
func (c *choice) Set(s string) error {
	if s == off {
		s = c.words[len(c.words)-1]
	}
	if !slices.Contains(c.words, s) {
		return fmt.Errorf("%q is neither off nor %s", s, strings.Join(c.words, " nor "))
	}
	c.word = s
	return nil
}

// String implements kingpin.Value.
func (c *choice) String() string { return c.word }
