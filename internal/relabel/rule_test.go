// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

func validRule() Rule {
	return Rule{
		ID:           "a-rule",
		Class:        ClassUnused,
		SourceLabels: []string{"__name__"},
		Regex:        "some_name",
		Reason:       "nothing reads it",
	}
}

func TestRuleThatCannotBeTrustedIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Rule)
		want   string
	}{
		"no id":                    {func(r *Rule) { r.ID = "" }, `id ""`},
		"id that is not a slug":    {func(r *Rule) { r.ID = "A_rule" }, `id "A_rule": use lower-case`},
		"no class":                 {func(r *Rule) { r.Class = "" }, `class "": use one of unused, disjoint, bucket, thin, value-changing`},
		"unknown class":            {func(r *Rule) { r.Class = "safe" }, `class "safe"`},
		"no reason":                {func(r *Rule) { r.Reason = " " }, "reason: say"},
		"reason of two lines":      {func(r *Rule) { r.Reason = "one\n- two" }, "reason: say"},
		"no source labels":         {func(r *Rule) { r.SourceLabels = nil }, "source labels: none"},
		"empty source label":       {func(r *Rule) { r.SourceLabels = []string{"__name__", ""} }, `"" is not a label name`},
		"no regex":                 {func(r *Rule) { r.Regex = "" }, "regex: empty"},
		"regex does not compile":   {func(r *Rule) { r.Regex = "a(" }, "missing closing )"},
		"regex escapes its anchor": {func(r *Rule) { r.Regex = "a)|(?:b" }, "unexpected )"},
		"empty job":                {func(r *Rule) { r.Jobs = []string{""} }, `jobs: ""`},
		"job with the separator":   {func(r *Rule) { r.Jobs = []string{"a;b"} }, `jobs: "a;b"`},
		"le within a job": {func(r *Rule) {
			r.SourceLabels, r.Regex, r.Jobs = []string{"__name__", "le"}, "x_bucket;3", []string{"apiserver"}
		}, "must not depend on job"},
		"le beside a job": {func(r *Rule) {
			r.SourceLabels, r.Regex = []string{"job", "le"}, "apiserver;3"
		}, "must not depend on job"},
	} {
		t.Run(name, func(t *testing.T) {
			r := validRule()
			require.NoError(t, r.Validate())
			tc.change(&r)
			require.ErrorContains(t, r.Validate(), tc.want)
			_, err := Compile(Profile{Name: "test", Rules: []Rule{r}})
			require.ErrorContains(t, err, "profile test, rule 1")
		})
	}
}

func TestProfileReportsEveryBadRuleWithItsPlace(t *testing.T) {
	noClass, noReason, twin := validRule(), validRule(), validRule()
	noClass.ID, noClass.Class = "first", ""
	noReason.ID, noReason.Reason = "third", ""
	err := Profile{Name: "test", Rules: []Rule{noClass, validRule(), noReason, twin}}.Validate()
	require.ErrorContains(t, err, `rule 1 (first): class ""`)
	require.ErrorContains(t, err, "rule 3 (third): reason")
	require.ErrorContains(t, err, "rule 4 (a-rule): rule 2 has the same id")
	require.NotContains(t, err.Error(), "rule 2 (")

	require.ErrorContains(t, Profile{Name: "Not a name"}.Validate(), "profile name")
	require.ErrorContains(t, Profile{Name: "test", Summary: "two\nlines"}.Validate(), "one line")
}

func TestBuiltInProfilesAreValidAndFoundByName(t *testing.T) {
	require.Equal(t, []string{"minimal", "recommended", "aggressive", "off"}, ProfileNames())
	for _, p := range Profiles() {
		require.NoError(t, p.Validate())
		got, err := ProfileByName(p.Name)
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
	require.Empty(t, mustProfile(t, ProfileOff).Rules)
}

func TestUnknownProfileNamesThoseThereAre(t *testing.T) {
	_, err := ProfileByName("maximal")
	require.EqualError(t, err, `unknown drop-rules profile "maximal": use one of minimal, recommended, aggressive, off`)
}

func TestProfileCanBeChangedWithoutChangingTheBuiltInOne(t *testing.T) {
	p := mustProfile(t, ProfileMinimal)
	for i := range p.Rules {
		p.Rules[i].Regex = "up"
		p.Rules[i].SourceLabels[0] = "up"
		if len(p.Rules[i].Jobs) > 0 {
			p.Rules[i].Jobs[0] = "up"
		}
	}
	for _, r := range mustProfile(t, ProfileMinimal).Rules {
		require.NotContains(t, append(append(r.Jobs, r.SourceLabels...), r.Regex), "up")
	}
}

func TestJobScopeLimitsARule(t *testing.T) {
	r := validRule()
	r.Regex = "a|b"
	r.Jobs = []string{"kubelet", "a.b"}
	d := mustCompile(t, Profile{Name: "test", Rules: []Rule{r}})
	for job, want := range map[string]bool{"kubelet": true, "a.b": true, "axb": false, "kubelet2": false, "": false} {
		_, drop := d.Drop(labels.FromStrings("__name__", "b", "job", job))
		require.Equal(t, want, drop, "job %q", job)
	}
}
