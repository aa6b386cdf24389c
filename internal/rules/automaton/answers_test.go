// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package automaton

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnswersAreThoseThatWereGivenFirst(t *testing.T) {
	var sets []*Set
	for _, pattern := range []string{"a+", "~a", "=a", ".*", "[ab]*", "", "a|b", "x;.*"} {
		re, err := Regexp(pattern)
		require.NoError(t, err)
		sets = append(sets, re, re.Not(), Literal(pattern), Literal(pattern).Not())
	}
	var a Answers
	for range 2 {
		for _, x := range sets {
			for _, y := range sets {
				text, ok, err := Witness(x, y)
				gotText, gotOK, gotErr := a.Witness(x, y)
				require.Equal(t, []any{text, ok, err}, []any{gotText, gotOK, gotErr}, "%s %s", x, y)
				for _, values := range [][][]*Set{{{x}, {y}}, {{x, y}, nil}, {nil, {x, y}}} {
					texts, ok, err := WitnessJoined(sets[28], ';', values)
					gotTexts, gotOK, gotErr := a.WitnessJoined(sets[28], ';', values)
					require.Equal(t, []any{texts, ok, err}, []any{gotTexts, gotOK, gotErr}, "%s %s", x, y)
				}
			}
		}
	}
	// Literals are cheaper to ask than to remember; pairs of others and joined ones
	// are remembered once.
	require.LessOrEqual(t, len(a.known), 4*len(sets)*len(sets))
}

func TestSameQuestionIsSearchedOnce(t *testing.T) {
	re, err := Regexp("(a|b)*c")
	require.NoError(t, err)
	var a Answers
	first := func() {
		_, ok, err := a.Witness(re, Literal("").Not())
		require.NoError(t, err)
		require.True(t, ok)
	}
	first()
	require.Len(t, a.known, 1)
	first()
	require.Len(t, a.known, 1)
}
