// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/promguard/promguard/internal/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testEstimate(t *testing.T) *Estimate {
	t.Helper()
	p := profile(t, rules)
	c := newCounts("a test", p)
	c.ByRule[0]["one"] = 100
	c.ByRule[0]["two"] = 10
	c.ByRule[2]["one"] = 400
	c.ByRule[3]["one"] = 1
	c.All["one"] = 1000
	c.All["two"] = 20
	c.Head = 1320
	c.unknown(1, "%s", "for a test")
	c.unknown(3, "also for a test")
	c.Approximate[2] = "on a sample"
	in := Intervals{ByJob: map[string]time.Duration{"one": 10 * time.Second}, Default: time.Minute}
	return New(p, c, in, Sizes{HeadBytesPerSeries: 2000, ScrapeCacheBytesPerSeries: 500, DroppedBytesPerSeries: 300, Build: "a", WALBytesPerSample: 8, BlockBytesPerSample: 2, BlockSource: "b"})
}

func TestSavingFollowsFromSeriesAndIntervals(t *testing.T) {
	e := testEstimate(t)
	require.Equal(t, "empty", e.Rules[0].ID, "sorted by what they save")
	whole := e.Rules[1]
	require.Equal(t, "whole", whole.ID)
	require.Equal(t, Saving{
		Series: 110, SamplesPerSecond: 10 + 10.0/60, MemoryBytes: 110 * 2200, WALBytesPerDay: 7027200, BlockBytesPerDay: 1756800,
	}, whole.Saving)
	require.Equal(t, map[string]int{"one": 100, "two": 10}, whole.Jobs)
	require.Equal(t, 511, e.Total.Series)
	require.Equal(t, 1020, e.Of.Series)
	require.InDelta(t, 100+20.0/60, e.Of.SamplesPerSecond, 1e-9)
	require.Equal(t, []Job{{"one", 1000, 501, 10}, {"two", 20, 10, 60}}, e.Jobs)
	require.Equal(t, 2, e.ExitCode())
}

func TestTextHasARowPerRuleAndSaysWhatIsNotExact(t *testing.T) {
	var b strings.Builder
	require.NoError(t, testEstimate(t).Write(&b, cli.Text))
	require.Equal(t, `Profile test on a test:

  SERIES  SAMPLES/S   MEMORY   WAL/DAY  BLOCKS/DAY  RULE
    ~400         40  859 KiB  26.4 MiB     6.6 MiB  empty (disjoint)
     110         10  236 KiB   6.7 MiB     1.7 MiB  whole (unused)
     >=1        0.1  2.1 KiB  67.5 KiB    16.9 KiB  overlap (unused)
       ?          ?        ?         ?           ?  family (unused)
       0          0      0 B       0 B         0 B  3 rules that find nothing to drop
   >=511         50  1.1 MiB  33.1 MiB     8.3 MiB  dropped
    1020        100  2.4 MiB  66.1 MiB    16.5 MiB  of all

50.1 % of the series and 50.1 % of the samples go.
Series and memory are those scraped now. In memory there are 1320 series, 1.3 times as many: the others have ended, or are recorded, and are counted nowhere here.
Memory, of a: per series 2000 bytes of heap in use in a head two hours old and 500 in the scrape cache, of which 300 stay when it is dropped; at GOGC=75 the process may hold 1.75 times as much. WAL: 8.0 bytes per sample (a modelled cluster). Blocks: 2.0 bytes per sample (b).
~ empty: on a sample.
? overlap: also for a test.
? family: for a test.
COULD NOT COUNT all of 2 of 7 rules.
`, b.String())
}

func TestProgramsReadTheSameFigures(t *testing.T) {
	e := testEstimate(t)
	var b strings.Builder
	require.NoError(t, e.Write(&b, cli.JSON))
	var got Estimate
	require.NoError(t, json.Unmarshal([]byte(b.String()), &got))
	require.Equal(t, *e, got)
}

func TestServerThatDropsAlreadySaysSoFirst(t *testing.T) {
	c := newCounts("a test", profile(t, rules))
	c.AlreadyDropped = 511
	e := New(profile(t, rules), c, Intervals{Default: time.Minute}, ModelSizes())
	require.Equal(t, 511, e.AlreadyDropped)
	var b strings.Builder
	require.NoError(t, e.Write(&b, cli.Text))
	require.True(t, strings.HasPrefix(b.String(), "511 SERIES ARE DROPPED ALREADY, "), b.String())
	require.Contains(t, b.String(), "7 rules that find nothing to drop")
	require.NotContains(t, b.String(), "whole")
}

func TestBytesAreWrittenShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 200 << 10: "200 KiB", 3 << 30: "3.0 GiB", 5 << 50: "5120 TiB"} {
		require.Equal(t, want, bytes(v))
	}
}
