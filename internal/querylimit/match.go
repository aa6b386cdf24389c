// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// matcher is the condition of a rule, ready to be asked.
type matcher struct {
	*Match

	query, agent pattern
}

func newMatcher(m *Match) matcher { return matcher{m, newPattern(m.Query), newPattern(m.UserAgent)} }

// matches compares what is cheap first.
func (m *matcher) matches(who *Subject, texts, fingerprints []string) bool {
	return isOne(m.Dashboards, who.Dashboard) && isOne(m.Panels, who.Panel) && isOne(m.Users, who.User) &&
		isOne(m.Tenants, who.Tenant) && isOne(m.Endpoints, who.Endpoint) && isOne(m.Classes, who.Class) &&
		(m.Alert == nil || *m.Alert == who.Alert) &&
		(len(m.Fingerprints) == 0 || slices.ContainsFunc(fingerprints, func(f string) bool { return slices.Contains(m.Fingerprints, f) })) &&
		(m.UserAgent == nil || m.agent.matches(who.UserAgent)) &&
		(m.Query == nil || slices.ContainsFunc(texts, m.query.matches))
}

// isOne reports whether v is in the list, which if it is empty asks for nothing.
func isOne[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }

// pattern is a regular expression that is run on no text which lacks the literal that
// everything it matches contains.
type pattern struct {
	re      *regexp.Regexp
	literal string
}

func newPattern(re *regexp.Regexp) pattern {
	if re == nil {
		return pattern{}
	}
	return pattern{re, requiredLiteral(re.String())}
}

func (p *pattern) matches(text string) bool {
	return strings.Contains(text, p.literal) && p.re.MatchString(text)
}

// requiredLiteral returns the longest text that everything matched by the
// regular expression contains, or "".
func requiredLiteral(text string) string {
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return ""
	}
	return longestLiteral(re.Simplify())
}

func longestLiteral(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return ""
		}
		return string(re.Rune)
	case syntax.OpCapture, syntax.OpPlus:
		return longestLiteral(re.Sub[0])
	case syntax.OpConcat:
		longest := ""
		for _, sub := range re.Sub {
			if l := longestLiteral(sub); len(l) > len(longest) {
				longest = l
			}
		}
		return longest
	}
	return ""
}
