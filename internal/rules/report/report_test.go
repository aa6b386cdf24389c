// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/check"
	"github.com/promguard/promguard/internal/rules/evaluate"
	"github.com/promguard/promguard/internal/rules/source"
)

func input(verdicts ...check.Verdict) Input {
	in := Input{Profile: relabel.Profile{Name: "test", Rules: []relabel.Rule{{ID: "one"}, {ID: "two"}}}}
	for _, v := range verdicts {
		r := check.Result{Expression: source.Expression{File: "a.json", Place: "panel <" + string(v) + ">", Text: "up"}, Verdict: v}
		if v != check.Invisible {
			r.Findings = []check.Finding{{Rule: "two", Verdict: v, Why: "Because it is " + string(v) + "."}}
		}
		in.Results = append(in.Results, r)
	}
	return in
}

func text(t *testing.T, r *Report, format string) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, r.Write(&b, format))
	return b.String()
}

func TestExitCodeIsThatOfTheWorst(t *testing.T) {
	problem := []source.Problem{{File: "x", Err: errors.New("bad")}}
	for _, tc := range []struct {
		verdict  check.Verdict
		problems []source.Problem
		want     int
		says     string
	}{
		{check.Invisible, nil, 0, "PROVED: "},
		{check.Thinned, nil, 0, "PROVED: "},
		{check.Undecided, nil, 2, "COULD NOT CHECK"},
		{check.Invisible, problem, 2, "COULD NOT CHECK"},
		{check.Changed, nil, 1, "WOULD BREAK 1 expression, because of two."},
		{check.Gone, nil, 1, "WOULD BREAK"},
		{check.Gone, problem, 1, "Not all could be checked."},
	} {
		in := input(tc.verdict, check.Invisible)
		in.Problems = tc.problems
		r := New(in)
		require.Equal(t, tc.want, r.ExitCode(), tc.verdict)
		require.Contains(t, text(t, r, cli.Text), tc.says)
	}
}

func TestBothFormatsTellTheSame(t *testing.T) {
	in := input(check.Gone, check.Thinned, check.Invisible)
	in.Notes = map[string]string{"one": "it is odd"}
	r := New(in)
	plain := text(t, r, cli.Text)
	require.Contains(t, plain, "a.json: panel <gone>\n    Because it is gone.\n")
	require.Contains(t, plain, "NOTE rule one: it is odd.\n")
	require.Less(t, strings.Index(plain, "THINNED"), strings.Index(plain, "GONE"))
	require.NotContains(t, plain, "<invisible>")

	var back Report
	require.NoError(t, json.Unmarshal([]byte(text(t, r, cli.JSON)), &back))
	require.Equal(t, *r, back)
	require.Equal(t, Counts{Total: 3, Invisible: 1, Thinned: 1, Gone: 1}, back.Expressions)
	require.Equal(t, 2, back.Rules[1].Affected)
}

func TestDataMakeAVerdictOnlyWorse(t *testing.T) {
	for _, tc := range []struct {
		proved   check.Verdict
		measured evaluate.Outcome
		want     check.Verdict
		says     string
	}{
		{check.Invisible, evaluate.Equal, check.Invisible, ""},
		{check.Invisible, evaluate.Failed, check.Invisible, ""},
		{check.Invisible, evaluate.Gone, check.Gone, "The proof says otherwise; please report this."},
		{check.Thinned, evaluate.Within, check.Thinned, ""},
		{check.Thinned, evaluate.Changed, check.Changed, "The proof says otherwise"},
		{check.Undecided, evaluate.Equal, check.Undecided, "Evaluated on the data, the result is the same."},
		{check.Undecided, evaluate.Skipped, check.Undecided, ""},
		{check.Undecided, evaluate.Changed, check.Changed, ""},
		{check.Changed, evaluate.Equal, check.Changed, "Evaluated on the data, the result is the same."},
		{check.Changed, evaluate.Gone, check.Gone, ""},
	} {
		in := input(tc.proved)
		in.Data = &evaluate.Data{Series: 10, Dropped: 4, PerRule: []int{1, 3}, Unguarded: nil}
		in.Measured = []evaluate.Measured{{Outcome: tc.measured, Rows: 1}}
		r := New(in)
		require.Equal(t, tc.want, r.Verdict, "%s, %s", tc.proved, tc.measured)
		require.Equal(t, 3, r.Rules[1].Dropped)
		if tc.says != "" {
			require.Contains(t, text(t, r, cli.Text), tc.says)
		}
	}
}

func TestResultThatIsEmptySaysNothing(t *testing.T) {
	in := input(check.Undecided)
	in.Data = &evaluate.Data{PerRule: []int{0, 0}}
	in.Measured = []evaluate.Measured{{Outcome: evaluate.Equal, Rows: 0}}
	r := New(in)
	require.Equal(t, 2, r.ExitCode())
	require.NotContains(t, text(t, r, cli.Text), "the result is the same")
}

func TestNothingThatWasFoundIsNotProved(t *testing.T) {
	r := New(input())
	require.Equal(t, 2, r.ExitCode())
	require.Contains(t, text(t, r, cli.Text), "there is no expression in what was given")
}

func TestBreakThatOnlyTheDataShowIsSaid(t *testing.T) {
	in := input(check.Invisible)
	in.Data = &evaluate.Data{PerRule: []int{0, 0}}
	in.Measured = []evaluate.Measured{{Outcome: evaluate.Gone, Rows: 1}}
	require.Contains(t, text(t, New(in), cli.Text), "WOULD BREAK 1 expression, which the data show and no rule explains.")
}

func TestPromguardThatIsNotMetIsAProblem(t *testing.T) {
	in := input(check.Invisible)
	in.Data = &evaluate.Data{PerRule: []int{1, 0}, Unguarded: []relabel.Rule{{ID: "one", Requires: `a{b!=""}`}}}
	in.Measured = []evaluate.Measured{{Outcome: evaluate.Equal}}
	r := New(in)
	require.Equal(t, 2, r.ExitCode())
	require.Contains(t, text(t, r, cli.Text), `only for installations that have a{b!=""}`)
}

func TestManyReasonsAreShortened(t *testing.T) {
	f := Finding{}
	for range 9 {
		f.Rules = append(f.Rules, check.Finding{Verdict: check.Changed, Why: "x"})
	}
	got := f.Sentences()
	require.Len(t, got, maxSentences+1)
	require.Equal(t, "And so for 4 more rules.", got[maxSentences])
	for i := range f.Rules {
		f.Rules[i].Verdict = check.Undecided
	}
	require.Equal(t, []string{"x", "And so for 8 more rules."}, f.Sentences())
}
