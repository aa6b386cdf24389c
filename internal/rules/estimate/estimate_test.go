// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testEstimate(t *testing.T) *Estimate {
	t.Helper()
	p := profile(t, rules)
	c := newCounts("a test", p)
	c.add(0, "one", Tally{Series: 100, Head: 150, Unrated: 100})
	c.add(0, "two", Tally{Series: 10, Head: 10, Rate: 2})
	c.add(2, "one", Tally{Series: 400, Head: 400, Unrated: 400})
	c.add(3, "one", Tally{Series: 1, Head: 1, Unrated: 1})
	c.addAll("one", Tally{Series: 1000, Head: 1300, Unrated: 1000})
	c.addAll("two", Tally{Series: 20, Head: 20, Rate: 4})
	c.unknown(1, "%s", "for a test")
	c.unknown(3, "also for a test")
	c.Approximate[2] = "on a sample"
	in := Intervals{ByJob: map[string]time.Duration{"one": 10 * time.Second}, Default: time.Minute}
	return New(p, c, in, Sizes{HeadBytesPerSeries: 2000, ScrapeCacheBytesPerSeries: 500, DroppedBytesPerSeries: 300, WALBytesPerSample: 8, BlockBytesPerSample: 2, WALSource: "w", BlockSource: "b"})
}

func TestSavingFollowsFromSeriesAndIntervals(t *testing.T) {
	e := testEstimate(t)
	require.Equal(t, "empty", e.Rules[0].ID, "sorted by what they save")
	whole := e.Rules[1]
	require.Equal(t, "whole", whole.ID)
	require.Equal(t, Saving{
		Series: 110, HeadSeries: 160, SamplesPerSecond: 12, MemoryBytes: 110 * 2200, WALBytesPerDay: 12 * 8 * 86400, BlockBytesPerDay: 12 * 2 * 86400,
	}, whole.Saving)
	require.Equal(t, map[string]int{"one": 100, "two": 10}, whole.Jobs)
	require.Equal(t, 511, e.Total.Series)
	require.Equal(t, 1020, e.Of.Series)
	require.InDelta(t, 104, e.Of.SamplesPerSecond, 1e-9)
	require.Equal(t, []Job{{"one", 1000, 501, 10}, {"two", 20, 10, 0}}, e.Jobs)
	require.Equal(t, 2, e.ExitCode())
}

func TestTextHasARowPerRuleAndSaysWhatIsNotExact(t *testing.T) {
	var b strings.Builder
	require.NoError(t, testEstimate(t).Write(&b, FormatText))
	require.Equal(t, `Profile test on a test:

  SERIES  SAMPLES/S   MEMORY   WAL/DAY  BLOCKS/DAY  RULE
    ~400         40  859 KiB  26.4 MiB     6.6 MiB  empty (disjoint)
     110         12  236 KiB   7.9 MiB     2.0 MiB  whole (unused)
     >=1        0.1  2.1 KiB  67.5 KiB    16.9 KiB  overlap (unused)
       ?          ?        ?         ?           ?  family (unused)
       0          0      0 B       0 B         0 B  3 rules that find nothing to drop
   >=511         52  1.1 MiB  34.3 MiB     8.6 MiB  dropped
    1020        104  2.4 MiB  68.6 MiB    17.1 MiB  of all

50.1 % of the series and 50.1 % of the samples go.
Series and memory are those scraped now. In memory there are 1320 series, 1.3 times as many: the others have ended, or are recorded, and are counted nowhere here.
Memory: per series 2000 bytes of heap in use in a head two hours old and 500 in the scrape cache, of which 300 stay when it is dropped; at GOGC=75 the process may hold 1.75 times as much. WAL: 8.0 bytes per sample (w). Blocks: 2.0 bytes per sample (b).
~ empty: on a sample.
? overlap: also for a test.
? family: for a test.
COULD NOT COUNT all of 2 of 7 rules.
`, b.String())
}

func TestProgramsReadTheSameFigures(t *testing.T) {
	e := testEstimate(t)
	var b strings.Builder
	require.NoError(t, e.Write(&b, FormatJSON))
	var got Estimate
	require.NoError(t, json.Unmarshal([]byte(b.String()), &got))
	require.Equal(t, *e, got)

	b.Reset()
	require.NoError(t, e.Write(&b, FormatCSV))
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 1+len(e.Rules))
	require.Equal(t, []string{"empty", "disjoint", "400", "40", "880000", "27648000", "6912000", "", "on a sample"}, rows[1])
	require.ErrorContains(t, e.Write(&b, "pdf"), "use one of text, json, csv")
}

func TestServerThatDropsAlreadySaysSoFirst(t *testing.T) {
	c := newCounts("a test", profile(t, rules))
	c.AlreadyDropped = 511
	e := New(profile(t, rules), c, Intervals{Default: time.Minute}, ModelSizes())
	require.Equal(t, 511, e.AlreadyDropped)
	var b strings.Builder
	require.NoError(t, e.Write(&b, FormatText))
	require.True(t, strings.HasPrefix(b.String(), "511 SERIES ARE DROPPED ALREADY, "), b.String())
	require.Contains(t, b.String(), "7 rules that find nothing to drop")
	require.NotContains(t, b.String(), "whole")
}

func TestBytesAreWrittenShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 200 << 10: "200 KiB", 3 << 30: "3.0 GiB", 5 << 50: "5120 TiB"} {
		require.Equal(t, want, bytes(v))
	}
}
