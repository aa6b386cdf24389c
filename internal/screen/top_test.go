// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 1, 2, 12, 0, 30, 0, time.UTC)

func names(r *TopReport) string {
	var out []string
	for _, q := range r.Queries {
		out = append(out, q.Fingerprint)
	}
	return strings.Join(out, " ")
}

func top(t *testing.T, tracker *TopQueries, now time.Time, window string, by TopOrder) *TopReport {
	t.Helper()
	r, err := tracker.Top(now, window, by, 10)
	require.NoError(t, err)
	return r
}

func TestQueriesAreRankedByWhatTheyCost(t *testing.T) {
	tracker := NewTopQueries(10)
	add := func(name, panel string, seconds float64, bytes int64) {
		tracker.Add(noon, TopKey{Endpoint: "query", Fingerprint: name, Panel: panel}, "text of "+name, TopCost{Requests: 1, Seconds: seconds, Longest: seconds, Bytes: bytes})
	}
	add("slow", "", 5, 10)
	add("often", "", 2, 10)
	add("often", "", 4, 10)
	add("large", "", 1, 1000)
	add("slow", "other panel", 1.5, 5)
	r := top(t, tracker, noon, "5m", ByTime)
	require.Equal(t, "often slow slow large", names(r))
	require.Equal(t, TopQuery{TopKey: TopKey{Endpoint: "query", Fingerprint: "often"}, Text: "text of often", TopCost: TopCost{Requests: 2, Seconds: 6, Longest: 4, Bytes: 20}}, r.Queries[0])
	require.Equal(t, TopCost{Requests: 5, Seconds: 13.5, Longest: 5, Bytes: 1035}, r.Total)
	require.Equal(t, "large often slow slow", names(top(t, tracker, noon, "1h", ByBytes)))
	few, err := tracker.Top(noon, "1h", ByTime, 1)
	require.NoError(t, err)
	require.Equal(t, "often", names(few))
	_, err = tracker.Top(noon, "1d", ByTime, 1)
	require.ErrorContains(t, err, `unknown window "1d"`)
}

func TestWhatIsOldIsForgotten(t *testing.T) {
	tracker := NewTopQueries(10)
	tracker.Add(noon, TopKey{Fingerprint: "old"}, "", TopCost{Requests: 1, Seconds: 1})
	tracker.Add(noon.Add(4*time.Minute), TopKey{Fingerprint: "new"}, "", TopCost{Requests: 1, Seconds: 1})
	for _, c := range []struct {
		after  time.Duration
		window string
		want   string
	}{
		{4 * time.Minute, "5m", "new old"},
		{5*time.Minute + 29*time.Second, "5m", "new old"},
		{6 * time.Minute, "5m", "new"},
		{time.Hour, "5m", ""},
		{time.Hour, "1h", "new old"},
		{70 * time.Minute, "1h", ""},
	} {
		r := top(t, tracker, noon.Add(c.after), c.window, ByTime)
		require.Equal(t, c.want, names(r), "%+v", c)
		require.False(t, r.From.After(noon.Add(c.after)))
	}
	require.Equal(t, noon.Add(-5*time.Minute-30*time.Second), top(t, tracker, noon, "5m", ByTime).From)
}

func TestWhatCostsMuchIsFoundAmongAnyNumberOfQueries(t *testing.T) {
	const size = 50
	tracker := NewTopQueries(size)
	rng := rand.New(rand.NewPCG(3, 4))
	spent := map[string]float64{}
	total := 0.0
	for i := range 20_000 {
		name, cost := strconv.Itoa(i), rng.Float64()
		if i%20 == 0 {
			name, cost = fmt.Sprint("heavy", i%5), 10*rng.Float64()
		}
		spent[name] += cost
		total += cost
		tracker.Add(noon, TopKey{Fingerprint: name}, "", TopCost{Requests: 1, Seconds: cost})
	}
	r, err := tracker.Top(noon, "1h", ByTime, size)
	require.NoError(t, err)
	require.Len(t, r.Queries, size)
	require.InDelta(t, total, r.Total.Seconds, 1e-6)
	kept := map[string]TopQuery{}
	for _, q := range r.Queries {
		kept[q.Fingerprint] = q
		require.LessOrEqual(t, q.Seconds, spent[q.Fingerprint]+1e-6)
		require.GreaterOrEqual(t, q.Seconds+q.Unseen, spent[q.Fingerprint]-1e-6)
	}
	for name, cost := range spent {
		if cost > total/size {
			require.Contains(t, kept, name)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	tracker := NewTopQueries(20)
	long := strings.Repeat("x", 1<<16)
	for i := range 5000 {
		tracker.Add(noon.Add(time.Duration(i)*time.Second), TopKey{Fingerprint: strconv.Itoa(i)}, long, TopCost{Requests: 1, Seconds: 1})
	}
	for i := range tracker.windows {
		for j := range tracker.windows[i] {
			for _, s := range tracker.windows[i][j].sketches {
				require.LessOrEqual(t, len(s.heap), 20)
				require.Len(t, s.index, len(s.heap))
				for _, e := range s.heap {
					require.LessOrEqual(t, len(e.text), maxText+3)
				}
			}
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	keys := make([]TopKey, 5000)
	for i := range keys {
		keys[i] = TopKey{Endpoint: "query_range", Fingerprint: strconv.Itoa(i), Dashboard: "d"}
	}
	for _, n := range []int{50, 5000} {
		b.Run(fmt.Sprintf("queries=%d", n), func(b *testing.B) {
			tracker := NewTopQueries(100)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				tracker.Add(noon, keys[i%n], "up", TopCost{Requests: 1, Seconds: 0.1, Bytes: 100})
			}
		})
	}
}

func TestKeysThatShareAHashAreToldApart(t *testing.T) {
	s := sketch{size: 3}
	add := func(name string, seconds float64) {
		s.add(&TopKey{Fingerprint: name}, 7, "", &TopCost{Requests: 1, Seconds: seconds}, ByTime)
	}
	for _, name := range []string{"a", "b", "c", "a", "b", "c", "d", "c", "d"} {
		add(name, 1)
	}
	got := map[string]float64{}
	for _, e := range s.heap {
		got[e.key.Fingerprint] += e.cost.Seconds + e.unseen
	}
	for name, least := range map[string]float64{"c": 3, "d": 2} {
		require.GreaterOrEqual(t, got[name], least, got)
	}
}
