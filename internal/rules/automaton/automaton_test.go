// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package automaton

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
	promrelabel "github.com/prometheus/prometheus/model/relabel"
	"github.com/stretchr/testify/require"
)

// String returns the set in the notation of matchers.
func (s *Set) String() string {
	op := "="
	if s.negated {
		op = "!"
	}
	if !s.literal {
		op += "~"
	} else if s.negated {
		op += "="
	}
	return op + s.text
}

// parse returns the sets of terms written like matchers' right sides: =x, !=x,
// =~x, !~x.
func parse(t testing.TB, terms ...string) []*Set {
	t.Helper()
	var out []*Set
	for _, term := range terms {
		switch {
		case strings.HasPrefix(term, "=~"), strings.HasPrefix(term, "!~"):
			s, err := Regexp(term[2:])
			require.NoError(t, err)
			if term[0] == '!' {
				s = s.Not()
			}
			require.Equal(t, term, s.String())
			out = append(out, s)
		case strings.HasPrefix(term, "!="):
			out = append(out, Literal(term[2:]).Not())
		default:
			out = append(out, Literal(term[1:]))
		}
	}
	return out
}

func TestWitnessIsFoundExactlyIfOneStringSatisfiesAllMatchers(t *testing.T) {
	for _, tc := range []struct {
		terms []string
		meet  bool
	}{
		{[]string{"=a", "=~a|b"}, true},
		{[]string{"=c", "=~a|b"}, false},
		{[]string{"=a", "=b"}, false},
		{[]string{"=~30", `=~30(\.0)?`}, true},
		{[]string{`=~1(\.0)?`, `=~(0\.6|1\.25|30)(\.0)?`}, false},
		{[]string{"=~a.*", "=~.*b"}, true},
		{[]string{"=~a.*", "=~b.*"}, false},
		{[]string{"=~a+", "!~a|aa"}, true},
		{[]string{"=~a{1,2}", "!~a|aa"}, false},
		{[]string{"!=", "=~(POD|)", "!=POD"}, false},
		{[]string{"!=", "=~.+"}, true},
		{[]string{"!~.*"}, false},
		{[]string{"!~.+", "!="}, false},
		{[]string{"=~(?i)kubelet", "=KubeLet"}, true},
		{[]string{"=~(?i)kubelet", "=~K.*"}, true},
		{[]string{"=~(?i)k", "=~\u212a"}, true}, // The Kelvin sign folds to k.
		{[]string{"=~(?-s:a.b)", "=~a\nb"}, false},
		{[]string{"=~a.b", "=~a\nb"}, true},
		{[]string{`=~a\b.*`, `=~a[a-z]+`}, false},
		{[]string{`=~a\B.*`, `=~a[a-z]+`}, true},
		{[]string{`=~a\b-b`, "=~.*-.*"}, true},
		{[]string{`=~(?m:a$\n^b)`, "=a\nb"}, true},
		{[]string{`=~(?m:^a$)`, "=~.{2}"}, false},
		{[]string{`=~a^b`}, false},
		{[]string{`=~[^a]`, `!~[^b]`}, true},
		{[]string{`=~\p{Greek}+`, `=~[a-z]+`}, false},
		{[]string{`=~\p{Greek}+`, `!~[α-ω]+`}, true},
		{[]string{"=~"}, true},
		{[]string{"=~[a-c]{50}", "!~[ab]*", "!~.*b.*"}, true},
		{nil, true},
	} {
		sets := parse(t, tc.terms...)
		text, ok, err := Witness(sets...)
		require.NoError(t, err)
		require.Equal(t, tc.meet, ok, "%q", tc.terms)
		if !ok {
			continue
		}
		for _, s := range sets {
			require.True(t, s.Contains(text), "%q is not in %s", text, s)
		}
	}
}

func TestPatternThatDoesNotCompileIsAnError(t *testing.T) {
	for _, pattern := range []string{"a(", "a)|(b", "a**", `\C`} {
		_, err := Regexp(pattern)
		require.Error(t, err, pattern)
	}
}

func TestSearchThatIsTooLargeIsAnErrorAndNoGuess(t *testing.T) {
	// The states of the first double with each further character.
	_, _, err := Witness(parse(t, "=~(a|b)*a(a|b){24}", "=~(a|b)*b(a|b){25}", "!~.{20,}")...)
	require.ErrorIs(t, err, ErrTooLarge)
	_, _, err = WitnessJoined(parse(t, "=~(a|b)*a(a|b){24};(a|b)*a(a|b){24}")[0], ';', [][]*Set{parse(t, "!~.{20,}"), parse(t, "!~.{20,}")})
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestJoinedWitnessSplitsTheTextAsRelabellingJoinsIt(t *testing.T) {
	for _, tc := range []struct {
		joined string
		values [][]string
		meet   bool
	}{
		{"up;1|a;b", [][]string{{"=up"}, {"=1"}}, true},
		{"up;1|a;b", [][]string{{"=up"}, {"=b"}}, false},
		{"a;b;c", [][]string{{"=~a.*"}, {"=~.*c"}}, true}, // One of the values has a separator.
		{"a;b;c", [][]string{{"=a"}, {"=b"}}, false},
		{"a;b;c", [][]string{{"=a;b"}, {"=c"}}, true},
		{".*1", [][]string{{"=x"}, {"!=1", "=~.?"}}, false},
		{"(a|b;c)d;e", [][]string{{"=~.*d"}, nil}, true},
		{"(a|b;c)d;e", [][]string{{"=~.*d"}, {"!=e"}}, false},
		{";;", [][]string{{"="}, {"="}, {"="}}, true},
		{";;", [][]string{{"="}, {"="}, {"!="}}, false},
		{"a", [][]string{nil, nil}, false},
	} {
		var values [][]*Set
		for _, terms := range tc.values {
			values = append(values, parse(t, terms...))
		}
		joined := parse(t, "=~"+tc.joined)[0]
		texts, ok, err := WitnessJoined(joined, ';', values)
		require.NoError(t, err)
		require.Equal(t, tc.meet, ok, "%q of %q", tc.joined, tc.values)
		if !ok {
			continue
		}
		require.True(t, joined.Contains(strings.Join(texts, ";")), "%q", texts)
		for i, sets := range values {
			for _, s := range sets {
				require.True(t, s.Contains(texts[i]), "%q is not in %s", texts[i], s)
			}
		}
	}
}

// FuzzWitnessAgreesWithMatching looks for a wrong answer: a witness that does
// not match, or none where the text at hand would have been one. The matching is
// that of Prometheus's matchers and relabelling.
func FuzzWitnessAgreesWithMatching(f *testing.F) {
	f.Add("a|b", "b.*", "!", "b")
	f.Add(`(?i)K\b.?`, `.*\n`, "", "k\n")
	f.Add(`[^x]*`, `(ab)+`, "a", "abab")
	f.Add(`(?m)^a$`, `\Aa\z`, "", "a")
	f.Fuzz(func(t *testing.T, first, second, negated, text string) {
		if !utf8.ValidString(text) || len(first) > 60 || len(second) > 60 || len(text) > 60 {
			t.Skip("label values are UTF-8")
		}
		a, errA := Regexp(first)
		b, errB := Regexp(second)
		relabelled, errR := promrelabel.NewRegexp(first)
		if errA != nil || errB != nil || errR != nil {
			t.Skip("not a regex")
		}
		matcher, err := labels.NewMatcher(labels.MatchRegexp, "x", second)
		if err != nil {
			t.Skip("not a matcher")
		}
		require.Equal(t, relabelled.MatchString(text), a.Contains(text))
		require.Equal(t, matcher.Matches(text), b.Contains(text))
		if negated != "" {
			b = b.Not()
		}
		got, ok, err := Witness(a, b)
		if err != nil {
			require.ErrorIs(t, err, ErrTooLarge)
			return
		}
		if ok {
			require.True(t, a.Contains(got) && b.Contains(got), "%q is not in %s and %s", got, a, b)
		} else {
			require.False(t, a.Contains(text) && b.Contains(text), "%q is in %s and %s", text, a, b)
		}
	})
}
