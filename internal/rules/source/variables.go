// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// variable is a dashboard's variable.
type variable struct {
	name string
	// values are all the values it can have, or nil if it can have any.
	values []string
	// number says that it is a number, which a reader may change.
	number bool
}

// reference is Grafana's own grammar of a variable in a text: $name,
// [[name:format]], ${name.field:format}.
var reference = regexp.MustCompile(`^(?:\$(\w+)|\[\[(\w+)(?::\w+)?\]\]|\$\{(\w+)(?:\.[^:^}]+)?(?::[^}]+)?\})`)

// Values of Grafana's own variables. How long a range is makes no difference to
// which series are read.
var builtins = map[string]string{
	"__interval":      "5m",
	"__rate_interval": "5m",
	"__range":         "5m",
	"__auto":          "5m",
	"interval":        "5m",
	"__interval_ms":   "300000",
	"__range_ms":      "300000",
	"__range_s":       "300",
	"__from":          "1700000000000",
	"__to":            "1700000300000",
}

const (
	// maxVariants bounds how many texts an expression is tried as.
	maxVariants = 64
	// maxSegments bounds the places in an expression where variables stand, and
	// maxReference the length of a reference to one, in bytes.
	maxSegments  = 1000
	maxReference = 256
)

// errTooManyValues is the error of an expression of which only a part could be
// checked.
var errTooManyValues = fmt.Errorf("its variables have more than %d combinations of values", maxVariants)

// parseTemplate parses an expression that contains variables. It returns an
// expression for every combination of the values that are known, and where a
// variable that is not known may be a number or the name of a metric, one for
// each.
func parseTemplate(text string, vars []variable) ([]parser.Expr, error) {
	if len(text) > maxExpression {
		return nil, errors.New("the expression is too long")
	}
	scan := scanner{text: text, vars: vars}
	segments := scan.scan()
	if len(segments) > maxSegments {
		return nil, fmt.Errorf("the expression has variables in more than %d places", maxSegments/2)
	}
	var found []parser.Expr
	var failed error
	known := func(s segment) bool { return s.all }
	complete := choose(segments, known, func(chosen choice) bool {
		exprs, err := guess(segments, chosen)
		if err != nil {
			failed = scan.readable(err)
			return false
		}
		found = append(found, exprs...)
		return true
	})
	switch {
	case failed != nil:
		return nil, failed
	case !complete:
		return nil, errTooManyValues
	}
	return found, nil
}

// guess parses the expression with the known values that were chosen.
func guess(segments []segment, known choice) ([]parser.Expr, error) {
	var (
		first error
		found parser.Expr
		taken choice
	)
	choose(segments, func(s segment) bool { return !s.all }, func(chosen choice) bool {
		maps.Copy(chosen, known)
		expr, err := Parse(chosen.text(segments, nil))
		if err == nil {
			found, taken = expr, chosen
		} else if first == nil {
			first = err
		}
		return err != nil
	})
	if found == nil {
		return nil, first
	}
	return append([]parser.Expr{found}, namesForNumbers(segments, taken)...), nil
}

// namesForNumbers returns the expression with names of metrics where a number was
// guessed, for one variable after the other and for all, as far as that parses.
func namesForNumbers(segments []segment, taken choice) []parser.Expr {
	var names []string
	for _, s := range segments {
		if s.marker != "" && taken[s.tie()] == 0 && !slices.Contains(names, s.variable) {
			names = append(names, s.variable)
		}
	}
	var out []parser.Expr
	add := func(as ...string) {
		if expr, err := Parse(taken.text(segments, as)); err == nil {
			out = append(out, expr)
		}
	}
	for _, name := range names {
		add(name)
	}
	if len(names) > 1 {
		add(names...)
	}
	return out
}

// choice has the number of what was chosen, by what ties segments together.
type choice map[tie]int

// tie is equal for segments that have the same value. A variable that has other
// choices elsewhere is chosen there by itself.
type tie struct {
	variable string
	choices  int
}

func (s segment) tie() tie { return tie{s.variable, len(s.choices)} }

// text returns the expression as chosen, with markers for the variables that are
// to be names.
func (c choice) text(segments []segment, names []string) string {
	var b strings.Builder
	for _, s := range segments {
		if s.marker != "" && slices.Contains(names, s.variable) {
			b.WriteString(s.marker)
			continue
		}
		b.WriteString(s.choices[c[s.tie()]])
	}
	return b.String()
}

// choose calls yield with every combination of the choices of the segments that
// are asked for, until it returns false. It returns false if there are more than
// maxVariants.
func choose(segments []segment, of func(segment) bool, yield func(choice) bool) bool {
	var ties []tie
	for _, s := range segments {
		if len(s.choices) > 1 && of(s) && !slices.Contains(ties, s.tie()) {
			ties = append(ties, s.tie())
		}
	}
	at := make([]int, len(ties))
	for range maxVariants {
		chosen := choice{}
		for i, t := range ties {
			chosen[t] = at[i]
		}
		if !yield(chosen) {
			return true
		}
		i := len(ties) - 1
		for ; i >= 0; i-- {
			at[i]++
			if at[i] < ties[i].choices {
				break
			}
			at[i] = 0
		}
		if i < 0 {
			return true
		}
	}
	return false
}
