// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/teststorage"
)

// labelScrapes scrapes into a storage that has the labels of its series for the cache,
// or not.
type labelScrapes struct {
	*teststorage.TestStorage
	sl *scrapeLoop
}

func newLabelScrapes(t testing.TB, has bool) *labelScrapes {
	s := &labelScrapes{TestStorage: teststorage.New(t)}
	s.sl, _ = newTestScrapeLoop(t, func(sl *scrapeLoop) {
		sl.appendableV2, sl.appendMetadataToWAL = s.TestStorage, false
		if has {
			sl.cache.seriesOf = s.Head().SeriesOf
		}
	})
	return s
}

func (s *labelScrapes) scrape(t testing.TB, text string, at int64) {
	app := s.sl.appender()
	_, _, _, err := app.append([]byte(text), "application/openmetrics-text", time.UnixMilli(at))
	require.NoError(t, err)
	require.NoError(t, app.addReportSample(scrapeHealthMetric, at, 1, labels.NewBuilder(labels.EmptyLabels()), false))
	require.NoError(t, app.Commit())
}

func (s *labelScrapes) all(t testing.TB) (all []string) {
	q, err := s.Querier(math.MinInt64, math.MaxInt64)
	require.NoError(t, err)
	defer q.Close()
	set := q.Select(t.Context(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
	for set.Next() {
		var b strings.Builder
		b.WriteString(set.At().Labels().String())
		it := set.At().Iterator(nil)
		for it.Next() != chunkenc.ValNone {
			at, v := it.At()
			fmt.Fprintf(&b, " %d:%x", at, math.Float64bits(v))
		}
		all = append(all, b.String())
	}
	require.NoError(t, set.Err())
	return all
}

// What is stored is the same, whether the cache has the labels or the head: also when
// the head has lost series, of which some go on and some have ended.
func TestSeriesAreStoredAlikeWhoeverHasTheirLabels(t *testing.T) {
	var ours, theirs []string
	for _, has := range []bool{true, false} {
		s := newLabelScrapes(t, has)
		var learnt []string
		for i, names := range []string{"abcd", "abc", "", "abcde", "bde", "bde", "abcde"} {
			at := int64(i+1) * 15_000
			if i%2 == 1 {
				require.NoError(t, s.Head().Truncate(at-1)) // The head loses all series.
				require.Zero(t, s.Head().NumSeries())
			}
			var text strings.Builder
			for _, name := range names {
				fmt.Fprintf(&text, "%c{l=\"1\"} %d\n", name, i)
			}
			if names != "" {
				text.WriteString("# EOF\n")
			}
			s.scrape(t, text.String(), at)
			learnt = append(learnt, strconv.Itoa(i), strconv.FormatUint(s.Head().NumSeries(), 10))
			learnt = append(learnt, s.all(t)...)
		}
		if has {
			ours = learnt
		} else {
			theirs = learnt
		}
	}
	require.Equal(t, theirs, ours)
	require.Greater(t, len(ours), 20)
}

func TestTheCacheHasNoLabelsThatTheHeadHas(t *testing.T) {
	s := newLabelScrapes(t, true)
	text := "a 1\nb 2\n# EOF\n"
	s.scrape(t, text, 15_000)
	for _, name := range []string{"a", "b"} {
		ce, ok := cached(s.sl, name)
		require.True(t, ok)
		require.True(t, ce.lset().IsEmpty())
		require.Equal(t, labels.FromStrings("__name__", name), ce.series.Labels())
		require.Equal(t, s.Head().SeriesOf(ce.ref), ce.series)
	}
	require.NoError(t, s.Head().Truncate(30_000))
	s.scrape(t, text, 30_000)
	ce, _ := cached(s.sl, "a")
	require.Equal(t, s.Head().SeriesOf(ce.ref), ce.series, "of a series that was lost, nothing is kept")
}

// An error that has another cause than that the series is not there is returned at once.
func TestOnlySeriesThatAreNotThereAreToldAgain(t *testing.T) {
	app := &countingAppender{err: storage.ErrOutOfOrderSample}
	known := true
	c := newScrapeCache(newTestScrapeMetrics(t))
	c.seriesOf = func(storage.SeriesRef) storage.Labels {
		if known {
			return (*heldLabels)(new(labels.Labels))
		}
		return nil
	}
	lset := labels.FromStrings("__name__", "a")
	c.last = &cacheEntry{series: (*heldLabels)(&lset)}
	for _, tc := range []struct {
		known bool
		lset  labels.Labels
		want  []labels.Labels
	}{
		{true, labels.EmptyLabels(), []labels.Labels{labels.EmptyLabels()}},
		{false, lset, []labels.Labels{lset}},
		{false, labels.EmptyLabels(), []labels.Labels{labels.EmptyLabels(), lset}},
	} {
		known, app.told = tc.known, nil
		_, err := c.withLabels(app).Append(1, tc.lset, 0, 1, 1, nil, nil, storage.AOptions{})
		require.ErrorIs(t, err, storage.ErrOutOfOrderSample)
		require.Equal(t, tc.want, app.told)
	}
}

type countingAppender struct {
	storage.AppenderV2
	told []labels.Labels
	err  error
}

func (a *countingAppender) Append(_ storage.SeriesRef, ls labels.Labels, _, _ int64, _ float64, _ *histogram.Histogram, _ *histogram.FloatHistogram, _ storage.AOptions) (storage.SeriesRef, error) {
	a.told = append(a.told, ls)
	return 0, a.err
}
