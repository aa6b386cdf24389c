// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/promguard/promguard/internal/promapi"
	"github.com/promguard/promguard/internal/promapi/promtest"
	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/check"
	"github.com/promguard/promguard/internal/rules/evaluate"
	"github.com/promguard/promguard/internal/rules/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exposition has metrics that are read as a whole, in part, and not.
const exposition = `# TYPE up gauge
up 1
scrape_duration_seconds 1
ALERTS{alertname="x"} 1
job:rate:sum 1
recorded_otherwise 1
read_plainly{a="1"} 1
read_by_regex_one 1
read_by_regex_two 1
unread{a="1"} 1
unread{a="2"} 1
unread{a="3"} 1
phase{pod="x",phase="Pending"} 1
phase{pod="x",phase="Failed"} 1
phase{pod="x",phase="Running"} 1
phase{pod="x",phase="Gated"} 1
memory{container="",pod="x"} 1
memory{container="c",pod="x"} 1
memory{container="POD",pod="x"} 1
# TYPE half histogram
half_bucket{le="1"} 1
half_bucket{le="+Inf"} 1
half_sum 1
half_count 1
# TYPE none histogram
none_bucket{le="1"} 1
none_bucket{le="+Inf"} 1
none_sum 1
none_count 1
label_costs{id="1",kind="a"} 1
label_costs{id="2",kind="a"} 1
label_costs{id="3",kind="a"} 1
label_costs{id="4",kind="b"} 1
`

const ruleFile = `
groups:
- name: g
  rules:
  - {alert: A, expr: 'phase{phase="Pending"} unless phase{phase=~"Gated|Running"}'}
  - {record: recorded_otherwise, expr: 'sum by (pod) (memory{container!="",container!="POD"})'}
  - {alert: B, expr: 'rate(half_sum[5m]) / rate(half_count[5m]) > 1 or {__name__=~"read_by_regex_.+"}'}
  - {alert: C, expr: 'read_plainly > 1 and on (kind) label_costs'}
`

func series(t testing.TB) []evaluate.Series {
	t.Helper()
	s, err := evaluate.ParseExposition([]byte(exposition), labels.FromStrings("job", "one", "instance", "a:1"))
	require.NoError(t, err)
	return s
}

// evidence reads a rule file and a query log.
func evidence(t testing.TB, ruleFile, queryLog string) Evidence {
	t.Helper()
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte(ruleFile), 0o644))
	e := Evidence{Found: source.RuleFiles(rules), RuleFiles: true}
	if queryLog != "" {
		log := filepath.Join(dir, "query.log")
		require.NoError(t, os.WriteFile(log, []byte(queryLog), 0o644))
		e.Add(source.QueryLogs(log))
		e.QueryLogs = true
	}
	return e
}

func scan(t testing.TB, e Evidence, top int) *Report {
	t.Helper()
	f, err := New(e)
	require.NoError(t, err)
	r, err := f.Scan("a test", series(t), relabel.Profile{}, top)
	require.NoError(t, err)
	return r
}

func written(t testing.TB, r *Report) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, r.Write(&b))
	return b.String()
}

func regexes(r *Report) []string {
	var out []string
	for _, s := range r.Suggestions {
		out = append(out, fmt.Sprintf("%s %s %d", s.Rule.Class, s.Rule.Regex, s.Series))
	}
	return out
}

func TestWhatNothingReadsIsSuggestedByCost(t *testing.T) {
	r := scan(t, evidence(t, ruleFile, ""), 100)
	require.Equal(t, []string{
		"unused none_bucket|none_count|none_sum 4",
		"unused unread 3",
		"bucket half_bucket 2",
		"disjoint memory;(|POD) 2",
		"disjoint phase;Failed 1",
	}, regexes(r))
	require.Zero(t, r.Refused)
	// Without its sum, what is left of a histogram is no histogram.
	counted := scan(t, evidence(t, strings.Replace(ruleFile, "rate(half_sum[5m]) / ", "", 1), ""), 100)
	require.Contains(t, regexes(counted), "unused half_bucket 2")
	require.Contains(t, regexes(counted), "unused half_sum 1")
	require.Equal(t, regexes(r)[:2], regexes(scan(t, evidence(t, ruleFile, ""), 2)))
}

func TestWhatTheQueryLogReadsIsNotSuggested(t *testing.T) {
	log := `{"params":{"query":"count by (a) (unread)"},"time":"2026-01-02T03:04:05Z"}
{"params":{"query":"none_bucket"},"ts":"2026-01-09T03:04:05.5Z"}
`
	r := scan(t, evidence(t, ruleFile, log), 100)
	require.Equal(t, []string{
		"bucket half_bucket 2", "disjoint memory;(|POD) 2", "unused none_count 1", "unused none_sum 1", "disjoint phase;Failed 1",
	}, regexes(r))
	require.Equal(t, "nothing reads it in 6 expressions of rule files, a query log of 2 queries from 2026-01-02 03:04 to 2026-01-09 03:04 (1w)",
		r.Suggestions[0].Rule.Reason)
	text := written(t, r)
	require.Contains(t, text, "# LITTLE EVIDENCE: the query log is of 2 queries from 2026-01-02 03:04")
	require.Contains(t, text, "# TOO LITTLE EVIDENCE: no dashboards were searched.")
}

func TestFileSaysWhatWasNotSearchedAndWhatHasNoRule(t *testing.T) {
	text := written(t, scan(t, evidence(t, ruleFile, ""), 100))
	for _, line := range []string{
		"# They drop 12 of 30 series (40.0 %) of a test.",
		"# What was searched: 4 expressions of rule files.",
		"# Recorded and not read here; remote write or federation may: job:rate:sum, 1 series.",
		"# Recorded and not read here; remote write or federation may: recorded_otherwise, 1 series.",
	} {
		require.Contains(t, text, line+"\n")
	}
	require.Contains(t, text, "# TOO LITTLE EVIDENCE: there is no query log.")
	require.NotContains(t, text, "COULD NOT BE READ")
}

func TestNothingIsSuggestedWhileAnExpressionMayReadAnything(t *testing.T) {
	log := `{"params":{"query":"count({job=\"other\"})"}}`
	r := scan(t, evidence(t, ruleFile, log), 100)
	for _, s := range r.Suggestions {
		require.Equal(t, relabel.ClassDisjoint, s.Rule.Class)
	}
	require.Contains(t, written(t, r), `May read any metric, so that none can be called unread: `)
	require.Contains(t, written(t, r), `line 1: count({job="other"})`)
	require.Contains(t, written(t, r), "1 queries at unknown times")
}

func TestWhatCouldNotBeReadIsToldAndExits2(t *testing.T) {
	r := scan(t, evidence(t, strings.Replace(ruleFile, "read_plainly > 1", "sum(", 1), ""), 100)
	require.Equal(t, 2, r.ExitCode())
	require.Contains(t, written(t, r), "# COULD NOT BE READ, and may read what is dropped: ")
	require.Zero(t, scan(t, evidence(t, ruleFile, ""), 100).ExitCode())
}

// What is suggested, read from its file again, is proved, and evaluated on the
// data nothing differs.
func TestSuggestionsChangeNothing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	selectors := []string{
		"unread", `unread{a="1"}`, `unread{a!="2"}`, "none_sum", `phase{phase=~"F.*"}`, `memory{container=""}`, `memory{container=~".+"}`, "half_sum",
		`{__name__=~"none_.*"}`, `label_costs{kind!="b"}`, `label_costs{id=~"[12]"}`, `half_bucket{le="1.0"}`, "read_plainly",
	}
	forms := []string{"%s", "sum(%s)", "absent(%s)", "(%s) or vector(0)", "up unless on (job) (%s)", "count(%s)", "histogram_quantile(0.9, %s)"}
	suggested := 0
	for range 30 {
		var log strings.Builder
		for range 4 {
			q := fmt.Sprintf(forms[rnd.IntN(len(forms))], selectors[rnd.IntN(len(selectors))])
			fmt.Fprintf(&log, "{\"params\":{\"query\":%q}}\n", q)
		}
		e := evidence(t, ruleFile, log.String())
		r := scan(t, e, 100)
		suggested += len(r.Suggestions)
		p, err := relabel.ParseProfile("suggested.yaml", []byte(written(t, r)))
		require.NoError(t, err)
		checker, err := check.New(p, evaluate.Layouts(series(t)))
		require.NoError(t, err)
		results := checker.Check(e.Expressions)
		d, err := evaluate.Load(p, series(t), e.Expressions)
		require.NoError(t, err)
		dropped := 0
		for _, s := range r.Suggestions {
			dropped += s.Series
		}
		require.Equal(t, d.Dropped, dropped, "what is promised is what goes")
		for i, m := range d.Compare(results) {
			require.Equal(t, check.Invisible, results[i].Verdict, log.String())
			require.Contains(t, []evaluate.Outcome{evaluate.Equal, evaluate.Failed}, m.Outcome, "%s: %s", results[i].Expression.Text, m.Why)
		}
		require.NoError(t, d.Close())
	}
	require.Greater(t, suggested, 60)
}

// A candidate that is not provably invisible is not suggested.
func TestCandidateThatCanBeSeenIsRefused(t *testing.T) {
	f, err := New(evidence(t, ruleFile, ""))
	require.NoError(t, err)
	rule := relabel.Rule{ID: "x", Class: relabel.ClassUnused, SourceLabels: []string{"__name__"}}
	seen, unseen, again := rule, rule, rule
	seen.Regex, unseen.Regex, again.Regex = "read_by_regex_one", "unread", "none_sum"
	p, err := f.prove([]Suggestion{{Rule: seen}, {Rule: unseen}, {Rule: again}}, "a reason")
	require.NoError(t, err)
	require.Equal(t, 1, p.refused)
	require.Len(t, p.proved, 2)
	require.Equal(t, "x-2", p.proved[0].Rule.ID)
	require.Equal(t, "x-3", p.proved[1].Rule.ID)
}

func TestNamesThatARuleCannotTellApartAreLeftAlone(t *testing.T) {
	f, err := New(evidence(t, ruleFile, ""))
	require.NoError(t, err)
	for name, want := range map[string]bool{
		"unread": true, "unread.with.dots": true, "a;b": false, "a\nb": false, "": false, "up": false, "scrape_x": false, "ALERTS": false, "prometheus_guard_drop_rule_info": false,
		"a:b": false, "recorded_otherwise": false, "read_plainly": false, "read_by_regex_three": false, "target_info": false,
	} {
		require.Equal(t, want, f.Unread(name), "%q", name)
	}
	r := &Report{Suggestions: []Suggestion{{Rule: relabel.Rule{
		ID: "x", Class: relabel.ClassUnused, SourceLabels: []string{"__name__"}, Regex: `unread\.with\.dots`, Reason: "it's: \"quoted\" # so", Saving: "- 1",
	}}}}
	require.Contains(t, written(t, r), "quoted")
}

func TestLiveServerGetsTheSameSuggestions(t *testing.T) {
	var lsets []labels.Labels
	for _, s := range series(t) {
		lsets = append(lsets, s.Labels)
	}
	prom := promtest.New(t, time.Minute, lsets...)
	f, err := New(evidence(t, ruleFile, ""))
	require.NoError(t, err)
	live, err := f.Live(context.Background(), within(t, prom, 100, 1000), nil, 100)
	require.NoError(t, err)
	require.Equal(t, regexes(scan(t, evidence(t, ruleFile, ""), 100)), regexes(live))
	require.Contains(t, written(t, live), "They drop 12 series of http://")

	// With a budget that is too small, less is suggested and it is said.
	live, err = f.Live(context.Background(), within(t, prom, 100, 3), nil, 100)
	require.NoError(t, err)
	require.True(t, slices.Contains(regexes(live), "unused none_bucket|none_count|none_sum 4"), regexes(live))
	live, err = f.Live(context.Background(), within(t, prom, 3, 3), nil, 100)
	require.NoError(t, err)
	require.Contains(t, written(t, live), "the budget is used up")
}

func promServer(t *testing.T, lsets ...labels.Labels) *promapi.Client {
	t.Helper()
	return within(t, promtest.New(t, time.Minute, lsets...), 100, 1000)
}

func within(t *testing.T, prom *promtest.Server, requests, series int) *promapi.Client {
	t.Helper()
	b := promapi.Budget{Requests: requests, Series: series, Total: time.Hour, Timeout: time.Minute, Bytes: 10 << 20}
	c, err := promapi.New(prom.URL, &http.Transport{}, b)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// shown are the metrics of a server that runs the profile.
func shown(p relabel.Profile, instance string) []labels.Labels {
	out := []labels.Labels{labels.FromStrings("__name__", "unread", "a", "1")}
	for _, r := range p.Rules {
		out = append(out, labels.FromStrings("__name__", "prometheus_guard_drop_rule_info", "profile", p.Name, "rule", r.ID, "class", string(r.Class), "instance", instance))
	}
	return out
}

func TestFileForALiveServerExtendsTheProfileThatTheServerRuns(t *testing.T) {
	live := func(extends *relabel.Profile, lsets ...labels.Labels) string {
		f, err := New(evidence(t, ruleFile, ""))
		require.NoError(t, err)
		r, err := f.Live(context.Background(), promServer(t, lsets...), extends, 100)
		require.NoError(t, err)
		return written(t, r)
	}
	recommended, err := relabel.ProfileByName(relabel.ProfileRecommended)
	require.NoError(t, err)
	minimal, err := relabel.ProfileByName(relabel.ProfileMinimal)
	require.NoError(t, err)

	text := live(nil, shown(recommended, "a")...)
	require.Contains(t, text, "\nextends: recommended\n")
	require.Contains(t, text, "# The file extends the profile recommended")
	require.NotContains(t, text, "brings back")
	p, err := relabel.ParseProfile("suggested.yaml", []byte(text))
	require.NoError(t, err)
	require.Equal(t, recommended.Rules, p.Rules[:len(recommended.Rules)])
	require.Greater(t, len(p.Rules), len(recommended.Rules))

	// What is not in force, or not this build's, is no base, and it is said.
	own := recommended
	own.Rules = own.Rules[1:]
	for what, text := range map[string]string{
		"not a built-in profile of this build": live(nil, shown(own, "a")...),
		"metrics of servers with":              live(nil, append(shown(recommended, "a"), shown(minimal, "b")...)...),
		"NOT KNOWN is which drop rules":        live(nil, shown(relabel.Profile{}, "a")...),
	} {
		require.Contains(t, text, what)
		require.Contains(t, text, "brings back")
		require.NotContains(t, text, "\nextends:")
	}
	text = live(&minimal, shown(recommended, "a")...)
	require.Contains(t, text, "\nextends: minimal\n")
	require.Contains(t, text, "runs the profile recommended, which this file does not extend")
}

func TestSuggestionsAreOfWhatTheExtendedProfileLeaves(t *testing.T) {
	base, err := relabel.ProfileByName(relabel.ProfileRecommended)
	require.NoError(t, err)
	name := ""
	for _, r := range base.Rules {
		if len(r.SourceLabels) == 1 && r.SourceLabels[0] == "__name__" && name == "" {
			name = strings.Trim(strings.Split(r.Regex, "|")[0], "()")
		}
	}
	require.Regexp(t, "^[a-z_]+$", name, "a metric that the profile drops")
	source := append(series(t), evaluate.Series{Labels: labels.FromStrings("__name__", name)})
	f, err := New(evidence(t, ruleFile, fmt.Sprintf("{\"params\":{\"query\":%q}}", name)))
	require.NoError(t, err)
	r, err := f.Scan("a test", source, base, 100)
	require.NoError(t, err)
	require.Equal(t, len(series(t)), r.Total)
	text := written(t, r)
	require.Contains(t, text, "# They drop 12 of 30 series (40.0 %) of what the profile recommended leaves of a test.")
	require.Contains(t, text, "# NOT PROVED, of a rule of the profile recommended: ", "the query reads what the profile drops")

	f, err = New(evidence(t, ruleFile, ""))
	require.NoError(t, err)
	r, err = f.Scan("a test", source, base, 100)
	require.NoError(t, err)
	require.NotContains(t, written(t, r), "NOT PROVED")
	require.NotContains(t, strings.Join(regexes(r), " "), name)
}
