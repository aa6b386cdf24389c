// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package yamlerr

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestLineIsThatOfTheMistake(t *testing.T) {
	const start = "groups:\n- name: a\n  rules:\n  - alert: X\n    expr: \"up\n\n      > 1\"\n"
	for end, want := range map[string]string{
		"   for: 5m\n":                    "line 8: did not find expected key",
		"    for: 5m\n     x: y\n":        "line 9: mapping values are not allowed in this context",
		"    for: 5m: y\n":                "line 8: mapping values are not allowed in this context",
		"    for: \"5m\n  - alert: Y\n":   "line 8: found unexpected end of stream",
		"    for: [5m\n    x: y\n  - a\n": "line 8: did not find expected ',' or ']'",
		"    for {5m}\n    x: y\n":        "line 8: could not find expected ':'",
		"  - alert: Y\n - alert: Z\n":     "line 9: did not find expected key",
		"  alert: Y\n  - alert: Z\n":      "line 9: did not find expected key",
		"    for: *x\n":                   "line 8: unknown anchor 'x' referenced",
		"---\na: b\n c: d\n":              "line 10: mapping values are not allowed in this context",
	} {
		text := []byte(start + end)
		dec := yaml.NewDecoder(bytes.NewReader(text))
		var err error
		for err == nil {
			var n yaml.Node
			err = dec.Decode(&n)
		}
		require.EqualError(t, Locate(text, err), want, "%s", text)
		require.EqualError(t, Locate(text, fmt.Errorf("a.yml: %w", err)), "a.yml: "+want)
	}
}

func TestLineInJSONIsTheParsersOwn(t *testing.T) {
	text := []byte("{\n\"a\": 1,\n\"b\": {\n\"c\": 2\n\"d\": 3\n}}\n")
	var n yaml.Node
	err := yaml.Unmarshal(text, &n)
	require.EqualError(t, err, "yaml: line 2: did not find expected ',' or '}'")
	require.EqualError(t, Locate(text, err), "line 2: did not find expected ',' or '}'")
}

// A search that would take too long ends somewhere before the mistake, and what the
// parser says counts if it is nearer.
func TestLongTextTakesBoundedWork(t *testing.T) {
	quoted := "- \"a\n\n  b\"\n"
	text := []byte(strings.Repeat(quoted, maxText/len(quoted)-2) + "- a: b: c\n")
	require.Less(t, len(text), maxText)
	var n yaml.Node
	err := yaml.Unmarshal(text, &n)
	require.ErrorContains(t, err, "mapping values are not allowed")
	require.EqualError(t, Locate(text, err), err.Error()[len("yaml: "):])
}

func TestOtherErrorsStayAsTheyAre(t *testing.T) {
	require.NoError(t, Locate([]byte("a: b"), nil))
	other := errors.New("no such file")
	require.Equal(t, other, Locate([]byte("a: b"), other))
	var n int
	err := yaml.Unmarshal([]byte("a: b"), &n)
	require.Equal(t, err, Locate([]byte("a: b"), err))
	long := []byte(strings.Repeat("a", maxText) + ": b: c")
	require.Equal(t, other, Locate(long, other))
}

func FuzzLocate(f *testing.F) {
	f.Add([]byte("a:\n- b: c\n d: e\n"))
	f.Add([]byte("a: \"b\n\n c\"\n- d\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var n yaml.Node
		err := yaml.Unmarshal(text, &n)
		lines := bytes.Count(text, []byte("\n")) + 1
		if located := Locate(text, err); (located == nil) != (err == nil) {
			t.Errorf("%v became %v", err, located)
		}
		if err == nil || parses(text) {
			return
		}
		if at := firstBad(text); at < 1 || at > lines {
			t.Errorf("line %d of %d", at, lines)
		}
	})
}
