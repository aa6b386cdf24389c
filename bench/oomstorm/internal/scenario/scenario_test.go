// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// requireDocumented does not print the documentation.
func requireDocumented(t *testing.T, word string) {
	t.Helper()
	docs, err := os.ReadFile("../../../../docs/oomstorm.md")
	require.NoError(t, err)
	if !strings.Contains(string(docs), "`"+word+"`") {
		t.Errorf("the documentation lacks %s", word)
	}
}

func TestEveryShippedScenarioIsValidAndDocumented(t *testing.T) {
	require.Contains(t, Shipped(), "contract")
	for _, name := range Shipped() {
		s, err := Load(name)
		require.NoError(t, err)
		require.Equal(t, name, s.Name)
		require.NotEmpty(t, s.Expect)
		requireDocumented(t, name)
	}
	for _, f := range Figures {
		requireDocumented(t, f)
	}
	list, err := Expressions("")
	require.NoError(t, err)
	require.Greater(t, len(list), 50)
}

func TestEveryKeyIsDocumented(t *testing.T) {
	source, err := os.ReadFile("scenario.go")
	require.NoError(t, err)
	for _, part := range strings.Split(string(source), "yaml:\"")[1:] {
		key, _, _ := strings.Cut(part, "\"")
		if key != "-" {
			requireDocumented(t, key)
		}
	}
}

const least = "series: 5000\nphases: [{name: a, for: 1s}]\n"

func TestDefaultsAreFilledIn(t *testing.T) {
	s, err := Parse([]byte("series: 5000\nlimit: 1.5\nphases:\n- {name: a, for: 1m, storm: {clients: 1}}\n- {name: b, for: 2m, compact: true}\n"))
	require.NoError(t, err)
	require.Equal(t, time.Minute, s.Phases[0].Storm.Timeout)
	require.EqualValues(t, 150, s.Limit.Of(100))
	require.Equal(t, 3*time.Minute, s.Span())
	until, ok := s.UntilCompaction()
	require.True(t, ok)
	require.Equal(t, time.Minute, until)
}

func TestAScenarioThatMakesNoSenseIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "the file is empty",
		"series: [":                        "line 1: ",
		"serie: 5000":                      `unknown key "serie", did you mean series?`,
		"series: 1":                        "series must be from 5000 to",
		"series: 5000":                     "phases: there is none",
		"series: 5000\nlimit: little":      "a limit must be off, a factor such as 2.5",
		"series: 5000\nlimit: 0.5":         "a limit's factor must be greater than 1",
		"series: 5000\nscrape_interval: 1": "line 2: cannot unmarshal",
		"series: 5000\nphases: [{name: a b, for: 1s}]":                     `the name "a b" must be one word`,
		"series: 5000\nphases: [{name: a, for: 1s}, {name: a, for: 1s}]":   `phase 2: the name "a"`,
		"series: 5000\nphases: [{name: a}]":                                "phase a: for must be from 1s to",
		"series: 5000\nphases: [{name: a, for: 30m}, {name: b, for: 30m}]": "the phases together must be from 0s to 40m0s",
		"series: 5000\nphases: [{name: a, for: 1s, restart: hup}]":         "restart must be kill or term",
		"series: 5000\nphases: [{name: a, for: 1s, until: dawn}]":          "until must be back or compacted", "series: 5000\nphases: [{name: a, for: 1s, storm: {}}]": "phase a: storm: clients must be from 1 to 10000, got 0",
		"series: 5000\nphases: [{name: a, for: 1s, storm: {clients: 1, families: [cats]}}]":             `no family is called "cats"`,
		"series: 5000\nphases: [{name: a, for: 1s, dashboards: {clients: 1}}]":                          "expressions or buckets must be true",
		"series: 5000\nphases: [{name: a, for: 1s, slow_readers: {clients: 1, rate: 1, family: 's*'}}]": "family must be the name of one",
		"series: 5000\nphases: [{name: a, for: 1s, until: back}, {name: b, for: 1s, compact: true}]":    "phase b: only one phase can compact, and none before it can have until",
		"series: 5000\nphases: [{name: a, for: 1s, compact: true}, {name: b, for: 1s, compact: true}]":  "phase b: only one phase can compact",
		"series: 5000\nfamilies: [{name: series, path: /x}]\nphases: [{name: a, for: 1s}]":              "two families are called series",
		least + "expect: [{name: x, figure: alive}]":                                                    "expect 1 (x): at_least or at_most is missing",
		least + "expect: [{name: x, figure: aliv, at_least: 1}]":                                        `there is no figure "aliv", did you mean alive?`,
		least + "expect: [{figure: alive, at_least: 1}]":                                                "it needs a name",
		least + "expect: [{name: x, at_least: 1}]":                                                      "it needs either a figure or a query",
		least + "expect: [{name: x, phase: z, figure: alive, at_least: 1}]":                             `there is no phase "z"`,
		least + "expect: [{name: x, query: up, at_least: 1}]":                                           "a query needs a phase",
		least + "expect: [{name: x, phase: a, query: 'up up', at_least: 1}]":                            "query: ",
	} {
		_, err := Parse([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzParseDoesNotPanic(f *testing.F) {
	for _, name := range Shipped() {
		text, err := Text(name)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = Parse(text) })
}

func TestAScenarioIsAShippedOneOrAFile(t *testing.T) {
	_, err := Load("contrakt")
	require.ErrorContains(t, err, `"contrakt" is neither a file nor one of contract, `)
	require.ErrorContains(t, err, "did you mean contract?")
	file := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(file, []byte(least), 0o666))
	s, err := Load(file)
	require.NoError(t, err)
	require.Equal(t, 5000, s.Series)
}
