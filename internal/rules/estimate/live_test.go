// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/promapi"
	"github.com/promguard/promguard/internal/promapi/promtest"
	"github.com/promguard/promguard/internal/proxy"
	"github.com/promguard/promguard/internal/proxy/identity"
	"github.com/promguard/promguard/internal/querylimit"
	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/evaluate"
)

const rules = `
name: test
summary: for a test
rules:
  - {id: whole, class: unused, source_labels: [__name__], regex: 'gone|also_gone', reason: for a test}
  - {id: family, class: unused, source_labels: [__name__], regex: 'fam_.*', jobs: [one], reason: for a test}
  - {id: empty, class: disjoint, source_labels: [__name__, id, container], regex: '(part|fam_a);/k/.*;', reason: for a test}
  - {id: overlap, class: unused, source_labels: [__name__, id], regex: 'part;/k/1.*', reason: for a test}
  - {id: either, class: disjoint, source_labels: [__name__, id, container], regex: '(other;/k/.*;a|other;/s/.*;b)', reason: for a test}
  - {id: thin, class: thin, histograms: [h], drop_le: [0.2, 2], bounds: [0.1, 0.2, 1, 2, 5], reason: for a test}
  - {id: none, class: unused, source_labels: [__name__], regex: 'nowhere', reason: for a test}
`

func profile(t testing.TB, text string) relabel.Profile {
	t.Helper()
	p, err := relabel.ParseProfile("test.yaml", []byte(text))
	require.NoError(t, err)
	return p
}

// installation has targets instances of two jobs, and series that each of the
// rules drops, and such that it does not.
func installation(targets int) []labels.Labels {
	var out []labels.Labels
	for _, job := range []string{"one", "two"} {
		for i := range targets {
			n := 0
			add := func(kv ...string) {
				n++
				out = append(out, labels.FromStrings(append(kv, "job", job, "instance", fmt.Sprintf("10.0.0.%d:80", i))...))
			}
			for _, name := range []string{"gone", "also_gone", "fam_a", "fam_b", "kept"} {
				add("__name__", name)
			}
			for _, id := range []string{"/k/1", "/k/12", "/k/2", "/s/1"} {
				for _, container := range []string{"", "a", "b"} {
					for _, name := range []string{"part", "other", "fam_a"} {
						add("__name__", name, "id", id, "container", container)
					}
				}
			}
			for _, le := range []string{"0.1", "0.2", "1.0", "2.0", "5.0", "+Inf"} {
				add("__name__", "h_bucket", "le", le)
			}
			out = append(out, labels.FromStrings("__name__", "up", "job", job, "instance", fmt.Sprintf("10.0.0.%d:80", i)))
		}
	}
	return out
}

func scrapes(series []labels.Labels) []evaluate.Series {
	var out []evaluate.Series
	for _, s := range series {
		out = append(out, evaluate.Series{Labels: s, Value: 1})
	}
	return out
}

// guarded puts promguard with its default policy in front of a server.
func guarded(t *testing.T, upstream string) string {
	t.Helper()
	u, err := proxy.ParseUpstream(upstream)
	require.NoError(t, err)
	set, err := querylimit.NewRuleset(querylimit.RulesetOptions{Global: querylimit.DefaultOptions()})
	require.NoError(t, err)
	transport := proxy.NewTransport()
	p := proxy.New(proxy.Options{
		Upstream: u, Policy: proxy.Policy{Rules: set, Identity: identity.NewSource(nil, "")},
		Registerer: prometheus.NewRegistry(), Logger: promslog.NewNopLogger(), Transport: transport,
	})
	srv := httptest.NewServer(p)
	t.Cleanup(func() {
		srv.Close()
		transport.CloseIdleConnections()
	})
	return srv.URL
}

var ample = promapi.Budget{Requests: 100, Total: time.Hour, Timeout: time.Minute, Series: 100_000, Bytes: 10 << 20}

func server(t testing.TB, url string) *promapi.Client { return within(t, url, ample) }

func within(t testing.TB, url string, b promapi.Budget) *promapi.Client {
	t.Helper()
	c, err := promapi.New(url, &http.Transport{}, b)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// small is a budget of queries that read few series.
func small(series int) promapi.Budget {
	b := ample
	b.Series = series
	return b
}

func seriesByRule(c Counts) []int {
	out := make([]int, len(c.ByRule))
	for i, byJob := range c.ByRule {
		for _, n := range byJob {
			out[i] += n
		}
	}
	return out
}

// What is counted by queries, with promguard between or without, is what the
// rules drop of the same series.
func TestLiveServerIsCountedLikeItsSeries(t *testing.T) {
	p, series := profile(t, rules), installation(5)
	want, err := Scan(p, "", scrapes(series))
	require.NoError(t, err)
	require.Equal(t, []int{20, 70, 45, 40, 40, 20, 0}, seriesByRule(want))
	prom := promtest.New(t, 30*time.Second, series...)
	for name, url := range map[string]string{"direct": prom.URL, "guarded": guarded(t, prom.URL)} {
		got, err := Live(context.Background(), p, server(t, url))
		require.NoError(t, err, name)
		for i := range p.Rules {
			require.Empty(t, got.Unknown[i], name)
			require.Empty(t, got.Approximate[i], name)
			for job, n := range want.ByRule[i] {
				require.Equal(t, n, got.ByRule[i][job], "%s: rule %s, job %s", name, p.Rules[i].ID, job)
			}
		}
		require.Equal(t, seriesByRule(want), seriesByRule(got), name)
		require.Equal(t, len(series), got.Head, name)
	}
}

func TestOnlyNamesThatRulesMayDropAreAsked(t *testing.T) {
	prom := promtest.New(t, time.Minute, installation(1)...)
	_, err := Live(context.Background(), profile(t, rules), server(t, prom.URL))
	require.NoError(t, err)
	for _, q := range prom.Asked() {
		require.NotContains(t, q, "kept")
	}
	require.Contains(t, prom.Asked(), `count by (__name__, job) ({__name__=~"also_gone|gone"})`)
}

func TestQueryReadsNoMoreThanItMay(t *testing.T) {
	p, series := profile(t, rules), installation(40)
	prom := promtest.New(t, time.Minute, series...)
	size := map[string]int{}
	for _, s := range series {
		size[s.Get("__name__")]++
	}
	s := within(t, prom.URL, small(300))
	got, err := Live(context.Background(), p, s)
	require.NoError(t, err)
	want, err := Scan(p, "", scrapes(series))
	require.NoError(t, err)
	// Every target has as many, so that a sample is exact.
	require.Equal(t, seriesByRule(want), seriesByRule(got))
	require.Contains(t, got.Approximate[3], "sample of targets")
	require.Empty(t, got.Approximate[0])
	for _, q := range prom.Asked() {
		if strings.Contains(q, "instance=~") || !strings.HasPrefix(q, "count by") {
			continue
		}
		read := 0
		for name, n := range size {
			if strings.Contains(q, `"`+name+`"`) || strings.Contains(q, "|"+name) || strings.Contains(q, name+"|") {
				read += n
			}
		}
		require.LessOrEqual(t, read, 300, q)
	}
}

func TestMetricOfOneTargetThatIsTooLargeIsUnknownUnlessAllOfItGoes(t *testing.T) {
	var series []labels.Labels
	for i := range 100 {
		for _, name := range []string{"gone", "part"} {
			series = append(series, labels.FromStrings("__name__", name, "job", "one", "instance", "a", "id", fmt.Sprintf("/k/%d", i)))
		}
	}
	series = append(series, labels.FromStrings("__name__", "up", "job", "one", "instance", "a"))
	s := within(t, promtest.New(t, time.Minute, series...).URL, small(50))
	p := profile(t, rules)
	c, err := Live(context.Background(), p, s)
	require.NoError(t, err)
	require.Equal(t, []int{100, 0, 0, 0, 0, 0, 0}, seriesByRule(c))
	require.Contains(t, c.Approximate[0], "churned ones included")
	require.Contains(t, c.Unknown[2], "part could not be counted: it has up to 100 series, more than the 50")
	require.Contains(t, c.Unknown[3], "--max-series")
	e := New(p, c, Intervals{Default: time.Minute}, ModelSizes())
	require.Equal(t, 2, e.ExitCode())
}

// Drop rules hold for every job: also for those that federation and push gateways
// give their series, and that no target has.
func TestLargeMetricOfAJobThatIsNotInUpIsUnknownUnlessAllOfItGoes(t *testing.T) {
	series := []labels.Labels{labels.FromStrings("__name__", "up", "job", "federate", "instance", "f:1")}
	for i := range 200 {
		for _, name := range []string{"gone", "part"} {
			series = append(series, labels.FromStrings("__name__", name, "job", "leaf", "instance", fmt.Sprintf("i%d:1", i%50), "id", fmt.Sprintf("/k/%d", i)))
		}
		series = append(series, labels.FromStrings("__name__", "other", "id", fmt.Sprintf("/s/%d", i)))
	}
	s := within(t, promtest.New(t, time.Minute, series...).URL, small(50))
	c, err := Live(context.Background(), profile(t, rules), s)
	require.NoError(t, err)
	require.Equal(t, []int{200, 0, 0, 0, 0, 0, 0}, seriesByRule(c))
	require.Contains(t, c.Approximate[0], "churned ones included")
	require.Contains(t, c.Unknown[2], `job "leaf" is not in up`)
	require.Contains(t, c.Unknown[4], "its series have no job")
}

// All series of the metric are on the last of many instances. Whether a sample has
// it or not, the answer is not that there are none.
func TestLargeMetricOfFewTargetsIsNeverCountedAsNone(t *testing.T) {
	var series []labels.Labels
	for i := range 40 {
		series = append(series, labels.FromStrings("__name__", "up", "job", "a", "instance", fmt.Sprintf("i%02d:1", i)))
	}
	for i := range 400 {
		for _, name := range []string{"gone", "part"} {
			series = append(series, labels.FromStrings("__name__", name, "job", "a", "instance", "i39:1", "id", fmt.Sprintf("/k/%d", i)))
		}
	}
	prom := promtest.New(t, time.Minute, series...)
	for range 10 {
		s := within(t, prom.URL, small(100))
		c, err := Live(context.Background(), profile(t, rules), s)
		require.NoError(t, err)
		counted := seriesByRule(c)
		require.Equal(t, 400, counted[0])
		if c.Unknown[2] == "" {
			require.Equal(t, 400, counted[2])
			require.Contains(t, c.Approximate[2], "has no bound")
		}
	}
}

func TestSampleOfTargetsIsChosenAtRandom(t *testing.T) {
	prom := promtest.New(t, time.Minute, installation(60)...)
	chosen := map[string]bool{}
	for range 3 {
		l, err := newLive(profile(t, rules), server(t, prom.URL))
		require.NoError(t, err)
		s, err := l.sampleOf(context.Background(), "one")
		require.NoError(t, err)
		require.Equal(t, 60, s.of)
		require.Len(t, s.instances, maxSample)
		chosen[fmt.Sprint(s.instances)] = true
	}
	require.Greater(t, len(chosen), 1)
}

// A server that does not answer a part leaves the rest known.
func TestRuleOfWhichTheServerSaysNothingIsUnknown(t *testing.T) {
	prom := promtest.New(t, time.Minute, installation(2)...)
	prom.Fail = func(r *http.Request) (int, string) {
		switch q := r.FormValue("query"); {
		case strings.Contains(q, "h_bucket"):
			return http.StatusUnprocessableEntity, "limit selectivity: no"
		case strings.Contains(q, "gone"):
			return http.StatusServiceUnavailable, "query timed out"
		case r.URL.Path == "/api/v1/status/tsdb", r.URL.Path == "/api/v1/status/config":
			return http.StatusForbidden, "not here"
		}
		return 0, ""
	}
	p, s := profile(t, rules), server(t, prom.URL)
	c, err := Live(context.Background(), p, s)
	require.NoError(t, err)
	require.Contains(t, c.Unknown[0], "query timed out")
	require.Contains(t, c.Unknown[5], "limit selectivity: no")
	for _, known := range []int{1, 2, 3, 4, 6} {
		require.Empty(t, c.Unknown[known])
	}
	require.Equal(t, []int{0, 28, 18, 16, 16, 0, 0}, seriesByRule(c))
	require.Equal(t, []string{"one", "two"}, c.Jobs())
	in, notes := LiveIntervals(context.Background(), s, []string{"one", "two", "three"}, 15*time.Second)
	require.Equal(t, map[string]time.Duration{"one": time.Minute, "two": time.Minute}, in.ByJob)
	require.Len(t, notes, 2)
	require.Contains(t, notes[1], "three is taken to be 15s")
}

func TestBudgetEndsTheCountAndSaysWhatIsMissing(t *testing.T) {
	prom := promtest.New(t, time.Minute, installation(1)...)
	few := ample
	few.Requests = 4
	s := within(t, prom.URL, few)
	p := profile(t, rules)
	c, err := Live(context.Background(), p, s)
	require.NoError(t, err)
	require.Len(t, prom.Asked(), 4)
	unknown := 0
	for _, why := range c.Unknown {
		if why != "" {
			unknown++
			require.Contains(t, why, "the budget is used up: 4 requests have been made")
		}
	}
	require.NotZero(t, unknown)
	require.Empty(t, c.Unknown[6], "nothing has its name")

	_, err = Live(context.Background(), p, s)
	require.ErrorIs(t, err, promapi.ErrBudget)
}

func TestServerThatStopsAnsweringIsLeftAlone(t *testing.T) {
	prom := promtest.New(t, time.Minute, installation(1)...)
	prom.Fail = func(r *http.Request) (int, string) {
		if strings.HasPrefix(r.FormValue("query"), "count by") {
			return http.StatusServiceUnavailable, "overloaded"
		}
		return 0, ""
	}
	c, err := Live(context.Background(), profile(t, rules), server(t, prom.URL))
	require.NoError(t, err)
	require.Len(t, prom.Asked(), 4+3, "four requests before, and three that failed")
	require.Contains(t, strings.Join(c.Unknown, "\n"), "did not answer 3 times in a row")
}

func TestSizesAreThoseOfTheBuildThatIsAsked(t *testing.T) {
	build := func(instance, version string) labels.Labels {
		return labels.FromStrings("__name__", "prometheus_build_info", "instance", instance, "version", version)
	}
	for _, tc := range []struct {
		series []labels.Labels
		want   string
	}{
		{nil, "upstream"},
		{[]labels.Labels{build("a", "3.16.0")}, "upstream"},
		{[]labels.Labels{build("a", "3.16.0+promguard.1")}, "the patched build"},
		{[]labels.Labels{build("a", "3.16.0+promguard.1"), build("b", "3.16.0")}, "upstream"},
	} {
		s := promtest.New(t, time.Minute, tc.series...)
		got := LiveSizes(t.Context(), server(t, s.URL))
		require.Equal(t, tc.want, got.Build)
		require.Equal(t, tc.want == "upstream", got.HeadBytesPerSeries == modelHeadBytesPerSeries)
	}
}

func TestIntervalIsThatOfTheConfigurationOrOfSamples(t *testing.T) {
	prom := promtest.New(t, 30*time.Second, installation(3)...)
	for config, want := range map[string]map[string]time.Duration{
		"global: {scrape_interval: 15s}\nscrape_configs: [{job_name: x}]":                                            {"one": 15 * time.Second, "two": 15 * time.Second},
		"scrape_configs: [{job_name: one}, {job_name: x, scrape_interval: 5s}]":                                      {"one": time.Minute, "two": 30 * time.Second},
		"scrape_configs: [{job_name: x}]\nscrape_config_files: [a.yml]":                                              {"one": 30 * time.Second, "two": 30 * time.Second},
		"scrape_configs: [{job_name: one, scrape_interval: x}, {job_name: two, scrape_interval: 1h}, {job_name: y}]": {"one": time.Minute, "two": time.Hour},
		"{": {"one": 30 * time.Second, "two": 30 * time.Second},
	} {
		prom.Config = config
		in, notes := LiveIntervals(context.Background(), server(t, prom.URL), []string{"one", "two"}, time.Hour)
		require.Equal(t, want, in.ByJob, config)
		require.Empty(t, notes)
	}
}

// Random rules on random series: queries and the rules themselves agree.
func TestLiveCountsAreThoseOfTheRulesOnRandomSeries(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	series := installation(2)
	prom := promtest.New(t, time.Minute, series...)
	regexes := []string{"part", "fam_.*", "(part|other)", "h_bucket", "[a-z]+_gone|gone", ".*"}
	values := []string{"", "/k/.*", ".+", "a|b", "(0.2|2\\.0)", ".*"}
	sources := []string{"id", "container", "le", "instance"}
	for range 15 {
		var b strings.Builder
		b.WriteString("name: random\nrules:\n")
		for i := range 4 {
			label := sources[rnd.IntN(len(sources))]
			fmt.Fprintf(&b, "  - {id: r%d, class: unused, source_labels: [__name__, %s], regex: '(?:%s);(?:%s)', reason: random}\n",
				i, label, regexes[rnd.IntN(len(regexes))], values[rnd.IntN(len(values))])
		}
		p := profile(t, b.String())
		want, err := Scan(p, "", scrapes(series))
		require.NoError(t, err)
		got, err := Live(context.Background(), p, server(t, prom.URL))
		require.NoError(t, err)
		require.Equal(t, seriesByRule(want), seriesByRule(got), b.String())
	}
}

func FuzzConfiguration(f *testing.F) {
	f.Add("global: {scrape_interval: 15s}\nscrape_configs: [{job_name: one, scrape_interval: 1m}]")
	f.Add("scrape_configs: [{job_name: x}]\nscrape_config_files: [a.yml]")
	f.Fuzz(func(t *testing.T, text string) {
		in := Intervals{ByJob: map[string]time.Duration{}, Default: time.Minute}
		in.configured(text, []string{"one", "two"})
		for job, d := range in.ByJob {
			if d <= 0 {
				t.Errorf("%s: %s", job, d)
			}
		}
	})
}
