// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"bytes"
	"flag"
	"io"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// argumentsOf renders the profile for an exporter and returns the values of its flags
// as a command line's parser reads them, and the rules that are left to others.
func argumentsOf(t *testing.T, p Profile, format string, flags ...string) (values map[string]string, left []string) {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Render(&b, p, format))
	set := flag.NewFlagSet("exporter", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	parsed := map[string]*string{}
	for _, f := range flags {
		parsed[f] = set.String(f, "", "")
	}
	var args []string
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		if rule, ok := strings.CutSuffix(line, ": no argument does the same; leave it to the relabelling."); ok {
			left = append(left, strings.TrimPrefix(rule, "# "))
		}
		if !strings.HasPrefix(line, "#") {
			args = append(args, line)
		}
	}
	require.NoError(t, set.Parse(args), "%q", args)
	require.Empty(t, set.Args())
	values = map[string]string{}
	for f, v := range parsed {
		values[f] = *v
	}
	return values, left
}

// namesToTry are the names that rules list, those of the facts, and such that are
// nearly so.
func namesToTry(t *testing.T, p Profile) []string {
	t.Helper()
	var names []string
	for _, file := range []string{"core_selectors.txt", "published_selectors.txt", "wide_selectors.txt", "wider_names.txt"} {
		for _, line := range factLines(t, "testdata/"+file) {
			name, _, _ := strings.Cut(line, "{")
			names = append(names, name)
		}
	}
	for _, r := range p.Rules {
		if listed, ok := r.listedNames(); ok {
			names = append(names, listed...)
		}
	}
	for _, n := range names {
		names = append(names, "x"+n, n+"x", n+"_total")
	}
	return names
}

func TestTheDenyListOfKubeStateMetricsDeniesWhatTheProfileDrops(t *testing.T) {
	for _, profile := range []string{ProfileMinimal, ProfileRecommended} {
		p := mustProfile(t, profile)
		d := mustCompile(t, p)
		values, left := argumentsOf(t, p, FormatKubeStateMetrics, "metric-denylist")
		require.Empty(t, left)
		var deny []*regexp.Regexp
		for item := range strings.SplitSeq(values["metric-denylist"], ",") {
			deny = append(deny, regexp.MustCompile(item))
		}
		denied := 0
		for _, name := range namesToTry(t, p) {
			if !strings.HasPrefix(name, "kube_") {
				continue
			}
			// As kube-state-metrics does: anywhere in the name.
			got := slices.ContainsFunc(deny, func(re *regexp.Regexp) bool { return re.MatchString(name) })
			_, want := d.Drop(labels.FromStrings("__name__", name, "job", "kube-state-metrics"))
			require.Equal(t, want, got, "%s: %s", profile, name)
			if got {
				denied++
			}
		}
		require.NotZero(t, denied)
	}
}

func TestMetricsThatKubernetesDisablesAreDroppedWhole(t *testing.T) {
	for _, profile := range []string{ProfileMinimal, ProfileRecommended} {
		p := mustProfile(t, profile)
		d := mustCompile(t, p)
		values, left := argumentsOf(t, p, FormatKubernetesFlags, "disabled-metrics")
		names := strings.Split(values["disabled-metrics"], ",")
		require.Contains(t, names, "kubernetes_feature_enabled")
		for _, name := range names {
			require.Regexp(t, `^[a-z][a-z0-9_]*$`, name)
			for _, job := range []string{"apiserver", "kube-controller-manager", "kube-scheduler"} {
				_, dropped := d.Drop(labels.FromStrings("__name__", name, "job", job, "resource", "pods"))
				require.True(t, dropped, "%s of %s", name, job)
			}
		}
		for _, r := range p.Rules {
			if slices.Contains(left, r.ID) {
				require.Contains(t, []Class{ClassBucket, ClassThin}, r.Class, "%s could be an argument", r.ID)
			}
		}
	}
}

func TestNodeExporterLeavesOutTheDevicesThatAggressiveDrops(t *testing.T) {
	for _, profile := range []string{ProfileMinimal, ProfileRecommended} {
		values, left := argumentsOf(t, mustProfile(t, profile), FormatNodeExporter, "collector.netclass.ignored-devices")
		require.Empty(t, values["collector.netclass.ignored-devices"])
		require.Equal(t, []string{"node-network-constants"}, left)
	}
	d := mustCompile(t, mustProfile(t, ProfileAggressive))
	values, _ := argumentsOf(t, mustProfile(t, ProfileAggressive), FormatNodeExporter,
		"collector.netclass.ignored-devices", "collector.netdev.device-exclude")
	netclass := regexp.MustCompile(values["collector.netclass.ignored-devices"])
	netdev := regexp.MustCompile(values["collector.netdev.device-exclude"])
	for _, device := range []string{"eth0", "ens5", "bond0", "ib0", "lo", "cali0", "veth1a2b", "xveth0", "docker0", "kube-ipvs0", "", "eni"} {
		_, dropped := d.Drop(labels.FromStrings("__name__", "node_network_receive_bytes_total", "device", device, "job", "node-exporter"))
		require.Equal(t, dropped, netclass.MatchString(device), device)
		require.Equal(t, dropped, netdev.MatchString(device), device)
	}
}

func TestADenyListCannotHaveACommaInARegex(t *testing.T) {
	r := validRule()
	r.SourceLabels, r.Regex = []string{"__name__"}, "kube_a{1,2}"
	err := Render(io.Discard, Profile{Name: "test", Rules: []Rule{r}}, FormatKubeStateMetrics)
	require.ErrorContains(t, err, "without a comma")
}

func TestTextsOfARegexAreListedOrThereIsNone(t *testing.T) {
	for _, tc := range []struct {
		regex string
		want  []string
	}{
		{"a", []string{"a"}},
		{"a(b|c)?", []string{"a", "ab", "ac"}},
		{"(a|b)_[xy]", []string{"a_x", "a_y", "b_x", "b_y"}},
		{"a|bc|", []string{"", "a", "bc"}},
		{"a+", nil},
		{`a\w+`, nil},
		{"(?i)a", nil},
		{"^a", nil},
		{"[a-z][a-z][a-z]", nil},
	} {
		re, err := syntax.Parse(tc.regex, syntax.Perl)
		require.NoError(t, err)
		got, err := texts(re, maxDisabled)
		require.Equal(t, tc.want == nil, err != nil, tc.regex)
		slices.Sort(got)
		require.Equal(t, tc.want, got, tc.regex)
	}
}

func FuzzTextsAreAllThatARegexMatches(f *testing.F) {
	for _, seed := range []string{"a(b|c)?", "kube_(a|b)_(c|d)", "[a-c]x", "a{2}", "(a|)(b|)"} {
		f.Add(seed, "ab")
	}
	f.Fuzz(func(t *testing.T, pattern, other string) {
		re, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			t.Skip()
		}
		all, err := texts(re, 100)
		if err != nil {
			t.Skip()
		}
		whole, err := regexp.Compile("^(?:" + pattern + ")$")
		require.NoError(t, err)
		for _, text := range all {
			require.True(t, whole.MatchString(text), "%q does not match %q", text, pattern)
		}
		require.Equal(t, slices.Contains(all, other), whole.MatchString(other), "%q and %q", other, pattern)
	})
}
