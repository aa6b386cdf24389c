// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

const goodFile = `
name: ours
summary: What we do not read.
extends: minimal
without: [ksm-endpoint-ports]
rules:
  - id: by-name
    class: unused
    source_labels: [__name__, pod]
    regex: 'kube_(secret|lease)_.+;'
    jobs: [kube-state-metrics]
    reason: nobody looks at it
    saving: one per secret
    since: "1.20"
    until: "1.40"
    requires: kube_secret_info{pod!=""}
  - id: bounds
    class: thin
    histograms: [request_seconds]
    drop_le: [0.25, 3]
    bounds: [0.1, 0.25, 0.5, 3, 5]
    reason: too fine
`

func TestProfileFileIsRead(t *testing.T) {
	p, err := ParseProfile("ours.yaml", []byte(goodFile))
	require.NoError(t, err)
	require.NoError(t, p.Validate())
	require.Equal(t, "ours", p.Name)
	base := mustProfile(t, ProfileMinimal)
	require.Len(t, p.Rules, len(base.Rules)-1+2)
	require.Equal(t, Rule{
		ID: "by-name", Class: ClassUnused, SourceLabels: []string{"__name__", "pod"}, Regex: "kube_(secret|lease)_.+;",
		Jobs: []string{"kube-state-metrics"}, Reason: "nobody looks at it", Saving: "one per secret",
		Since: "1.20", Until: "1.40", Requires: `kube_secret_info{pod!=""}`,
	}, p.Rules[len(p.Rules)-2])

	path := filepath.Join(t.TempDir(), "ours.yaml")
	require.NoError(t, os.WriteFile(path, []byte(goodFile), 0o600))
	loaded, err := LoadProfile(path)
	require.NoError(t, err)
	require.Equal(t, p, loaded)
}

func TestThinningDropsABoundInBothSpellings(t *testing.T) {
	p, err := ParseProfile("ours.yaml", []byte(goodFile))
	require.NoError(t, err)
	d := mustCompile(t, p)
	for le, want := range map[string]bool{
		"0.1": false, "0.25": true, "0.250": false, "0.5": false, "3": true, "3.0": true, "3.00": false, "30": false, "5": false, "+Inf": false, "": false,
	} {
		_, drop := d.Drop(labels.FromStrings("__name__", "request_seconds_bucket", "le", le))
		require.Equal(t, want, drop, le)
	}
	_, drop := d.Drop(labels.FromStrings("__name__", "request_seconds_count", "le", "3"))
	require.False(t, drop)
}

func TestAnEmptyFileDropsNothing(t *testing.T) {
	for _, text := range []string{"", "# later\n", "name: none\n", "name: none\nrules:\n", "name: none\nrules: []\nwithout: []\n"} {
		p, err := ParseProfile("f.yaml", []byte(text))
		require.NoError(t, err, text)
		require.NoError(t, p.Validate())
		require.Empty(t, p.Rules)
	}
}

func TestBadProfileFileIsToldByLineAndAllAtOnce(t *testing.T) {
	head := "name: x\nsummary: y\nrules:\n"
	rule := func(text string) string { return head + "  - {id: a, reason: r, " + text + "}\n" }
	for name, tc := range map[string]struct{ text, want string }{
		"not YAML":           {"a: [", "f.yaml: yaml: line 1"},
		"two documents":      {head + "---\na: b\n", "more than one YAML document"},
		"unknown key":        {head + "rule: []\n", "field rule not found"},
		"doubled key":        {head + "name: z\n", `mapping key "name" already defined`},
		"no name":            {"summary: y\n", "profile name"},
		"no class":           {rule("source_labels: [a], regex: b"), `line 4, rule 1 (a): class ""`},
		"no reason":          {head + "  - {id: a, class: unused, source_labels: [a], regex: b}\n", "rule 1 (a): reason"},
		"no regex":           {rule("class: unused, source_labels: [a]"), "regex: empty"},
		"bad regex":          {rule("class: unused, source_labels: [a], regex: 'b('"), "missing closing )"},
		"unknown rule key":   {rule("class: unused, regx: b"), "field regx not found"},
		"wrong type":         {rule("class: unused, source_labels: a, regex: b"), "cannot unmarshal"},
		"both forms":         {rule("class: thin, regex: b, histograms: [h]"), "not both"},
		"thin without class": {rule("class: bucket, histograms: [h], drop_le: [1], bounds: [1, 2]"), "has class thin"},
		"no bounds":          {rule("class: thin, histograms: [h], drop_le: [1]"), "1 is not one of the bounds"},
		"top bound":          {rule("class: thin, histograms: [h], drop_le: [2], bounds: [1, 2]"), "2 is the largest finite bound"},
		"infinite bound":     {rule("class: thin, histograms: [h], drop_le: [1], bounds: [1, .inf]"), "finite"},
		"bounds descend":     {rule("class: thin, histograms: [h], drop_le: [2], bounds: [2, 1]"), "ascend"},
		"bucket in name":     {rule("class: thin, histograms: [h_bucket], drop_le: [1], bounds: [1, 2]"), "without _bucket"},
		"no histogram":       {rule("class: thin, drop_le: [1], bounds: [1, 2]"), "at least one of each"},
		"bad version":        {rule("class: unused, source_labels: [a], regex: b, since: v1.2"), `version "v1.2"`},
		"bad guard":          {rule("class: unused, source_labels: [a], regex: b, requires: 'a{'"), "requires:"},
		"same id":            {rule("class: unused, source_labels: [a], regex: b") + "  - {id: a, reason: r, class: unused, source_labels: [a], regex: b}\n", "line 5, rule 2 (a): the rule of line 4 has the same id"},
		"inherited id":       {"name: x\nsummary: y\nextends: minimal\nrules:\n  - {id: cadvisor-unread, reason: r, class: unused, source_labels: [a], regex: b}\n", "list it under without"},
		"unknown profile":    {"name: x\nsummary: y\nextends: maximal\n", `unknown drop-rules profile "maximal"`},
		"unknown left out":   {"name: x\nsummary: y\nextends: minimal\nwithout: [z]\n", `no rule "z"`},
		"without nothing":    {"name: x\nsummary: y\nwithout: [z]\n", "there is none"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseProfile("f.yaml", []byte(tc.text))
			require.ErrorContains(t, err, tc.want)
			require.True(t, strings.HasPrefix(err.Error(), "f.yaml: "), err)
		})
	}
	_, err := ParseProfile("f.yaml", []byte(rule("regex: 'b('")+"  - {id: b, class: unused}\n"))
	require.ErrorContains(t, err, "rule 1 (a)")
	require.ErrorContains(t, err, "rule 2 (b)")
	_, err = LoadProfile(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAFileHasTheNameOfNoBuiltInProfile(t *testing.T) {
	for _, name := range ProfileNames() {
		_, err := ParseProfile("f.yaml", []byte(strings.Replace(goodFile, "name: ours", `name: "`+name+`"`, 1)))
		require.EqualError(t, err, `f.yaml: profile name "`+name+`": it is the name of a built-in profile: choose another`)
	}
}

func FuzzProfileFile(f *testing.F) {
	f.Add([]byte(goodFile))
	f.Add([]byte("name: a\nrules: [&x {id: a}, *x]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParseProfile("f.yaml", text)
		if err != nil {
			return
		}
		if _, err := Compile(p); err != nil {
			t.Fatalf("accepted, but does not compile: %s", err)
		}
	})
}

func TestRulesMayShareWhatTheySayByAliases(t *testing.T) {
	p, err := ParseProfile("ours.yaml", []byte(`
name: ours
rules:
  - &first
    id: first
    class: unused
    source_labels: &labels [__name__, job]
    regex: a;b
    reason: nobody reads them
  - <<: *first
    id: second
    regex: c;d
  - {id: third, class: unused, source_labels: *labels, regex: e;f, reason: nor them}
`))
	require.NoError(t, err)
	require.Len(t, p.Rules, 3)
	for i, want := range []string{"a;b", "c;d", "e;f"} {
		require.Equal(t, want, p.Rules[i].Regex)
		require.Equal(t, []string{"__name__", "job"}, p.Rules[i].SourceLabels)
	}
	require.Equal(t, "nobody reads them", p.Rules[1].Reason)
}

func TestARuleThatContainsItselfIsAnError(t *testing.T) {
	_, err := ParseProfile("ours.yaml", []byte("name: ours\nrules:\n  - &r\n    id: r\n    jobs: [*r, *r]\n"))
	require.ErrorContains(t, err, "ours.yaml: line 3, rule 1 (): ")
}
