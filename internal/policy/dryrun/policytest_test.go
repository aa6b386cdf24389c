// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package dryrun

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/querylimit"
)

const log = `{"ts":"2026-01-02T00:00:00Z","endpoint":"query","dashboard":"d1","queries":["up"],"code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","dashboard":"d1","tenant":"a","queries":["rate(up[2d])"],"code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query_range","dashboard":"d2","queries":["up"],"start":"2025-12-30T00:00:00Z","end":"2026-01-02T00:00:00Z","step_seconds":60,"code":422}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query_range","alert":true,"alert_rule":"r1","queries":["up"],"start":"2025-12-30T00:00:00Z","end":"2026-01-02T00:00:00Z","step_seconds":60,"code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"series","user_agent":"curl","client":"10.0.0.1","queries":["{le!=\"\"}"],"code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","queries":["topk(5000,up)"],"code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","queries":["sum("],"code":400}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","fingerprints":["f"],"code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"series","fingerprints":["f"],"code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"write","code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"status/flags","code":200}
broken
`

func TestReportSaysWhoWouldBeRefusedAndWhy(t *testing.T) {
	opts := querylimit.DefaultOptions()
	opts.Range = querylimit.DurationBound{Mode: querylimit.ModeEnforce, Value: 24 * 3600e9}
	opts.TopK.Mode = querylimit.ModeWarn
	rules, err := querylimit.NewRuleset(querylimit.RulesetOptions{Global: opts})
	require.NoError(t, err)
	r, err := Run(rules, strings.NewReader(log))
	require.NoError(t, err)
	var b strings.Builder
	r.Write(&b)
	require.Equal(t, `7 requests: would refuse 4 (57 %), of which 1 were refused before; would warn 1 (14 %)
not judged: 1 malformed, 3 redacted, cut or of other endpoints, 0 evaluations of rules by the server itself, 1 lines that are not entries

LIMIT        ENFORCE  WARN  OBSERVE  FOR EXAMPLE
range        3        0     0        a query that reads 2d of samples exceeds the 1d allowed, with ranges, subqueries, offsets and lookback
selectivity  1        0     0        the selector {le!=""} names no metric and has no equality matcher, so the server would go through nearly every series it holds
topk         0        1     0        topk, bottomk or limitk with k of 5000 exceeds the 1000 allowed

REFUSED  BY DASHBOARD (2)
1        d1
1        d2

REFUSED  BY ALERT RULE (1)
1        r1

REFUSED  BY TENANT (1)
1        a

REFUSED  BY OTHER CLIENT (1)
1        10.0.0.1 curl
`, b.String())
}

func TestAnswersAreJudgedByHowLongTheyTookAndHowLargeTheyWere(t *testing.T) {
	opts := querylimit.DefaultOptions()
	opts.Deadlines[querylimit.ClassQuery] = 10e9
	opts.Responses = querylimit.Responses{Mode: querylimit.ModeEnforce}
	opts.Responses.Classes[querylimit.ClassQuery] = querylimit.ResponseLimit{Max: 1000, WireMax: 500}
	opts.Responses.Classes[querylimit.ClassMetadata] = querylimit.ResponseLimit{WireMax: 500, Truncate: true}
	rules, err := querylimit.NewRuleset(querylimit.RulesetOptions{Global: opts})
	require.NoError(t, err)
	r, err := Run(rules, strings.NewReader(`{"ts":"2026-01-02T00:00:00Z","endpoint":"query","queries":["up"],"code":200,"took_seconds":9,"bytes":500}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","dashboard":"slow","queries":["up"],"code":200,"took_seconds":11}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","dashboard":"slow","queries":["up"],"code":503,"took_seconds":11,"limits":["deadline:enforce"]}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","queries":["up"],"code":503,"took_seconds":11}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","dashboard":"large","queries":["up"],"code":200,"took_seconds":1,"bytes":501}
{"ts":"2026-01-02T00:00:00Z","endpoint":"labels","dashboard":"cut","code":200,"took_seconds":1,"bytes":501}
`))
	require.NoError(t, err)
	require.Equal(t, []int{6, 3, 1}, []int{r.Judged, r.Refused, r.Before})
	require.Equal(t, map[string]int{"slow": 2, "large": 1}, r.Dashboards)
	require.Equal(t, 2, r.Limits["response_bytes"][querylimit.ModeEnforce], "one of them would be truncated")
}

func TestAComparisonTellsWhatGetsLessThanItWasAnsweredWith(t *testing.T) {
	rules := func(change func(*querylimit.Options)) *querylimit.Ruleset {
		o := querylimit.DefaultOptions()
		o.Selectivity = querylimit.ModeOff
		change(&o)
		r, err := querylimit.NewRuleset(querylimit.RulesetOptions{Global: o})
		require.NoError(t, err)
		return r
	}
	const (
		day    = 24 * 3600e9
		ranged = `{"ts":"2026-01-02T00:00:00Z","endpoint":"query","queries":["rate(up[2d])"],"took_seconds":1,`
		series = `{"ts":"2026-01-02T00:00:00Z","endpoint":"series","queries":["up"],"took_seconds":1,`
	)
	bounded := func(mode querylimit.Mode, most time.Duration) func(*querylimit.Options) {
		return func(o *querylimit.Options) { o.Range = querylimit.DurationBound{Mode: mode, Value: most} }
	}
	results := func(most int) func(*querylimit.Options) {
		return func(o *querylimit.Options) {
			o.Results.Mode = querylimit.ModeEnforce
			o.Results.Sets[querylimit.ResultsSeries] = querylimit.ResultLimit{Max: most}
		}
	}
	since := func(length time.Duration) func(*querylimit.Options) {
		return func(o *querylimit.Options) {
			o.MetadataRange = querylimit.MetadataRange{Mode: querylimit.ModeEnforce, Default: length}
		}
	}
	size := func(most int64, truncate bool) func(*querylimit.Options) {
		return func(o *querylimit.Options) {
			o.Responses.Mode = querylimit.ModeEnforce
			o.Responses.Classes[querylimit.ClassMetadata] = querylimit.ResponseLimit{WireMax: most, Truncate: truncate}
		}
	}
	type counts struct{ answered, already, worse, unanswered int }
	for name, c := range map[string]struct {
		before, after func(*querylimit.Options)
		log           string
		want          counts
		limit         string
	}{
		"refused":                   {bounded(querylimit.ModeEnforce, 3*day), bounded(querylimit.ModeEnforce, day), ranged + `"code":200}`, counts{answered: 1, worse: 1}, "range"},
		"without a time":            {bounded(querylimit.ModeEnforce, 3*day), bounded(querylimit.ModeEnforce, day), `{"endpoint":"query","queries":["rate(up[2d])"],"code":200}`, counts{answered: 1, worse: 1}, "range"},
		"let through":               {bounded(querylimit.ModeEnforce, 4*day), bounded(querylimit.ModeEnforce, 3*day), ranged + `"code":200}`, counts{answered: 1}, ""},
		"warned of":                 {bounded(querylimit.ModeOff, 0), bounded(querylimit.ModeWarn, day), ranged + `"code":200}`, counts{answered: 1}, ""},
		"refused by both":           {bounded(querylimit.ModeEnforce, day), bounded(querylimit.ModeEnforce, day/2), ranged + `"code":200}`, counts{answered: 1, already: 1}, ""},
		"refused before":            {bounded(querylimit.ModeOff, 0), bounded(querylimit.ModeEnforce, day), ranged + `"code":422}`, counts{unanswered: 1}, ""},
		"broken off":                {bounded(querylimit.ModeOff, 0), bounded(querylimit.ModeEnforce, day), ranged + `"code":200,"aborted":"client"}`, counts{unanswered: 1}, ""},
		"malformed":                 {bounded(querylimit.ModeOff, 0), bounded(querylimit.ModeEnforce, day), `{"endpoint":"query","queries":["rate("],"code":200}`, counts{}, ""},
		"redacted":                  {bounded(querylimit.ModeOff, 0), bounded(querylimit.ModeEnforce, day), `{"endpoint":"query","fingerprints":["f"],"code":200}`, counts{}, ""},
		"fewer results":             {results(0), results(10), series + `"limit":11,"code":200}`, counts{answered: 1, worse: 1}, "results"},
		"fewer results than before": {results(10), results(5), series + `"limit":11,"code":200}`, counts{answered: 1, worse: 1}, "results"},
		"as many results":           {results(10), results(10), series + `"limit":11,"code":200}`, counts{answered: 1}, ""},
		"a shorter time":            {since(2 * day), since(day), series + `"code":200}`, counts{answered: 1, worse: 1}, "metadata_range"},
		"a longer time":             {since(day), since(2 * day), series + `"code":200}`, counts{answered: 1}, ""},
		"truncated":                 {size(0, true), size(10, true), series + `"bytes":11,"code":200}`, counts{answered: 1, worse: 1}, "response_bytes"},
		"not truncated":             {size(0, true), size(11, true), series + `"bytes":11,"code":200}`, counts{answered: 1}, ""},
		"too long":                  {size(10, true), size(10, false), series + `"bytes":11,"code":200}`, counts{answered: 1, worse: 1}, "response_bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Compare(rules(c.before), rules(c.after), strings.NewReader(c.log+"\n"))
			require.NoError(t, err)
			require.Equal(t, c.want, counts{got.Answered, got.Already, got.Worse, got.Unanswered})
			var text strings.Builder
			got.WriteProof(&text)
			if c.limit == "" {
				require.Empty(t, got.Limits)
				require.Contains(t, text.String(), "; none of them is newly refused or gets a shorter answer\n")
				return
			}
			require.Equal(t, map[string]int{c.limit: 1}, got.Limits)
			require.Contains(t, text.String(), "; 1 of them would be newly refused or get a shorter answer\n")
			require.Contains(t, text.String(), "limit "+c.limit+": 1, such as "+got.Examples[c.limit])
		})
	}
}
