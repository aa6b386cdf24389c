// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// set is Apply of one edit.
func set(text []byte, path []string, block int, value string) ([]byte, error) {
	return Apply(text, []Edit{{path, block, value}})
}

func TestValuesAreSetAndEverythingElseStays(t *testing.T) {
	for name, c := range map[string]struct{ text, path, value, want string }{
		"into an empty file":           {"", "limits.range.max", "7d", "limits:\n  range: {max: 7d}\n"},
		"into a file of comments":      {"# mine\n", "limits.range.max", "7d", "# mine\nlimits:\n  range: {max: 7d}\n"},
		"over a value":                 {"limits:\n  range:\n    max: 32d # a month\n", "limits.range.max", "7d", "limits:\n  range:\n    max: 7d # a month\n"},
		"over a value in quotes":       {"limits: {range: {\"max\": \"32d\", mode: 'off'}}\n", "limits.range.max", "7d", "limits: {range: {\"max\": 7d, mode: 'off'}}\n"},
		"behind umlauts":               {"limits: {ü: 1, range: {max: 32d}}\n", "limits.range.max", "7d", "limits: {ü: 1, range: {max: 7d}}\n"},
		"into braces":                  {"limits: {range: {mode: warn}}\n", "limits.range.max", "7d", "limits: {range: {max: 7d, mode: warn}}\n"},
		"into empty braces":            {"limits: {}\n", "limits.range.max", "7d", "limits: {range: {max: 7d}}\n"},
		"below a key without value":    {"limits:\n# end\n", "limits.range.max", "7d", "limits:\n  range: {max: 7d}\n# end\n"},
		"for a key without value":      {"limits:\n  range:\n    max: # none\n", "limits.range.max", "7d", "limits:\n  range:\n    max: 7d # none\n"},
		"behind the last of a mapping": {"limits:\n    topk:\n        max: 5\n\n# rules\nrules: []\n", "limits.range.max", "7d", "limits:\n    topk:\n        max: 5\n    range: {max: 7d}\n\n# rules\nrules: []\n"},
		"behind a list":                {"limits:\n  selectivity:\n    equality_labels:\n    - job\n    - pod\nrules: []\n", "limits.range.max", "7d", "limits:\n  selectivity:\n    equality_labels:\n    - job\n    - pod\n  range: {max: 7d}\nrules: []\n"},
		"at an end without newline":    {"rules: []", "limits.range.max", "7d", "rules: []\nlimits:\n  range: {max: 7d}\n"},
		"with the ends of Windows":     {"rules: []\r\n", "limits.range.max", "7d", "rules: []\r\nlimits:\r\n  range: {max: 7d}\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := set([]byte(c.text), strings.Split(c.path, "."), 1, c.value)
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
}

func TestKeysAreQuotedWhereTheyWouldMeanSomethingElse(t *testing.T) {
	got, err := set(nil, []string{"tenants", "a: b", "limits", "range", "max"}, 3, "7d")
	require.NoError(t, err)
	require.Equal(t, "tenants:\n  \"a: b\":\n    limits:\n      range: {max: 7d}\n", string(got))
	for text, want := range map[string]string{
		"tenants:\n  1: {limits: {topk: {max: 5}}}\n": "tenants:\n  1: {limits: {range: {max: 7d}, topk: {max: 5}}}\n",
		"tenants:\n  2: {}\n":                         "tenants:\n  2: {}\n  \"1\":\n    limits:\n      range: {max: 7d}\n",
	} {
		got, err := set([]byte(text), []string{"tenants", "1", "limits", "range", "max"}, 3, "7d")
		require.NoError(t, err)
		require.Equal(t, want, string(got), "a name that is a number")
	}
	for text, want := range map[string]string{"team-a": "team-a", "true": `"true"`, "null": `"null"`, "1": `"1"`, "": `""`, "é": `"é"`} {
		require.Equal(t, want, Key(text))
	}
}

func TestWhatCannotBeEditedIsRefusedWithItsLine(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an alias":          {"x: &x {max: 1d}\nlimits:\n  range: *x\n", "line 3: range has an anchor"},
		"an anchor":         {"limits:\n  range: &x {max: 1d}\ny: *x\n", "line 2: range has an anchor"},
		"a list":            {"limits: []\n", "line 1: limits is no mapping"},
		"a list at the top": {"- 1\n", "line 1: the file is no mapping"},
		"two documents":     {"a: 1\n---\nb: 1\n", "more than one YAML document"},
		"no YAML":           {"a: {\n", "yaml: line"},
		"a value as a list": {"limits: {range: {max: [1]}}\n", "line 1: max is no single value"},
		"a folded value":    {"limits:\n  range:\n    max: >\n      7d\n", `is written in a way that cannot be edited`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := set([]byte(c.text), []string{"limits", "range", "max"}, 1, "7d")
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestManyEditsAreWhatOneAfterTheOtherWouldBe(t *testing.T) {
	edits := []Edit{
		{[]string{"limits", "range", "max"}, 1, "7d"},
		{[]string{"limits", "oldest", "mode"}, 1, "warn"},
		{[]string{"limits", "oldest", "max"}, 1, "9d"},
		{[]string{"limits", "topk", "max"}, 1, "3"},
		{[]string{"tenants", "a", "limits", "range", "max"}, 3, "1d"},
		{[]string{"tenants", "b", "limits", "topk", "max"}, 3, "4"},
	}
	for text, want := range map[string]string{
		"": "limits:\n  range: {max: 7d}\n  oldest: {mode: warn, max: 9d}\n  topk: {max: 3}\n" +
			"tenants:\n  a:\n    limits:\n      range: {max: 1d}\n  b:\n    limits:\n      topk: {max: 4}\n",
		"limits: {range: {max: 1h, mode: off}, topk: {}} # all": "limits: {oldest: {mode: warn, max: 9d}, range: {max: 7d, mode: off}, topk: {max: 3}} # all\n" +
			"tenants:\n  a:\n    limits:\n      range: {max: 1d}\n  b:\n    limits:\n      topk: {max: 4}\n",
		"tenants:\n  b:\n    limits:\n      range:\n        max: 2d\n\n# more\nlimits:\n  topk:\n    max: 9\n  oldest:\n    mode:": "tenants:\n  b:\n    limits:\n      range:\n        max: 2d\n      topk: {max: 4}\n  a:\n    limits:\n      range: {max: 1d}\n\n# more\n" +
			"limits:\n  topk:\n    max: 3\n  oldest:\n    mode: warn\n    max: 9d\n  range: {max: 7d}\n",
	} {
		got, err := Apply([]byte(text), edits)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
		again, err := Apply(got, edits)
		require.NoError(t, err)
		require.Equal(t, want, string(again))
		one := []byte(text)
		for _, e := range edits {
			one, err = set(one, e.Path, e.Block, e.Value)
			require.NoError(t, err)
		}
		var values, wanted any
		require.NoError(t, yaml.Unmarshal(one, &values))
		require.NoError(t, yaml.Unmarshal(got, &wanted))
		require.Equal(t, wanted, values)
	}
	_, err := Apply([]byte("limits:\n  range: {max: 1d}\n  topk: []\n"), edits)
	require.ErrorContains(t, err, "line 3: topk is no mapping")
	got, err := Apply([]byte("a: 1"), []Edit{{[]string{"a"}, 1, "2"}})
	require.NoError(t, err)
	require.Equal(t, "a: 2", string(got), "the end stays as it is")
}

func FuzzSet(f *testing.F) {
	for _, seed := range []string{"", "limits:\n  range: {max: 1d}\n", "limits: {a: {b: c}}\n", "limits:\n\n  # x\n  range:\n    - 1\n", "? limits\n: {range: {}}\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		out, err := set([]byte(text), []string{"limits", "range", "max"}, 1, "7d")
		if err != nil {
			return
		}
		again, err := set(out, []string{"limits", "range", "max"}, 1, "7d")
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
		_, _ = Apply([]byte(text), []Edit{{[]string{"limits", "range", "mode"}, 1, "warn"}, {[]string{"limits", "topk", "max"}, 1, "3"}, {[]string{"tenants", "a", "limits", "range", "max"}, 3, "7d"}})
	})
}
