// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package automaton decides whether some string satisfies several regular
// expressions and literals at once, positively or negatively: the question
// whether a label matcher and a relabel rule can meet in one series.
//
// The regexes are those of Prometheus, anchored at both ends, "." matching a
// newline too. They are run as automata over the programs of regexp/syntax, so
// assertions such as \b and case folding mean what they mean there. The answer
// is exact, or [ErrTooLarge]; it is never a guess.
//
// The package is not a regex engine: to match one string, use regexp.
package automaton

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// ErrTooLarge says that the automata have more states than are searched.
var ErrTooLarge = errors.New("the regular expressions are too large to compare")

// Set is a set of strings. It never changes: any number of goroutines may use it.
type Set struct {
	// text is the literal, or the regex.
	text    string
	literal bool
	negated bool
	// re and prog are nil for a literal.
	re   *regexp.Regexp
	prog *syntax.Prog
}

// Literal returns the set of the one string.
func Literal(s string) *Set {
	return &Set{text: s, literal: true}
}

// Regexp returns the set of the strings that match the pattern from start to
// end. The error is that of a pattern that does not compile.
func Regexp(pattern string) (*Set, error) {
	// Alone first: wrapped as text, "a)|(b" would compile.
	parsed, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
	if err != nil {
		return nil, err
	}
	re, err := regexp.Compile("^(?s:" + pattern + ")$")
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	return &Set{text: pattern, re: re, prog: prog}, nil
}

// Not returns the strings that are not in the set.
func (s *Set) Not() *Set {
	c := *s
	c.negated = !c.negated
	return &c
}

// Contains reports whether the string is in the set.
func (s *Set) Contains(text string) bool {
	if s.literal {
		return (s.text == text) != s.negated
	}
	return s.re.MatchString(text) != s.negated
}

// Witness returns a string that is in all of the sets, of those one of the
// shortest. ok is false if there is none. The error is ErrTooLarge.
func Witness(sets ...*Set) (text string, ok bool, err error) {
	for _, s := range sets {
		if s.literal && !s.negated {
			// The only candidate.
			return s.text, !slices.ContainsFunc(sets, func(o *Set) bool { return !o.Contains(s.text) }), nil
		}
	}
	texts, ok, err := newSearch(newAlphabet(sets), [][]*Set{sets}).run()
	return strings.Join(texts, ""), ok, err
}

// WitnessJoined returns one string per element of values, such that each is in
// all the sets of its element and all of them, joined by the separator, are in
// the set joined. ok is false if there are none. The error is ErrTooLarge.
func WitnessJoined(joined *Set, separator rune, values [][]*Set) (texts []string, ok bool, err error) {
	a := newAlphabet(append(slices.Concat(values...), joined), separator)
	s := newSearch(a, values)
	s.add(joined, whole)
	s.separator = slices.Index(a, separator)
	return s.run()
}
