// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package dryrun

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/querylimit"
)

const log = `{"ts":"2026-01-02T00:00:00Z","endpoint":"query","dashboard":"d1","queries":["up"],"code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","dashboard":"d1","tenant":"a","queries":["rate(up[2d])"],"code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query_range","dashboard":"d2","queries":["up"],"start":"2025-12-30T00:00:00Z","end":"2026-01-02T00:00:00Z","step_seconds":60,"code":422}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query_range","alert":true,"alert_rule":"r1","queries":["up"],"start":"2025-12-30T00:00:00Z","end":"2026-01-02T00:00:00Z","step_seconds":60,"code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"series","user_agent":"curl","client":"10.0.0.1","queries":["{le!=\"\"}"],"code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","queries":["abs(ceil(floor(up)))"],"code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","queries":["sum("],"code":400}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","fingerprints":["f"],"code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"series","fingerprints":["f"],"code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"write","code":200}
{"ts":"2026-01-02T00:00:00Z","endpoint":"status/flags","code":200}
broken
`

func TestReportSaysWhoWouldBeRefusedAndWhy(t *testing.T) {
	opts := querylimit.DefaultOptions()
	opts.Range = querylimit.Bound{Mode: querylimit.ModeEnforce, Max: int(24 * 3600e9)}
	opts.QueryOperators = querylimit.Bound{Mode: querylimit.ModeWarn, Max: 2}
	rules, err := querylimit.NewRuleset(querylimit.RulesetOptions{Global: opts})
	require.NoError(t, err)
	r, err := Run(rules, strings.NewReader(log))
	require.NoError(t, err)
	var b strings.Builder
	r.Write(&b)
	require.Equal(t, `7 requests: would refuse 4 (57 %), of which 1 were refused before; would warn 1 (14 %)
not judged: 1 malformed, 3 redacted, cut or of other endpoints, 0 evaluations of rules by the server itself, 1 lines that are not entries

LIMIT            ENFORCE  WARN  OBSERVE  FOR EXAMPLE
query_operators  0        1     0        PromQL of 3 operators, calls and brackets exceeds the 2 allowed
range            3        0     0        a query that reads 2d of samples, with ranges, subqueries, offsets and lookback, exceeds the 1d allowed
selectivity      1        0     0        the selector {le!=""} names no metric and has no equality matcher, so the server would go through nearly every series it holds

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
	opts.Responses.Classes[querylimit.ClassMetadata] = querylimit.ResponseLimit{WireMax: 500}
	rules, err := querylimit.NewRuleset(querylimit.RulesetOptions{Global: opts})
	require.NoError(t, err)
	r, err := Run(rules, strings.NewReader(`{"ts":"2026-01-02T00:00:00Z","endpoint":"query","queries":["up"],"code":200,"took_seconds":9,"bytes":500}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","dashboard":"slow","queries":["up"],"code":200,"took_seconds":11}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","dashboard":"slow","queries":["up"],"code":503,"took_seconds":11,"limits":["deadline:enforce"]}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","queries":["up"],"code":503,"took_seconds":11}
{"ts":"2026-01-02T00:00:00Z","endpoint":"query","dashboard":"large","queries":["up"],"code":200,"took_seconds":1,"bytes":501}
{"ts":"2026-01-02T00:00:00Z","endpoint":"labels","dashboard":"long","code":200,"took_seconds":1,"bytes":501}
`))
	require.NoError(t, err)
	require.Equal(t, []int{6, 4, 1}, []int{r.Judged, r.Refused, r.Before})
	require.Equal(t, map[string]int{"slow": 2, "large": 1, "long": 1}, r.Dashboards)
	require.Equal(t, 2, r.Limits["response_bytes"][querylimit.ModeEnforce])
}
