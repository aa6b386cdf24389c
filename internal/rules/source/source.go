// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package source finds the PromQL expressions that an installation evaluates: in
// Grafana dashboards, Prometheus rule files, configurations of autoscaling, and
// query logs. It knows the formats and nothing of drop rules.
//
// What cannot be read is a [Problem] with file and place, and does not keep the
// rest from being read.
package source

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Kind says what an expression is for.
type Kind string

// The kinds of expressions.
const (
	KindAlert      Kind = "alert"
	KindRecord     Kind = "recording rule"
	KindPanel      Kind = "panel"
	KindVariable   Kind = "variable"
	KindAnnotation Kind = "annotation"
	KindAutoscaler Kind = "autoscaler"
	KindQuery      Kind = "query"
)

// Expression is one thing that is asked of Prometheus. Exactly one of Queries
// and Listing is set.
type Expression struct {
	// File is the path as it was found, and Place where in it: a dashboard's
	// panel, a group's alert, a line.
	File, Place string
	Kind        Kind
	// Text is what stands in the file, variables included.
	Text string
	// Dashboard is the UID of the one that asks, if it has one.
	Dashboard string

	// Queries are the text parsed, more than one where a variable with known
	// values names a metric. A variable that can have any value is a [Marker].
	Queries []parser.Expr
	// Listing is set for what asks for the values of a label.
	Listing *Listing

	// Record is the name that a recording rule gives its result, Alert that of a
	// Prometheus alert, and Labels are the labels that they add.
	Record, Alert string
	Labels        map[string]string
}

// Listing asks for the values of a label of the series that a selector selects.
type Listing struct {
	// Matchers may be empty: every series.
	Matchers []*labels.Matcher
	// Label is empty if label names or whole series are asked for.
	Label string
}

// Problem is something that could not be checked.
type Problem struct {
	File, Place string
	Err         error
}

func (p Problem) Error() string {
	if p.Place == "" {
		return fmt.Sprintf("%s: %s", p.File, p.Err)
	}
	return fmt.Sprintf("%s: %s: %s", p.File, p.Place, p.Err)
}

// Found is what was read from files.
type Found struct {
	Expressions []Expression
	Problems    []Problem
	// Logged is what query logs say of themselves.
	Logged Period
}

// Add adds what was found elsewhere.
func (f *Found) Add(other Found) {
	f.Logged.merge(other.Logged)
	f.Expressions = append(f.Expressions, other.Expressions...)
	f.Problems = append(f.Problems, other.Problems...)
}

func (f *Found) problem(file, place string, err error) {
	f.Problems = append(f.Problems, Problem{File: file, Place: place, Err: err})
}

// Marker stands for variable number i in an expression: in a matcher's value, a
// metric's or a label's name.
func Marker(i int) string { return fmt.Sprintf("promguardvar%dz", i) }

var markerPattern = regexp.MustCompile(`promguardvar[0-9]+z`)

// HasMarker reports whether a variable of any value is part of s.
func HasMarker(s string) bool {
	return strings.Contains(s, "promguardvar") && markerPattern.MatchString(s)
}

// SplitMarkers returns the text between the markers in s.
func SplitMarkers(s string) []string { return markerPattern.Split(s, -1) }

// UnknownNumber stands for a number that a variable gives. It is one that nobody
// writes down, and works as 1 where the expression is evaluated.
const UnknownNumber = 1 + 0x1p-52

// Evaluable returns the text of an expression without the matchers that variables fill,
// which asks for all that they may select. It is false where a variable names a metric, or
// is all that a selector has.
func Evaluable(e parser.Expr) (text string, ok bool) {
	// A copy: others read the expression, too.
	e, err := NewParser().ParseExpr(e.String())
	if err != nil {
		return "", false
	}
	ok = true
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		vs, is := n.(*parser.VectorSelector)
		if !is {
			return nil
		}
		vs.LabelMatchers = slices.DeleteFunc(vs.LabelMatchers, func(m *labels.Matcher) bool {
			ok = ok && (m.Name != model.MetricNameLabel || !HasMarker(m.Value))
			return HasMarker(m.Name) || HasMarker(m.Value)
		})
		return nil
	})
	if text = e.String(); ok {
		_, err = NewParser().ParseExpr(text)
	}
	return text, ok && err == nil
}

// NewParser accepts what any server of Prometheus 3 may be configured to.
func NewParser() parser.Parser {
	return parser.NewParser(parser.Options{
		EnableExperimentalFunctions: true,
		EnableUnquotedUTF8Names:     true,
		EnableBinopFillModifiers:    true,
	})
}

// maxExpression is beyond what people write, in bytes. The parser needs much
// memory for some texts of that size already.
const maxExpression = 64 << 10

// Parse parses PromQL that somebody wrote, without variables. The error has the parser's
// first complaint only.
func Parse(text string) (parser.Expr, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("the expression is longer than %d bytes", maxExpression)
	}
	if tooDeep(text) {
		return nil, fmt.Errorf("the expression is nested more than %d deep", maxDepth)
	}
	expr, err := NewParser().ParseExpr(text)
	if err != nil {
		return nil, firstParseError(err)
	}
	return expr, nil
}

// Bare returns what is in parentheses, and in what says that it is evaluated once.
func Bare(expr parser.Expr) parser.Expr {
	for {
		switch e := expr.(type) {
		case *parser.ParenExpr:
			expr = e.Expr
		case *parser.StepInvariantExpr:
			expr = e.Expr
		default:
			return expr
		}
	}
}

// maxDepth is beyond what people write. What the parser needs for parentheses and
// signs grows with the square of their number.
const maxDepth = 200

// tooDeep reports whether there are more parentheses open at once, or more signs
// one after the other, than maxDepth. Signs in a string count for none.
func tooDeep(text string) bool {
	depth, signs := 0, 0
	var quote byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0 && c == '\\' && quote != '`':
			i++
			continue
		case quote != 0:
			if c == quote {
				quote = 0
			}
			continue
		}
		switch c {
		case '"', '\'', '`':
			quote = c
		case '(':
			depth++
		case ')':
			depth--
		}
		switch c {
		case '+', '-':
			signs++
		case ' ', '\t', '\n', '\r':
		default:
			signs = 0
		}
		if max(depth, signs) > maxDepth {
			return true
		}
	}
	return false
}

func firstParseError(err error) error {
	//nolint:errorlint // The parser returns the type itself.
	if all, ok := err.(parser.ParseErrors); ok && len(all) > 0 {
		return fmt.Errorf("the expression does not parse: %w", &all[0])
	}
	return fmt.Errorf("the expression does not parse: %w", err)
}

// quotedName returns a name for a message, with something for the nameless.
func quotedName(kind, name, otherwise string) string {
	if name == "" {
		return kind + " " + cmp.Or(otherwise, "without a name")
	}
	return fmt.Sprintf("%s %q", kind, name)
}
