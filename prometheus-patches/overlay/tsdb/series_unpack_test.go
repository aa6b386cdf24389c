// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package tsdb

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/compression"
)

// readers is a head of so many series, and the time.
type readers struct {
	h      *Head
	series []*memSeries
	now    time.Time
}

func newReaders(t testing.TB, n int) *readers {
	h, _ := newTestHead(t, 1000, compression.None, false)
	app := h.Appender(t.Context())
	r := &readers{h: h, now: time.Now()}
	for i := range n {
		ref, err := app.Append(0, container(i%60, i/60), 100, 1)
		require.NoError(t, err)
		r.series = append(r.series, h.series.getByID(chunks.HeadSeriesRef(ref)))
	}
	require.NoError(t, app.Commit())
	return r
}

// read reads the labels of every so many of the series, and returns how many were there
// as a whole.
func (r *readers) read(t testing.TB, every int) (whole int) {
	table := r.h.whole.at(r.now, r.h.NumSeries())
	reader := labelsReader{whole: table}
	for i := 0; i < len(r.series); i += every {
		if isWhole(r.series[i]) {
			whole++
		}
		require.Equal(t, container(i%60, i/60), reader.of(r.h, r.series[i]))
	}
	return whole
}

func isWhole(s *memSeries) bool {
	edits := s.lset.loadEdits().string()
	return edits != "" && edits[0] == editWhole
}

func (r *readers) kept() (kept int) {
	for _, s := range r.series {
		if isWhole(s) {
			kept++
		}
	}
	return kept
}

func TestLabelsThatAreReadAgainAndAgainAreThereAsAWhole(t *testing.T) {
	r := newReaders(t, 10_000)
	require.Zero(t, r.read(t, 49))
	require.Zero(t, r.kept(), "what is read once takes nothing")
	r.read(t, 49)
	require.Greater(t, r.read(t, 49), 180, "of 205")

	// A read of all takes nothing from them, and no more than a quarter.
	for range 5 {
		require.GreaterOrEqual(t, r.read(t, 1), 180)
	}
	require.LessOrEqual(t, r.kept(), 10_000/wholeShare)
	require.Greater(t, r.kept(), 10_000/wholeShare/4)
	require.Greater(t, r.read(t, 49), 180)

	// They stay while they are read, but for one read from time to time, and go when they
	// are not.
	missed := 0
	for range 10 * wholePeriods {
		r.now = r.now.Add(wholePeriod)
		missed += 205 - r.read(t, 49)
	}
	require.Less(t, missed, 205*10*wholePeriods/3)
	require.Less(t, r.kept(), 220, "the others are gone")
	r.now = r.now.Add((wholePeriods + 1) * wholePeriod)
	require.Zero(t, r.read(t, 9999))
	require.Zero(t, r.kept())
}

func TestWholeLabelsAreForgottenWithTheirSeries(t *testing.T) {
	r := newReaders(t, 1000)
	for range 3 {
		r.read(t, 10)
	}
	require.NotZero(t, r.kept())
	require.NoError(t, r.h.Truncate(200))
	require.Zero(t, r.h.NumSeries())
	require.Zero(t, r.kept())
	require.Nil(t, r.h.whole.table.Load())
}

func TestLabelsAreReadByManyAtATime(t *testing.T) {
	r := newReaders(t, 2000)
	want := make([]labels.Labels, len(r.series))
	for i := range want {
		want[i] = container(i%60, i/60)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for round := range 40 {
				if g == 3 && round%10 == 9 {
					r.h.whole.forget()
				}
				now := r.now.Add(time.Duration(round) * wholePeriod / 4)
				reader := labelsReader{whole: r.h.whole.at(now, r.h.NumSeries())}
				for i := g % 2; i < len(r.series); i += 1 + g {
					if got := reader.of(r.h, r.series[i]); !labels.Equal(want[i], got) {
						panic(got.String())
					}
				}
			}
		})
	}
	wg.Wait()
	r.h.whole.forget()
	require.Zero(t, r.kept(), "none is kept that nobody knows of")
}

func BenchmarkReadLabelsOfAHead(b *testing.B) {
	r := newReaders(b, 60_000)
	for _, name := range []string{"container_metric_7_total", ".+"} {
		b.Run("name="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				q, err := NewBlockQuerier(NewRangeHead(r.h, 0, 1000), 0, 1000)
				require.NoError(b, err)
				set := q.Select(b.Context(), false, &storage.SelectHints{Start: 0, End: 1000}, labels.MustNewMatcher(labels.MatchRegexp, "__name__", name))
				n := 0
				for set.Next() {
					n += len(asData(set.At().Labels()))
				}
				require.NotZero(b, n)
				require.NoError(b, q.Close())
			}
		})
	}
}
