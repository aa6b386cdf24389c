// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/policy/dryrun"
	"github.com/promguard/promguard/internal/proxy/config"
	"github.com/promguard/promguard/internal/querylimit"
)

// aLog has n range queries of a tenant over so many hours, every hundredth ten
// times as long and as slow.
func aLog(n int, tenant string, hours int) string {
	var b strings.Builder
	start := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for i := range n {
		at := start.Add(time.Duration(i) * 2 * 24 * time.Hour / time.Duration(n-1))
		length, took := hours, 0.2
		if i%100 == 99 {
			length, took = 10*hours, 15
		}
		fmt.Fprintf(&b, `{"ts":%q,"endpoint":"query_range","class":"query","tenant":%q,"queries":["sum(rate(up[5m]))"],"start":%q,"end":%q,"step_seconds":60,"code":200,"took_seconds":%g,"bytes":3000000}`+"\n",
			at.Format(time.RFC3339), tenant, at.Add(-time.Duration(length)*time.Hour).Format(time.RFC3339), at.Format(time.RFC3339), took)
	}
	return b.String()
}

func suggest(t *testing.T, policy, log string, change func(*Options)) (*Suggestion, error) {
	t.Helper()
	e, err := Gather(strings.NewReader(log))
	require.NoError(t, err)
	o := Options{Margin: 1.5, MinRequests: 1000, MinPeriod: 24 * time.Hour}
	if change != nil {
		change(&o)
	}
	return Suggest([]byte(policy), e, o)
}

func line(t *testing.T, s *Suggestion, tenant, limit string) Line {
	t.Helper()
	i := slices.IndexFunc(s.Lines, func(l Line) bool { return l.Tenant == tenant && l.Limit == limit })
	require.NotEqual(t, -1, i, "%s %s", tenant, limit)
	return s.Lines[i]
}

func TestLimitsThatOnlyCountAreDrawnAtThePercentileAndOthersAboveAllThatWasSeen(t *testing.T) {
	s, err := suggest(t, "", aLog(2000, "", 24), nil)
	require.NoError(t, err)
	// The range is that of the query and of rate, to 1 %.
	l := line(t, s, "", "range")
	require.Equal(t, 2000, l.Requests)
	require.Equal(t, []string{"1d14m", "10d5m", "observe 32d", "observe 1d13h"}, []string{l.P99, l.Most, l.Now, l.Then})
	require.Equal(t, "23s", line(t, s, "", "deadline.query").Then, "15s of the slowest, since a deadline has no mode")
	require.Equal(t, "observe 4500000", line(t, s, "", "response_bytes.query").Then)
	require.Equal(t, "enforce 4100", line(t, s, "", "query_bytes").Then, "not below what costs nothing")
	require.Equal(t, `limits:
  deadline: {query: 23s}
  query_bytes: {mode: enforce, max: 4100}
  query_operators: {mode: enforce, max: 100}
  range: {mode: observe, max: 1d13h}
  oldest: {mode: observe, max: 1d13h}
  response_bytes: {mode: observe, query: {wire_max: 4500000}}
`, string(s.Fragment))
}

func TestWhatIsSuggestedRefusesNothingThatWasAnsweredBefore(t *testing.T) {
	log := aLog(2000, "", 24)
	s, err := suggest(t, "", log, nil)
	require.NoError(t, err)
	c, err := config.Parse(s.Fragment) // Which is a whole policy where there was none.
	require.NoError(t, err)
	r, err := dryrun.Run(c.Rules, strings.NewReader(log))
	require.NoError(t, err)
	require.Zero(t, r.Refused)
	require.Equal(t, 20, r.Limits["range"][querylimit.ModeObserve])
}

func TestNoSuggestionIsLooserThanThePolicy(t *testing.T) {
	const policy = "# mine\nlimits:\n  range: {mode: warn, max: 12h} # short\n  oldest: {mode: off, max: 1h}\n"
	s, err := suggest(t, policy, aLog(2000, "", 24), nil)
	require.NoError(t, err)
	require.Equal(t, "already exceeded", line(t, s, "", "range").Why)
	require.Equal(t, "observe 1d13h", line(t, s, "", "oldest").Then, "a limit that is off bounds nothing")
	require.Contains(t, string(s.Fragment), "  oldest: {mode: observe, max: 1d13h}\n")
	require.NotContains(t, string(s.Fragment), "  range:")
	s, err = suggest(t, "limits: {range: {mode: warn, max: 25h}}\n", aLog(2000, "", 24), nil)
	require.NoError(t, err)
	require.Equal(t, "tight enough", line(t, s, "", "range").Why, "25h is more than was seen, and less than with the margin")
}

func TestADurationOfZeroIsNoBound(t *testing.T) {
	s, err := suggest(t, "limits:\n  range: {mode: warn, max: 0s}\n", aLog(2000, "", 24), nil)
	require.NoError(t, err)
	require.Equal(t, "warn unbounded", line(t, s, "", "range").Now)
	require.Equal(t, "warn 1d13h", line(t, s, "", "range").Then)
}

func TestTenantsGetWhatEverybodysLimitsDoNotFit(t *testing.T) {
	s, err := suggest(t, "", aLog(16_000, "small", 2)+aLog(100, "large", 40)+aLog(50, "few", 400), func(o *Options) { o.MinRequests = 100 })
	require.NoError(t, err)
	require.Equal(t, "observe 1d7h", line(t, s, "", "range").Then, "large is less than 1 % of all")
	require.Equal(t, "observe 2d13h", line(t, s, "large", "range").Then)
	require.Contains(t, string(s.Fragment), "tenants:\n  large:\n    limits:\n")
	require.NotContains(t, string(s.Fragment), "few")
	require.NotContains(t, string(s.Fragment), "small")
}

func TestTooLittleEvidenceIsRefused(t *testing.T) {
	_, err := suggest(t, "", aLog(999, "", 24), nil)
	require.ErrorContains(t, err, "too little evidence: 999 requests that were answered, in hours that are 2d1h together; limits are drawn from at least 1000 in 1d")
	_, err = suggest(t, "", aLog(2000, "", 24), func(o *Options) { o.MinPeriod = 72 * time.Hour })
	require.ErrorContains(t, err, "in 3d")
	_, err = suggest(t, "", strings.ReplaceAll(aLog(2000, "", 24), `"code":200`, `"code":422`), nil)
	require.ErrorContains(t, err, "too little evidence: 0 requests")
	_, err = suggest(t, "", aLog(2000, "", 24), func(o *Options) { o.Margin = 0.5 })
	require.ErrorContains(t, err, "the margin is 0.5")
}

func TestSketchErrsByOnePercentToTheLenientSide(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		s := sketch{buckets: map[int]int{}}
		values := make([]float64, 1+rng.IntN(5000))
		for i := range values {
			values[i] = math.Exp(rng.NormFloat64() * 10)
			s.add(values[i])
		}
		slices.Sort(values)
		n := float64(len(values))
		high := values[int(math.Ceil(0.99*n))-1]
		require.GreaterOrEqual(t, s.high(0.99), high*(1-1e-9))
		require.LessOrEqual(t, s.high(0.99), high*1.011)
		require.InDelta(t, values[len(values)-1], s.high(1), 0)
	}
	s := sketch{buckets: map[int]int{}}
	s.add(math.Inf(1))
	require.True(t, math.IsInf(s.high(0.99), 1) && math.IsInf(s.high(1), 1))
}
