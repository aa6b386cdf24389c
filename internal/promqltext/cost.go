// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package promqltext tells what a PromQL text costs to parse, without parsing it.
// It imports nothing but the standard library and Prometheus's public packages,
// because the same source is compiled into the patched Prometheus.
package promqltext

import (
	"fmt"
	"strings"

	"github.com/prometheus/prometheus/util/strutil"
)

// Limit is a limit on PromQL text, in the words of an error about it.
type Limit struct {
	// Ceiling is the most that may ever be handed to the PromQL parser. The time of
	// a parse grows with the square of the nesting (64 KiB of minus signs before a
	// name take seconds), a regular expression such as (x{1000}){9} compiles into
	// millions of instructions, and both happen before anything else can be said
	// about the query.
	Ceiling            int
	What, Unit, Remedy string
}

// The limits on what a Cost counts.
var (
	Bytes = Limit{
		MaxBytes, "a PromQL text of ", "bytes",
		"Replace long lists of values by a regular expression or by a label that groups them, or split the query.",
	}
	Operators = Limit{
		MaxOperators, "PromQL of ", "operators, calls and brackets",
		"Split the query, move a part of it into a recording rule, or replace chains of or by one regular expression.",
	}
	RegexSize = Limit{
		MaxRegexSize, "a set of regular expressions of about ", "instructions",
		"Avoid counted repetition such as x{1000}; use * or + or list the values.",
	}
)

// The ceilings of the limits.
const (
	MaxBytes     = 1 << 20
	MaxOperators = 10_000
	MaxRegexSize = 1_000_000
)

func (l *Limit) check(seen, most int) error {
	if seen <= most {
		return nil
	}
	return fmt.Errorf("%s: %s%d %s exceeds the %d allowed", strings.TrimSuffix(l.Remedy, "."), l.What, seen, l.Unit, most)
}

// Cost is what the PromQL texts of one request cost to parse. It may be more than
// the parser would build, never less.
type Cost struct {
	// Bytes is the length of the longest text.
	Bytes int
	// Operators counts operators, calls, parentheses and brackets of all texts.
	Operators int
	// RegexSize estimates into how many instructions the regular expressions of all
	// texts compile.
	RegexSize int
}

// Plus returns what the texts of both cost in one request.
func (c Cost) Plus(d Cost) Cost {
	return Cost{max(c.Bytes, d.Bytes), c.Operators + d.Operators, c.RegexSize + d.RegexSize}
}

// Check returns an error if the texts of one request cost more than most.
func Check(most Cost, texts ...string) error {
	for _, text := range texts {
		if err := Bytes.check(len(text), most.Bytes); err != nil {
			return err // Measuring would cost what the limit is there to save.
		}
	}
	var c Cost
	for _, text := range texts {
		c.Add(text)
	}
	if err := Operators.check(c.Operators, most.Operators); err != nil {
		return err
	}
	return RegexSize.check(c.RegexSize, most.RegexSize)
}

// Add measures one more text, in one pass. Outside braces every string is taken
// for a regular expression, because label_replace compiles its last argument.
func (c *Cost) Add(text string) {
	c.Bytes = max(c.Bytes, len(text))
	inBraces, afterTilde := false, false
	for i := 0; i < len(text); {
		b := text[i]
		switch {
		case b == '"' || b == '\'' || b == '`':
			end := stringEnd(text, i)
			if afterTilde || !inBraces {
				c.addRegex(text[i:end])
				if c.RegexSize > MaxRegexSize {
					return // It is refused in any case, and what follows may cost as much.
				}
			}
			i, afterTilde = end, false
			continue
		case b == '#':
			i = lineEnd(text, i)
			continue
		case b == '{' || b == '}':
			inBraces = b == '{'
		case isWord(b):
			end := wordEnd(text, i)
			if !inBraces && isWordOperator(text[i:end]) {
				c.Operators++
			}
			i, afterTilde = end, false
			continue
		case !inBraces && strings.IndexByte("+-*/%^@=<>![(", b) >= 0:
			c.Operators++
		}
		if b != ' ' && b != '\t' && b != '\n' && b != '\r' {
			afterTilde = b == '~'
		}
		i++
	}
}

// stringEnd returns the index behind the string literal that begins at i.
func stringEnd(text string, i int) int {
	quote := text[i]
	for j := i + 1; j < len(text); j++ {
		switch {
		case text[j] == quote:
			return j + 1
		case text[j] == '\\' && quote != '`':
			j++
		}
	}
	return len(text)
}

func lineEnd(text string, i int) int {
	if n := strings.IndexAny(text[i:], "\r\n"); n >= 0 {
		return i + n
	}
	return len(text)
}

func isWord(c byte) bool {
	return c == '_' || c == ':' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
}

func wordEnd(text string, i int) int {
	for i < len(text) && isWord(text[i]) {
		i++
	}
	return i
}

func isWordOperator(w string) bool {
	switch len(w) {
	case 2:
		return strings.EqualFold(w, "or")
	case 3:
		return strings.EqualFold(w, "and")
	case 5:
		return strings.EqualFold(w, "atan2")
	case 6:
		return strings.EqualFold(w, "unless")
	}
	return false
}

// addRegex adds a string literal. One that is none is left to the PromQL parser to
// complain about: it fails before anything is compiled.
func (c *Cost) addRegex(quoted string) {
	text, err := strutil.Unquote(quoted)
	if err != nil {
		c.RegexSize += len(quoted)
		return
	}
	c.RegexSize += InstructionsOf(text)
}
