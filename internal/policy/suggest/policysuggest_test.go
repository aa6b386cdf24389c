// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"io"
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
	o := Options{Margin: 1.5, MinRequests: 1000, MinPeriod: 24 * time.Hour, Mode: querylimit.ModeObserve}
	if change != nil {
		change(&o)
	}
	return Suggest([]byte(policy), e, o, func() io.Reader { return strings.NewReader(log) })
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
	require.Equal(t, Line{Limit: "range", Requests: 2000, P99: "1d14m", Most: "10d5m", Now: "observe 32d", Then: "observe 1d13h"}, line(t, s, "", "range"))
	require.Equal(t, "23s", line(t, s, "", "deadline.query").Then, "15s of the slowest, since a deadline has no mode")
	require.Equal(t, "observe 4500000", line(t, s, "", "response_bytes.query").Then)
	require.Equal(t, "observe 15s", line(t, s, "", "min_step").Then, "not above what costs nothing")
	require.Equal(t, "enforce 4100", line(t, s, "", "query_bytes").Then, "not below what costs nothing")
	require.Equal(t, `limits:
  deadline: {query: 23s}
  query_bytes: {max: 4100}
  query_operators: {max: 100}
  points: {max: 2200}
  expr_depth: {max: 20}
  selectors: {max: 20}
  range: {max: 1d13h}
  oldest: {mode: observe, max: 1d13h}
  min_step: {mode: observe, min: 15s}
  response_bytes: {mode: observe, query: {wire_max: 4500000}}
`, string(s.Text))
}

func TestWhatIsSuggestedRefusesNothingThatWasAnsweredBefore(t *testing.T) {
	log := aLog(2000, "", 24)
	s, err := suggest(t, "", log, nil)
	require.NoError(t, err)
	run := func(text []byte) *dryrun.Report {
		c, err := config.Parse(text)
		require.NoError(t, err)
		r, err := dryrun.Run(c.Rules, strings.NewReader(log))
		require.NoError(t, err)
		return r
	}
	r := run(s.Text)
	require.Zero(t, r.Refused)
	require.Equal(t, 20, r.Limits["range"][querylimit.ModeObserve])
	r = run(s.Enforced)
	require.Equal(t, 20, r.Refused, "one in a hundred")
}

func TestNoSuggestionIsLooserThanThePolicyUnlessAsked(t *testing.T) {
	const policy = "# mine\nlimits:\n  range: {mode: warn, max: 12h} # short\n  points: {mode: off, max: 5}\n"
	s, err := suggest(t, policy, aLog(2000, "", 24), nil)
	require.NoError(t, err)
	require.Equal(t, "already exceeded", line(t, s, "", "range").Why)
	require.Equal(t, "observe 2200", line(t, s, "", "points").Then, "a limit that is off bounds nothing")
	require.True(t, strings.HasPrefix(string(s.Text), "# mine\nlimits:\n  range: {mode: warn, max: 12h} # short\n  points: {mode: observe, max: 2200}\n"), string(s.Text))
	s, err = suggest(t, policy, aLog(2000, "", 24), func(o *Options) { o.Looser = true })
	require.NoError(t, err)
	require.Equal(t, "warn 1d13h", line(t, s, "", "range").Then)

	s, err = suggest(t, "limits: {range: {mode: warn, max: 25h}}\n", aLog(2000, "", 24), nil)
	require.NoError(t, err)
	require.Equal(t, "tight enough", line(t, s, "", "range").Why, "25h is more than was seen, and less than with the margin")
}

func TestTenantsGetWhatEverybodysLimitsDoNotFit(t *testing.T) {
	s, err := suggest(t, "", aLog(40_000, "small", 2)+aLog(200, "large", 40)+aLog(100, "few", 400), func(o *Options) { o.MinRequests = 200 })
	require.NoError(t, err)
	require.Equal(t, "observe 1d7h", line(t, s, "", "range").Then, "large is less than 1 % of all")
	require.Equal(t, "observe 2d13h", line(t, s, "large", "range").Then)
	require.Contains(t, string(s.Text), "tenants:\n  large:\n    limits:\n")
	require.NotContains(t, string(s.Text), "few")
	require.NotContains(t, string(s.Text), "small")
}

func TestTooLittleEvidenceIsRefused(t *testing.T) {
	_, err := suggest(t, "", aLog(999, "", 24), nil)
	require.ErrorContains(t, err, "too little evidence: 999 requests that were answered, over 2d; limits are drawn from at least 1000 over 1d")
	_, err = suggest(t, "", aLog(2000, "", 24), func(o *Options) { o.MinPeriod = 72 * time.Hour })
	require.ErrorContains(t, err, "over 3d")
	_, err = suggest(t, "", strings.ReplaceAll(aLog(2000, "", 24), `"code":200`, `"code":422`), nil)
	require.ErrorContains(t, err, "too little evidence: 0 requests")
	_, err = suggest(t, "", aLog(2000, "", 24), func(o *Options) { o.Margin = 0.5 })
	require.ErrorContains(t, err, "the margin is 0.5")
	_, err = suggest(t, "", aLog(2000, "", 24), func(o *Options) { o.Mode = querylimit.ModeEnforce })
	require.ErrorContains(t, err, "use observe or warn")
}

func TestRequestsForAllLeaveNoBoundOnResults(t *testing.T) {
	var b strings.Builder
	for i := range 2000 {
		limit := 40000
		if i%50 == 0 {
			limit = 0
		}
		at := time.Unix(1_700_000_000, 0).Add(time.Duration(i) * time.Minute)
		fmt.Fprintf(&b, `{"ts":%q,"endpoint":"series","class":"metadata","queries":["up"],"limit":%d,"start":%q,"code":200}`+"\n", at.Format(time.RFC3339), limit, at.Add(-time.Hour).Format(time.RFC3339))
		fmt.Fprintf(&b, `{"ts":%q,"endpoint":"labels","class":"metadata","limit":40000,"code":200}`+"\n", at.Format(time.RFC3339))
	}
	s, err := suggest(t, "", b.String(), nil)
	require.NoError(t, err)
	require.Equal(t, "too many without any bound", line(t, s, "", "results.series").Why)
	require.Equal(t, "observe 60000", line(t, s, "", "results.labels").Then)
	require.Equal(t, "observe 1d", line(t, s, "", "metadata_range").Then)
}

func TestSketchErrsByOnePercentToTheLenientSide(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var s sketch
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
		low := values[len(values)-int(math.Ceil(0.99*n))]
		require.LessOrEqual(t, s.low(0.99), low*(1+1e-9))
		require.GreaterOrEqual(t, s.low(0.99), low/1.011)
		require.InDelta(t, values[len(values)-1], s.most(), 0)
	}
	s := sketch{}
	s.add(math.Inf(1))
	require.True(t, math.IsInf(s.high(0.99), 1) && math.IsInf(s.most(), 1) && math.IsInf(s.low(0.99), 1))
}
