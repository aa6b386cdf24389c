// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promqltext

import (
	"regexp/syntax"
	"strings"
)

// maxUnicodeClasses bounds classes such as \pL of a regular expression. Three
// bytes of text are 5 KiB already when they are parsed to find out their size;
// what has more of them counts as larger than MaxRegexSize.
const maxUnicodeClasses = 500

// unicodeClasses counts at least the classes of Unicode in a regular expression.
func unicodeClasses(text string) int {
	return strings.Count(text, `\p`) + strings.Count(text, `\P`)
}

// InstructionsOf estimates into how many instructions the regular expression compiles.
// It is parsed as matchers and label_replace anchor it: "a{9})(b{9}" is no regular
// expression, but label_replace makes it one. What does not parse fails before it
// is compiled.
func InstructionsOf(text string) int {
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
