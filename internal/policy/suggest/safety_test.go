// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/policy/dryrun"
)

// refused returns how many requests of a log a policy refuses with what is suggested.
func refused(t *testing.T, policy string, s *Suggestion, log string) int {
	t.Helper()
	rules, _, err := rewrite([]byte(policy), s.Lines)
	require.NoError(t, err)
	r, err := dryrun.Run(rules, strings.NewReader(log))
	require.NoError(t, err)
	return r.Refused
}

func TestLimitsThatATenantOrARuleEnforcesAreDrawnAboveAllThatWasSeen(t *testing.T) {
	log := aLog(1000, "", 24) + aLog(200, "small", 24)
	for name, c := range map[string]struct{ policy, then string }{
		"a tenant":                       {"tenants:\n  small:\n    limits:\n      range: {mode: enforce}\n", "observe 16d"},
		"a tenant named by a number":     {"tenants:\n  1:\n    limits: &l\n      range: {mode: enforce}\n  2: {limits: *l}\n", "observe 16d"},
		"a rule for a tenant":            {"rules:\n- name: r\n  match: {tenant: small}\n  limits:\n    range: {mode: enforce}\n", "observe 16d"},
		"a rule for all":                 {"rules:\n- name: r\n  match: {class: query}\n  limits:\n    range: {mode: enforce}\n", "observe 16d"},
		"a rule with a value of its own": {"rules:\n- name: r\n  match: {class: query}\n  limits:\n    range: {mode: enforce, max: 31d}\n", "observe 1d13h"},
		"nobody":                         {"rules:\n- name: r\n  match: {class: query}\n  limits:\n    range: {mode: warn}\n", "observe 1d13h"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := "limits:\n  range: {mode: observe, max: 32d}\n" + c.policy
			s, err := suggest(t, policy, log, nil) // The tenant has too few for limits of its own.
			require.NoError(t, err)
			require.Equal(t, c.then, line(t, s, "", "range").Then)
			require.Zero(t, refused(t, policy, s, log), "%s", s.Fragment)
		})
	}
}

// A tenant's own limit is drawn for the rule that enforces it, too.
func TestLimitsOfATenantThatARuleEnforcesAreDrawnAboveAllThatItDid(t *testing.T) {
	log := aLog(2000, "", 48) + aLog(200, "small", 4)
	policy := "limits:\n  range: {mode: observe, max: 32d}\nrules:\n- name: r\n  match: {tenant: small}\n  limits:\n    range: {mode: enforce}\n"
	s, err := suggest(t, policy, log, func(o *Options) { o.MinRequests = 100 })
	require.NoError(t, err)
	require.Equal(t, "observe 2d13h", line(t, s, "small", "range").Then)
	require.Zero(t, refused(t, policy, s, log), "%s", s.Fragment)
}

func TestLogThatLeavesOutFastRequestsTightensNoLimitThatRefuses(t *testing.T) {
	const policy = "limits:\n  range: {mode: enforce, max: 32d}\n  oldest: {mode: warn, max: 400d}\n"
	slow := strings.ReplaceAll(aLog(1000, "", 24), `"took_seconds":0.2`, `"took_seconds":1.5`)
	fast := strings.ReplaceAll(aLog(200, "", 48), `"took_seconds":15`, `"took_seconds":0.3`)
	with := func(log, options string) string { return strings.ReplaceAll(log, `"code":200`, options+`,"code":200`) }
	for name, c := range map[string]struct {
		log     string
		partial bool
	}{
		"one that says so":            {with(slow, `"slower_than_seconds":1`), true},
		"one that says so, of a part": {with(slow, `"slower_than_seconds":0`) + with(aLog(10, "", 24), `"slower_than_seconds":1,"sample":0.5`), true},
		"one of all, which are slow":  {with(slow, `"slower_than_seconds":0`), false},
		"one of all by sample":        {with(slow, `"slower_than_seconds":1,"sample":1`), false},
		"one that says nothing":       {aLog(1000, "", 24), false},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := suggest(t, policy, c.log, nil)
			require.NoError(t, err)
			got := line(t, s, "", "range")
			require.Equal(t, "warn 1d13h", line(t, s, "", "oldest").Then, "which refuses nothing")
			require.Equal(t, "23s", line(t, s, "", "deadline.query").Then, "which the slow ones tell")
			if !c.partial {
				require.Equal(t, "enforce 16d", got.Then)
				return
			}
			require.Empty(t, got.Then)
			require.Equal(t, "the log leaves out fast requests", got.Why)
			require.Zero(t, refused(t, policy, s, fast))
			e, err := Gather(strings.NewReader(c.log))
			require.NoError(t, err)
			var b strings.Builder
			e.WriteEvidence(&b)
			require.Contains(t, b.String(), "the log leaves out fast requests: ")
		})
	}
}

func TestMoreThanCanBeBoundedIsNotBounded(t *testing.T) {
	large := strings.Replace(aLog(2000, "", 24), `"bytes":3000000`, `"bytes":3000000000`, 1)
	const policy = "limits:\n  response_bytes: {mode: enforce, query: {max: 0}}\n"
	s, err := suggest(t, policy, large, nil)
	require.NoError(t, err)
	require.Equal(t, "more than can be bounded", line(t, s, "", "response_bytes.query").Why)
	require.Zero(t, refused(t, policy, s, large))
}

func TestOneOddRequestDoesNotEndTheSuggestion(t *testing.T) {
	odd := `{"ts":"2026-01-02T00:00:00Z","endpoint":"query","class":"query","queries":["up"],"start":"0001-01-02T00:00:00Z","end":"0001-01-02T00:00:00Z","code":200,"took_seconds":1e12,"bytes":300}` + "\n"
	log := aLog(2000, "", 24) + odd
	s, err := suggest(t, "limits:\n  oldest: {mode: enforce, max: 0s}\n  deadline: {query: 0s}\n", log, nil)
	require.NoError(t, err)
	require.Equal(t, "more than can be bounded", line(t, s, "", "oldest").Why)
	require.Equal(t, "100y", line(t, s, "", "oldest").Most)
	require.Equal(t, "more than can be bounded", line(t, s, "", "deadline.query").Why)
	require.Equal(t, "observe 1d13h", line(t, s, "", "range").Then)
}

func TestRequestsWithoutAStartCountAsAskingForAllWithoutADefault(t *testing.T) {
	var b strings.Builder
	for i := range 4000 {
		at := time.Unix(1_700_000_000, 0).Add(time.Duration(i) * time.Minute)
		start := ""
		if i%2 == 0 {
			start = fmt.Sprintf(`"start":%q,`, at.Add(-time.Hour).Format(time.RFC3339))
		}
		fmt.Fprintf(&b, `{"ts":%q,"endpoint":"labels","class":"metadata",%s"code":200}`+"\n", at.Format(time.RFC3339), start)
	}
	for name, c := range map[string]struct{ policy, then string }{
		"by default":              {"limits:\n  metadata_range: {mode: enforce}\n", "enforce 1d"},
		"without one":             {"limits:\n  metadata_range: {mode: enforce, default: 0s}\n", ""},
		"without, observed":       {"limits:\n  metadata_range: {mode: observe, default: 0s}\n", ""},
		"without in a tenant":     {"tenants:\n  a: {limits: {metadata_range: {default: 0s}}}\n", ""},
		"without in a rule":       {"rules: [{name: r, match: {tenant: a}, limits: {metadata_range: {default: 0}}}]\n", ""},
		"with a long one":         {"tenants:\n  a: {limits: {metadata_range: {default: 7d}}}\n", "observe 1w"},
		"with a long own maximum": {"tenants:\n  a: {limits: {metadata_range: {default: 7d, max: 8d}}}\n", "observe 1d"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := suggest(t, c.policy, b.String(), nil)
			require.NoError(t, err)
			l := line(t, s, "", "metadata_range")
			require.Equal(t, c.then, l.Then)
			if c.then == "" {
				require.Equal(t, "more than can be bounded", l.Why)
				require.Equal(t, 4000, l.Requests)
			}
		})
	}
}

func TestAFewWrongTimesMakeNoPeriod(t *testing.T) {
	var b strings.Builder
	query := func(ts string) string {
		return `{"ts":"` + ts + `","endpoint":"query","class":"query","queries":["up"],"code":200,"took_seconds":0.1}` + "\n"
	}
	for i := range 2000 {
		b.WriteString(query(time.Date(2026, 1, 2, 0, 0, i, 0, time.UTC).Format(time.RFC3339)))
	}
	for _, ts := range []string{"1970-01-01T00:00:00Z", "2036-01-01T00:00:00Z"} {
		_, err := suggest(t, "", b.String()+query(ts), nil)
		require.Error(t, err)
		require.Regexp(t, `^too little evidence: 2001 requests that were answered, in hours that are 2h together; `, err.Error())
	}
	e, err := Gather(strings.NewReader(b.String() + `{"endpoint":"query","class":"query","queries":["up"],"code":200}` + "\n"))
	require.NoError(t, err)
	require.Equal(t, []int{2000, 1}, []int{e.Requests, e.LeftOut}, "without a time")
	require.Equal(t, time.Hour, e.period())
	_, err = suggest(t, "", aLog(2000, "", 24)+aLog(50, "", 24), nil)
	require.NoError(t, err)
}

func TestFailedQueriesOfPrometheusAreNoAnswers(t *testing.T) {
	e, err := Gather(strings.NewReader(`{"time":"2026-11-21T20:00:00.5Z","params":{"end":"2026-11-21T20:00:00.000Z","query":"up","start":"2026-11-21T19:00:00.000Z","step":15},"error":"query timed out in expression evaluation","stats":{"timings":{"execTotalTime":120}},"httpRequest":{"clientIP":"10.0.0.1","method":"POST","path":"/api/v1/query_range"}}` + "\n"))
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, []int{e.Requests, e.LeftOut})
}

func TestManyTenantsGetLimitsOfTheirOwn(t *testing.T) {
	var b strings.Builder
	const tenants = 40
	for i := range tenants {
		b.WriteString(aLog(100, fmt.Sprintf("team-%d", i), 24*(1+i%2*9)))
	}
	s, err := suggest(t, "", b.String(), func(o *Options) { o.MinRequests = 100 })
	require.NoError(t, err)
	require.Equal(t, tenants/2, strings.Count(string(s.Fragment), "\n  team-"))
	require.Zero(t, refused(t, "", s, b.String()))
}

func TestAnswersThatBrokeOffAreNoEvidence(t *testing.T) {
	entry := func(more string) string {
		return `{"ts":"2026-01-02T00:00:00Z","endpoint":"query","class":"query","queries":["up"],"code":200,` + more + `"took_seconds":0.1,"bytes":100}` + "\n"
	}
	e, err := Gather(strings.NewReader(entry("") + entry(`"aborted":"upstream",`) + entry(`"aborted":"client",`)))
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, []int{e.Requests, e.LeftOut})
}
