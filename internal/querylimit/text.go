// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"regexp/syntax"
	"strings"

	"github.com/prometheus/prometheus/util/strutil"
)

// Hard ceilings of what is ever handed to the PromQL parser, whatever the mode
// of a limit. The time of a parse grows with the square of the nesting (64 KiB
// of minus signs before a name take seconds), a regular expression such as
// (x{1000}){9} compiles into millions of instructions, and both happen before
// anything else can be said about the query.
const (
	MaxQueryBytes     = 1 << 20
	MaxQueryOperators = 10_000
	MaxRegexSize      = 1_000_000
	// maxUnicodeClasses bounds classes such as \pL of a regular expression. Three
	// bytes of text are 5 KiB already when they are parsed to find out their size;
	// what has more of them counts as larger than MaxRegexSize.
	maxUnicodeClasses = 500
)

// CheckText looks at the PromQL expressions or selectors of one request before
// they are parsed. Bytes are counted for each text, operators and the size of
// regular expressions over all of them.
func (p *Policy) CheckText(texts ...string) Refusals {
	_, rs := p.scan(texts...)
	return rs
}

// scan measures texts unless one of them is too long for that.
func (p *Policy) scan(texts ...string) (scan, Refusals) {
	var s scan
	longest := 0
	for _, t := range texts {
		longest = max(longest, len(t))
	}
	if rs := p.checkCount(nil, &counts[countQueryBytes], longest); rs.Err() != nil {
		return s, rs // Scanning would cost what the limit is there to save.
	}
	for _, t := range texts {
		s.add(t)
	}
	return s, p.checkScanned(longest, s)
}

func (p *Policy) checkScanned(longest int, s scan) Refusals {
	rs := p.checkCount(nil, &counts[countQueryBytes], longest)
	rs = p.checkCount(rs, &counts[countQueryOperators], s.operators)
	return p.checkCount(rs, &counts[countRegexSize], s.regexSize)
}

// scan measures PromQL text without parsing it, in one pass. It may count more
// than the parser would build, never less. Outside braces every string is taken
// for a regular expression, because label_replace compiles its last argument.
type scan struct {
	operators int
	regexSize int
}

func (s *scan) add(text string) {
	inBraces, afterTilde := false, false
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '"' || c == '\'' || c == '`':
			end := stringEnd(text, i)
			if afterTilde || !inBraces {
				s.addRegex(text[i:end])
				if s.regexSize > MaxRegexSize {
					return // It is refused in any case, and what follows may cost as much.
				}
			}
			i, afterTilde = end, false
			continue
		case c == '#':
			i = lineEnd(text, i)
			continue
		case c == '{' || c == '}':
			inBraces = c == '{'
		case isWord(c):
			end := wordEnd(text, i)
			if !inBraces && isWordOperator(text[i:end]) {
				s.operators++
			}
			i, afterTilde = end, false
			continue
		case !inBraces && strings.IndexByte("+-*/%^@=<>![(", c) >= 0:
			s.operators++
		}
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			afterTilde = c == '~'
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
func (s *scan) addRegex(quoted string) {
	text, err := strutil.Unquote(quoted)
	if err != nil {
		s.regexSize += len(quoted)
		return
	}
	s.regexSize += regexSize(text)
}

// unicodeClasses counts at least the classes of Unicode in a regular expression.
func unicodeClasses(text string) int {
	return strings.Count(text, `\p`) + strings.Count(text, `\P`)
}

// regexSize estimates into how many instructions the regular expression compiles.
// It is parsed as matchers and label_replace anchor it: "a{9})(b{9}" is no regular
// expression, but label_replace makes it one. What does not parse fails before it
// is compiled.
func regexSize(text string) int {
	switch classes := unicodeClasses(text); {
	case classes > maxUnicodeClasses:
		return MaxRegexSize + 1
	case classes == 0 && strings.IndexByte(text, '{') < 0:
		return len(text) // Size follows length.
	}
	re, err := syntax.Parse("^(?s:"+text+")$", syntax.Perl)
	if err != nil {
		return len(text)
	}
	return instructions(re)
}

// runesPerInstruction is how many runes of a class take the memory of one
// instruction.
const runesPerInstruction = 8

func instructions(re *syntax.Regexp) int {
	n := 1
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass:
		n += len(re.Rune) / runesPerInstruction
	}
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return n
}
