// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
	promrelabel "github.com/prometheus/prometheus/model/relabel"
	"github.com/stretchr/testify/require"
)

// awkward has rules whose regexes cannot be looked up by name, cannot be taken
// apart, or look as if they could.
func awkward() Profile {
	p := Profile{Name: "awkward"}
	for _, r := range []struct {
		id     string
		labels []string
		regex  string
	}{
		{"alternation-over-the-separator", []string{"__name__", "le"}, "up;1|a;(\\+Inf|)"},
		{"separator-in-a-group", []string{"__name__", "scope"}, "container_(tasks_state;|memory_swap);?hierarchy"},
		{"too-few-separators", []string{"__name__", "le"}, "container_memory_swap.*1"},
		{"separator-in-a-class", []string{"__name__", "pod"}, "[;a]b?;.*"},
		{"any-character-crosses", []string{"__name__", "pod", "scope"}, "a.*;b.*;.*"},
		{"word-boundary", []string{"__name__", "le"}, "go_goroutines\\b;\\b1"},
		{"case-insensitive", []string{"__name__"}, "(?i)apiserver_REQUEST_body_size_bytes_bucket"},
		{"case-insensitive-part", []string{"__name__", "job"}, "A;(?i:KUBELET)"},
		{"name-last", []string{"job", "__name__"}, "etcd;(process|go)_.*"},
		{"name-not-read", []string{"id", "pod"}, "/.+;"},
		{"missing-name", []string{"__name__", "job"}, ";kubelet"},
		{"prefix", []string{"__name__", "le"}, "container_[a-z]+_[a-z]+;1"},
		{"optional", []string{"__name__", "le"}, "go_(gorou)?tines;(30|1)(\\.0)?"},
		{"dot-matches-newline", []string{"__name__"}, "kube_pod_tolerations."},
		{"same-label-twice", []string{"__name__", "__name__"}, "up;up"},
		{"everything-empty", []string{"__name__", "container", "pod"}, ";;"},
	} {
		p.Rules = append(p.Rules, Rule{
			ID: r.id, Class: ClassValueChanging, SourceLabels: r.labels, Regex: r.regex, Reason: "for the test",
		})
	}
	return p
}

func TestCompiledProfileDropsWhatTheRelabelChainDrops(t *testing.T) {
	series := syntheticSeries(t, 30_000)
	backwards := awkward()
	slices.Reverse(backwards.Rules)
	both := Profile{Name: "both", Rules: append(awkward().Rules, mustProfile(t, ProfileMinimal).Rules...)}
	for name, p := range map[string]Profile{
		"minimal":           mustProfile(t, ProfileMinimal),
		"aggressive":        mustProfile(t, ProfileAggressive),
		"off":               mustProfile(t, ProfileOff),
		"awkward":           awkward(),
		"awkward backwards": backwards,
		"both":              both,
	} {
		t.Run(name, func(t *testing.T) {
			perRule := requireSameAsChain(t, mustCompile(t, p), chain(t, p), series)
			if name != "minimal" && name != "awkward" {
				return
			}
			for i, n := range perRule {
				require.NotZero(t, n, "no series reaches rule %s: the test says nothing about it", p.Rules[i].ID)
			}
		})
	}
}

func TestCompiledProfileDropsWhatTheRelabelChainDropsOnRealExpositions(t *testing.T) {
	expositions := realExpositions(t)
	// The rules of each profile are the first of the next.
	require.Equal(t, mustProfile(t, ProfileRecommended).Rules, mustProfile(t, ProfileAggressive).Rules[:len(mustProfile(t, ProfileRecommended).Rules)])
	for _, name := range []string{ProfileMinimal, ProfileAggressive} {
		p := mustProfile(t, name)
		d, cfgs := mustCompile(t, p), chain(t, p)
		for _, series := range expositions {
			requireSameAsChain(t, d, cfgs, series)
		}
	}
}

// seriesOfRules returns, for every rule, series of names and labels that its
// regex is about and of such that are nearly so, in every job.
func seriesOfRules(t testing.TB, p Profile) []labels.Labels {
	t.Helper()
	var series []labels.Labels
	for _, r := range p.Rules {
		names, patterns, err := r.Split()
		require.NoError(t, err)
		require.NotNil(t, patterns, r.ID)
		values := make([][]string, len(names))
		for i, pattern := range patterns {
			for _, v := range samples(t, pattern) {
				values[i] = append(values[i], v, v+"x", "x"+v)
			}
		}
		for i := range 300 {
			b := labels.NewBuilder(labels.EmptyLabels())
			for k, n := range names {
				b.Set(n, values[k][(i*(2*k+7)+i/11)%len(values[k])])
			}
			series = append(series, b.Labels())
		}
	}
	return series
}

// samples returns texts that match the pattern, made from its syntax tree.
func samples(t testing.TB, pattern string) []string {
	t.Helper()
	re, err := syntax.Parse(pattern, syntax.Perl)
	require.NoError(t, err)
	texts := expand(re)
	compiled := regexp.MustCompile("^(?:" + pattern + ")$")
	for _, text := range texts {
		require.True(t, compiled.MatchString(text), "%s is no sample of %s", text, pattern)
	}
	return texts
}

func expand(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{string(re.Rune)}
	case syntax.OpCharClass:
		return []string{string(re.Rune[0])}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []string{"z"}
	case syntax.OpCapture, syntax.OpPlus:
		return expand(re.Sub[0])
	case syntax.OpQuest, syntax.OpStar:
		return append([]string{""}, expand(re.Sub[0])...)
	case syntax.OpAlternate:
		var out []string
		for _, sub := range re.Sub {
			out = append(out, expand(sub)...)
		}
		return out
	case syntax.OpConcat:
		out := []string{""}
		for _, sub := range re.Sub {
			var next []string
			for _, before := range out {
				for _, after := range expand(sub) {
					next = append(next, before+after)
				}
			}
			out = next
		}
		return out
	}
	return []string{""}
}

func TestCompiledProfileDropsWhatTheRelabelChainDropsAroundEveryRule(t *testing.T) {
	for _, p := range Profiles() {
		if len(p.Rules) == 0 {
			continue
		}
		perRule := requireSameAsChain(t, mustCompile(t, p), chain(t, p), seriesOfRules(t, p))
		for i, n := range perRule {
			// A rule may have nothing left that an earlier one did not drop.
			if n == 0 {
				t.Errorf("profile %s: rule %s never drops first", p.Name, p.Rules[i].ID)
			}
		}
	}
}

func FuzzCompiledRuleDropsWhatTheRelabelRuleDrops(f *testing.F) {
	for _, r := range awkward().Rules {
		f.Add(r.Regex, "a", "b", "kubelet", "kubelet")
		f.Add(r.Regex, "a;b", "", "1", "")
	}
	f.Add("(a|b)c;d", "bc", "d", "", "")
	f.Add("(?s-i:.);.", "\n", "x", "", "x")
	f.Fuzz(func(t *testing.T, pattern, name, second, job, scope string) {
		for _, v := range []string{pattern, name, second, job, scope} {
			if !utf8.ValidString(v) {
				t.Skip("label values are UTF-8")
			}
		}
		lset := labels.FromStrings("__name__", name, "second", second, "job", job)
		for _, source := range [][]string{{"__name__"}, {"__name__", "second"}, {"second", "__name__"}} {
			r := validRule()
			r.SourceLabels, r.Regex = source, pattern
			if scope != "" {
				r.Jobs = []string{scope}
			}
			p := Profile{Name: "test", Rules: []Rule{r}}
			d, err := Compile(p)
			if err != nil {
				t.Skip("not a rule")
			}
			requireSameAsChain(t, d, chain(t, p), []labels.Labels{lset})
		}
	})
}

func TestDropAllocatesNothing(t *testing.T) {
	d := mustCompile(t, mustProfile(t, ProfileMinimal))
	for name, lset := range map[string]labels.Labels{
		"kept, name in no rule":   labels.FromStrings("__name__", "up", "job", "kubelet"),
		"kept, name in a rule":    labels.FromStrings("__name__", "container_last_seen", "id", "/", "job", "kubelet"),
		"dropped by name":         labels.FromStrings("__name__", "kube_pod_tolerations", "job", "kube-state-metrics"),
		"dropped by name and job": labels.FromStrings("__name__", "container_tasks_state", "job", "kubelet"),
		"dropped by a cgroup path": labels.FromStrings("__name__", "container_last_seen",
			"id", "/system.slice/kubelet.service", "job", "kubelet"),
		"dropped by a name pattern": labels.FromStrings(
			"__name__", "go_godebug_non_default_behavior_http2client_events_total", "job", "kubelet"),
	} {
		t.Run(name, func(t *testing.T) {
			require.Zero(t, testing.AllocsPerRun(100, func() { d.Drop(lset) }))
		})
	}
}

func TestRulesAreLookedUpByName(t *testing.T) {
	for _, p := range Profiles() {
		d := mustCompile(t, p)
		for i, c := range d.rules {
			require.NotNil(t, c.parts, "rule %s has to join label values", d.profile.Rules[i].ID)
		}
		for i, c := range d.rules {
			require.True(t, c.byName, "rule %s is tried on every series", d.profile.Rules[i].ID)
		}
	}
}

func TestNamesBeyondTheBoundAreStillDecided(t *testing.T) {
	p := mustProfile(t, ProfileMinimal)
	d, cfgs := mustCompile(t, p), chain(t, p)
	for i := range maxRememberedNames + 100 {
		d.Drop(labels.FromStrings("__name__", "name_"+strconv.Itoa(i)))
	}
	require.Len(t, d.names.all, maxRememberedNames)
	require.Len(t, *d.names.clean.Load(), maxRememberedNames)
	requireSameAsChain(t, d, cfgs, syntheticSeries(t, 2_000))
}

func TestDropperServesManyScrapeLoops(t *testing.T) {
	d := mustCompile(t, mustProfile(t, ProfileMinimal))
	series := syntheticSeries(t, 2_000)
	var want []int
	for _, lset := range series {
		rule, _ := d.Drop(lset)
		want = append(want, rule)
	}
	d = mustCompile(t, mustProfile(t, ProfileMinimal)) // Without names it has met.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, lset := range series {
				if rule, _ := d.Drop(lset); rule != want[i] {
					t.Errorf("%s: rule %d, alone it was %d", lset, rule, want[i])
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkNewSeries is the cost of one series at its first sight in a scrape:
// by the compiled profile, and by Prometheus's relabelling with the same rules.
func BenchmarkNewSeries(b *testing.B) {
	benchmarkFirstSight(b, syntheticSeries(b, 10_000))
}

// BenchmarkNewRealSeries is BenchmarkNewSeries on the real expositions.
func BenchmarkNewRealSeries(b *testing.B) {
	var series []labels.Labels
	for _, s := range realExpositions(b) {
		series = append(series, s...)
	}
	benchmarkFirstSight(b, series)
}

func benchmarkFirstSight(b *testing.B, series []labels.Labels) {
	for _, name := range []string{ProfileMinimal, ProfileRecommended, ProfileAggressive} {
		b.Run("profile="+name, func(b *testing.B) { benchmarkProfile(b, mustProfile(b, name), series) })
	}
}

func benchmarkProfile(b *testing.B, p Profile, series []labels.Labels) {
	d, cfgs := mustCompile(b, p), chain(b, p)
	b.Run("impl=compiled", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			d.Drop(series[i%len(series)])
		}
	})
	b.Run("impl=chain", func(b *testing.B) {
		b.ReportAllocs()
		// The scrape loop has a builder at hand.
		lb := labels.NewBuilder(labels.EmptyLabels())
		for i := 0; b.Loop(); i++ {
			lb.Reset(series[i%len(series)])
			promrelabel.ProcessBuilder(lb, cfgs...)
		}
	})
}
