// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"regexp/syntax"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promguard/promguard/internal/promqltext"
)

// regexCost estimates what the regular expressions of matchers cost the server
// for each value of their labels, in instructions. It runs them over all values
// that the label has anywhere, whatever the other matchers leave of the series:
// an equality on the metric name does not help.
func regexCost(ms []*labels.Matcher) int {
	n := 0
	for _, m := range ms {
		n += matcherCost(m)
	}
	return n
}

// matcherCost follows labels.FastRegexMatcher.
func matcherCost(m *labels.Matcher) int {
	switch {
	case m.Type != labels.MatchRegexp && m.Type != labels.MatchNotRegexp:
		return 0
	case m.Value == "" || m.Value == ".*" || m.Value == ".+":
		return 0 // Prometheus knows these without looking at values.
	case len(m.SetMatches()) > 0:
		return 0 // It looks the values up.
	case m.IsRegexOptimized() && comparesStrings(m.Value):
		return 1
	default:
		return promqltext.InstructionsOf(m.Value)
	}
}

// minLiteral is how long a literal text must be, in bytes, to rule most values of
// a label out. A hyphen is in every name of a pod.
const minLiteral = 4

// comparesStrings reports whether Prometheus decides most values of a label without
// running a regular expression that it optimizes: because it never runs it, or
// because it first looks for a literal text that few of them have.
func comparesStrings(pattern string) bool {
	re, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
	if err != nil {
		return false
	}
	re = uncaptured(re)
	if re.Op != syntax.OpConcat {
		return true // It takes literals of concatenations only.
	}
	parts := unanchored(re.Sub)
	longest := 0
	for i, part := range parts {
		part = uncaptured(part)
		switch n := len(string(part.Rune)); {
		case part.Op != syntax.OpLiteral:
		case part.Flags&syntax.FoldCase == 0:
			longest = max(longest, n)
		case i == 0:
			return n >= minLiteral // It looks at nothing else before it runs it.
		}
	}
	if longest == 0 || longest >= minLiteral {
		return true
	}
	// Of an alternation it takes no literals, and it optimizes none of which it must
	// run a part.
	rest := syntax.Regexp{Op: syntax.OpConcat, Sub: parts}
	m, err := labels.NewFastRegexMatcher("(?:" + rest.String() + ")|\x00\x00")
	return err == nil && m.IsOptimized()
}

func uncaptured(re *syntax.Regexp) *syntax.Regexp {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	return re
}

// unanchored leaves anchors out: every regular expression of a matcher has them.
func unanchored(parts []*syntax.Regexp) []*syntax.Regexp {
	if len(parts) > 0 && parts[0].Op == syntax.OpBeginText {
		parts = parts[1:]
	}
	if n := len(parts); n > 0 && parts[n-1].Op == syntax.OpEndText {
		parts = parts[:n-1]
	}
	return parts
}
