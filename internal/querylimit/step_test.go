// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestABetterStepIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		query        string
		step, length time.Duration
		want         string // "" for nothing to say
	}{
		"as it should be":            {"rate(up[1m])", 30 * time.Second, time.Hour, ""},
		"below the interval":         {"up", 5 * time.Second, time.Hour, "a step of 5s is below the scrape interval of 15s, so that steps repeat samples; |Use a step of 15s"},
		"no multiple":                {"up", 20 * time.Second, time.Hour, "a step of 20s is no multiple of the scrape interval of 15s, so that steps have more or fewer samples by turns; |Use a step of 30s"},
		"no multiple of a long one":  {"up", 200 * time.Second, time.Hour, ""},
		"as many points as fit":      {"up", 15 * time.Second, 1999 * 15 * time.Second, ""},
		"too many points":            {"up", 15 * time.Second, 24 * time.Hour, "makes 5761 points, of which a panel shows about 2000; |Use a step of 45s"},
		"both":                       {"up", 20 * time.Second, 24 * time.Hour, "by turns, and makes 4321 points, of which a panel shows about 2000; |Use a step of 45s"},
		"longer than a range":        {"rate(up[1m]) + rate(up[5m])", 2 * time.Minute, time.Hour, "is longer than the range [1m] of the query, so that samples between two steps are not read; |Use ranges of at least 2m"},
		"longer, and of no interval": {"rate(up[1m])", 200 * time.Second, time.Hour, "so that samples between two steps are not read; |Use ranges of at least 3m20s"},
		"too many for a range":       {"rate(up[30s])", 15 * time.Second, 24 * time.Hour, "|Use a step of 45s (the minimum interval of the panel or data source) and ranges of at least 45s ("},
		"a range in a subquery":      {"max_over_time(rate(up[1m])[1h:1m])", 10 * time.Minute, time.Hour, ""},
		"a step of broken intervals": {"up", 1500 * time.Millisecond, time.Minute, "|Use a step of 15s "},
	} {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			o.StepRounding.Mode = ModeWarn
			p, err := New(o)
			require.NoError(t, err)
			q, _, err := NewAnalyzer(0).Expr(p, c.query)
			require.NoError(t, err)
			end := time.Unix(1_700_000_000, 0)
			e := Evaluation{Start: end.Add(-c.length), End: end, Step: c.step}
			rs := p.check(evaluation(q, e))
			if c.want == "" {
				require.Empty(t, rs)
				return
			}
			require.Len(t, rs, 1)
			require.NoError(t, rs.Err())
			require.Contains(t, rs[0].Error(), "Limit step_rounding: a range query with ")
			cause, remedy, _ := strings.Cut(c.want, "|")
			require.Contains(t, rs[0].Error(), cause)
			require.Contains(t, rs[0].Remedy, remedy)
			// Whoever follows the advice hears no more of it.
			if _, rest, ok := strings.Cut(rs[0].Remedy, "Use a step of "); ok {
				e.Step, err = time.ParseDuration(strings.Fields(rest)[0])
				require.NoError(t, err)
			}
			if !strings.Contains(rs[0].Remedy, "ranges") {
				require.Empty(t, p.check(evaluation(q, e)))
			}
		})
	}
}

func TestStepsOfAnyLengthMakeNoAdviceThatIsNone(t *testing.T) {
	for _, s := range []StepRounding{{}, {Interval: time.Second}, {Points: 1}, {Interval: 7 * time.Second, Points: 10}} {
		for _, step := range []time.Duration{1, time.Millisecond, time.Second, 10 * time.Second, time.Hour, 1 << 62} {
			for _, length := range []time.Duration{0, 1, time.Hour, 1<<63 - 1} {
				start := time.Unix(0, 0)
				a := s.advise(Evaluation{Start: start, End: start.Add(length), Step: step}, 0)
				if len(a.reasons) > 0 && s.Points > 1 {
					require.NotEqual(t, step, a.step, "%+v %s %s", s, step, length)
				}
				require.GreaterOrEqual(t, a.step, step, "%+v %s %s", s, step, length)
			}
		}
	}
	o := DefaultOptions()
	o.StepRounding.Points = -1
	_, err := New(o)
	require.ErrorContains(t, err, "step_rounding: interval is 15s and points -1")
}
