// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A limit that is drawn from what was measured refuses nothing that was answered.
func TestWhatALimitRefusesIsMeasuredAsMore(t *testing.T) {
	const bound = 24 * time.Hour
	for _, tc := range []struct {
		endpoint, text string
		start, end     time.Duration // before now; 0 means none
		limits         []string
	}{
		{"query", "up[2d]", 0, 0, []string{LimitRange, LimitOldest}},
		{"query", "up[1h]", 0, 0, nil},
		{"query", "up offset 2d", 0, 0, []string{LimitOldest}},
		{"query_range", "up", 48 * time.Hour, time.Hour, []string{LimitRange, LimitOldest}},
		{"query_range", "up", time.Hour, time.Minute, nil},
		{"query_exemplars", "up", 48 * time.Hour, time.Hour, []string{LimitRange, LimitOldest}},
		{"query_exemplars", "up", 0, time.Hour, []string{LimitRange, LimitOldest}},
		{"query_exemplars", "up", 0, 0, []string{LimitRange, LimitOldest}},
		{"query_exemplars", "up", time.Hour, 0, nil},
		{"series", "up", 48 * time.Hour, time.Hour, []string{LimitMetadataRange}},
		{"series", "up", time.Hour, 0, nil},
	} {
		r := &Request{Endpoint: FindEndpoint(tc.endpoint), Texts: []string{tc.text}, Limit: -1, Lookback: 5 * time.Minute, SubqueryStep: time.Minute}
		if tc.start > 0 {
			r.Start, r.Given, r.Step = testNow.Add(-tc.start), true, time.Minute
		}
		if tc.end > 0 {
			r.End = testNow.Add(-tc.end)
		}
		opts := DefaultOptions()
		opts.Range, opts.Oldest = Bound{ModeEnforce, int(bound)}, Bound{ModeEnforce, int(bound)}
		opts.MetadataRange.Mode, opts.MetadataRange.Default, opts.MetadataRange.Max = ModeEnforce, bound, bound
		set, err := NewRuleset(RulesetOptions{Global: opts})
		require.NoError(t, err)
		v, err := set.Judge(NewAnalyzer(0), r, testNow)
		require.NoError(t, err)
		var refused, more []string
		for _, refusal := range v.Refusals {
			refused = append(refused, refusal.Limit)
		}
		Measure(r, v.Queries, testNow, func(limit string, value float64) {
			switch limit {
			case LimitRange, LimitOldest, LimitMetadataRange:
				if value > float64(bound) {
					more = append(more, limit)
				}
			}
		})
		require.ElementsMatch(t, tc.limits, refused, "%+v", tc)
		require.ElementsMatch(t, refused, more, "%+v", tc)
	}
}

func TestWhatALimitRefusesItExplainsAsExceededAndMeasuresAsMore(t *testing.T) {
	const bound = 3
	p := newPolicy(t, func(o *Options) {
		for _, c := range Counts() {
			*c.Of(o) = Bound{ModeEnforce, max(bound, c.Min)}
			if c.IsTime {
				c.Of(o).Max = int(time.Hour)
			}
		}
	})
	seen := map[string]int{}
	for _, text := range append(corpus(t), `{le!=""}`, `topk(5, a)`, `a * on() b * on() c * on() d * on() e`, `max_over_time(a[1h:]) + max_over_time(b[1h:]) + max_over_time(c[1h:]) + max_over_time(d[1h:])`, `count_values("v", a) + count_values("v", b) + count_values("v", c) + count_values("v", d)`) {
		expr, err := testParser.ParseExpr(text)
		if err != nil {
			continue
		}
		q := Analyze(text, expr)
		q.cost.Add(text)
		q.parse = testParser.ParseExpr
		for _, step := range []time.Duration{0, 50 * time.Second, 2 * time.Hour} {
			a := evaluation(q, steps(step*100, step))
			a.Head = testHead()
			for _, l := range all {
				refusal := l.check(p, a)
				finding, ok := l.explain(p, a)
				require.Equal(t, refusal != nil, ok && finding.Exceeded, "%s: %s", l.name(), text)
				value, ok := l.measure(a)
				if c, isCount := l.(*Count); isCount {
					require.Equal(t, refusal != nil && !c.Auto(), ok && value > float64(c.Of(&p.opts).Max), "%s: %s", c.Name, text)
				}
				if refusal != nil {
					require.Equal(t, l.name(), refusal.Limit)
					seen[l.name()]++
				}
			}
		}
	}
	for _, l := range all {
		switch l.name() {
		case LimitMetadataRange: // Of other endpoints.
		default:
			require.Positive(t, seen[l.name()], "no query is over %s", l.name())
		}
	}
}
