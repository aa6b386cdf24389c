// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// patternSet finds out which of many regular expressions match a text. Most are
// ruled out without being run: each is filed under four bytes that every text it
// matches contains. Safe for concurrent use.
type patternSet struct {
	patterns []pattern
	byGram   map[gram][]int32 // indexes of patterns
	always   []int32          // those without such bytes
	known    *textCache[[]int32]
}

type pattern struct {
	re      *regexp.Regexp
	literal string // contained in every text that re matches
	id      int32  // what matches returns
}

type gram [4]byte

// patternCacheBytes bounds what one patternSet remembers of earlier texts.
const patternCacheBytes = 4 << 20

func newPatternSet() *patternSet {
	return &patternSet{byGram: map[gram][]int32{}, known: newTextCache[[]int32](patternCacheBytes)}
}

func (s *patternSet) add(re *regexp.Regexp, id int32) {
	s.patterns = append(s.patterns, pattern{re, requiredLiteral(re.String()), id})
}

// build files the patterns, each under the rarest of its grams, so that a word
// which all of them share does not make candidates of all of them.
func (s *patternSet) build() {
	counts := map[gram]int{}
	for _, p := range s.patterns {
		eachGram(p.literal, func(g gram) { counts[g]++ })
	}
	for i, p := range s.patterns {
		best, n := gram{}, 0
		eachGram(p.literal, func(g gram) {
			if n == 0 || counts[g] < n {
				best, n = g, counts[g]
			}
		})
		if n == 0 {
			s.always = append(s.always, int32(i))
		} else {
			s.byGram[best] = append(s.byGram[best], int32(i))
		}
	}
}

func eachGram(text string, do func(gram)) {
	for i := 0; i+len(gram{}) <= len(text); i++ {
		do(gram([]byte(text[i : i+len(gram{})])))
	}
}

// matchesAny returns the ids of the patterns that match one of texts, in
// ascending order. The caller must not change them.
func (s *patternSet) matchesAny(texts []string) []int32 {
	if len(texts) == 1 {
		return s.matches(texts[0])
	}
	var ids []int32
	for _, text := range texts {
		ids = append(ids, s.matches(text)...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// matches is matchesAny of one text.
func (s *patternSet) matches(text string) []int32 {
	if len(s.patterns) == 0 {
		return nil
	}
	if ids, ok := s.known.get(text); ok {
		return ids
	}
	ids := s.match(text)
	s.known.put(strings.Clone(text), ids, 4*len(ids))
	return ids
}

// match tries every candidate once, however often its gram occurs.
func (s *patternSet) match(text string) []int32 {
	var ids []int32
	try := func(indexes []int32) {
		for _, i := range indexes {
			p := &s.patterns[i]
			if strings.Contains(text, p.literal) && p.re.MatchString(text) {
				ids = append(ids, p.id)
			}
		}
	}
	try(s.always)
	if len(s.byGram) > 0 {
		var tried map[gram]bool // Of those that patterns are filed under.
		eachGram(text, func(g gram) {
			indexes, ok := s.byGram[g]
			if !ok || tried[g] {
				return
			}
			if tried == nil {
				tried = map[gram]bool{}
			}
			tried[g] = true
			try(indexes)
		})
	}
	slices.Sort(ids)
	return ids
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
