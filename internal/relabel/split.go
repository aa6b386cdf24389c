// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"regexp/syntax"
	"slices"
)

// splitRegex takes a regex over n values joined by the separator apart into one
// regex per value. It returns nil if the regex is not n parts with the literal
// separator between them, or if a part's meaning depends on what is around it.
//
// Where it returns regexes and no value contains the separator, the regex
// matches the joined values exactly if every part matches its value: the
// joined string then has n-1 separators, the regex needs as many, and so none is
// left for a part to match.
func splitRegex(pattern string, n int) ([]string, error) {
	// The flags and the group are those of Prometheus's anchored regexes.
	re, err := syntax.Parse("(?s:"+pattern+")", syntax.Perl)
	if err != nil {
		return nil, err
	}
	if readsSurroundings(re) {
		return nil, nil
	}
	parts := splitConcat([][]*syntax.Regexp{nil}, re)
	if len(parts) != n {
		return nil, nil
	}
	patterns := make([]string, 0, n)
	for _, subs := range parts {
		part := syntax.Regexp{Op: syntax.OpEmptyMatch}
		if len(subs) > 0 {
			part = syntax.Regexp{Op: syntax.OpConcat, Sub: subs}
		}
		patterns = append(patterns, part.String())
	}
	return patterns, nil
}

// splitConcat appends re to the last part, opening a new part at every literal
// separator outside repetitions and alternatives.
func splitConcat(parts [][]*syntax.Regexp, re *syntax.Regexp) [][]*syntax.Regexp {
	switch re.Op {
	case syntax.OpEmptyMatch:
	case syntax.OpConcat, syntax.OpCapture:
		for _, sub := range re.Sub {
			parts = splitConcat(parts, sub)
		}
	case syntax.OpLiteral:
		parts = splitLiteral(parts, re)
	default:
		last := len(parts) - 1
		parts[last] = append(parts[last], re)
	}
	return parts
}

func splitLiteral(parts [][]*syntax.Regexp, re *syntax.Regexp) [][]*syntax.Regexp {
	runes := re.Rune
	for {
		end := slices.Index(runes, rune(separator[0]))
		text := runes
		if end >= 0 {
			text = runes[:end]
		}
		if len(text) > 0 {
			last := len(parts) - 1
			parts[last] = append(parts[last], &syntax.Regexp{Op: syntax.OpLiteral, Flags: re.Flags, Rune: text})
		}
		if end < 0 {
			return parts
		}
		parts = append(parts, nil)
		runes = runes[end+1:]
	}
}

// withoutSeparator reports whether nothing that matches the pattern contains the
// separator.
func withoutSeparator(pattern string) (bool, error) {
	re, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
	if err != nil {
		return false, err
	}
	return !mayContainSeparator(re), nil
}

func mayContainSeparator(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return true
	case syntax.OpLiteral:
		return slices.Contains(re.Rune, rune(separator[0]))
	case syntax.OpCharClass:
		for i := 0; i+1 < len(re.Rune); i += 2 {
			if re.Rune[i] <= rune(separator[0]) && rune(separator[0]) <= re.Rune[i+1] {
				return true
			}
		}
	}
	return slices.ContainsFunc(re.Sub, mayContainSeparator)
}

// readsSurroundings reports whether the regex has an assertion, such as \b or ^,
// whose answer depends on the text beside it.
func readsSurroundings(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	}
	return slices.ContainsFunc(re.Sub, readsSurroundings)
}
