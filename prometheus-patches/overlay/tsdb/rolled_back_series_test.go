// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/util/compression"
)

func appendOne(t testing.TB, app storage.AppenderV2, name string, ts int64) storage.SeriesRef {
	ref, err := app.Append(0, labels.FromStrings("__name__", name, "job", "x"), 0, ts, 1, nil, nil, storage.AOptions{})
	require.NoError(t, err)
	return ref
}

func postingsOf(t testing.TB, h *Head, name, value string) int {
	p, err := index.ExpandPostings(h.postings.Postings(t.Context(), name, value))
	require.NoError(t, err)
	return len(p)
}

func TestASeriesThatIsRolledBackIsNoLongerInTheHeadNorInTheLog(t *testing.T) {
	h, w := newTestHead(t, 1000, compression.None, false)
	require.NoError(t, h.Init(0))
	app := h.AppenderV2(storage.RemoveCreated(t.Context()))
	appendOne(t, app, "kept", 100)
	require.NoError(t, app.Commit())

	app = h.AppenderV2(storage.RemoveCreated(t.Context()))
	appendOne(t, app, "kept", 200)
	for i := range 100 {
		appendOne(t, app, "new"+strconv.Itoa(i), 200)
	}
	require.EqualValues(t, 101, h.NumSeries())
	require.NoError(t, app.Rollback())
	require.EqualValues(t, 1, h.NumSeries())
	require.Equal(t, 1, postingsOf(t, h, "job", "x"))
	require.Zero(t, postingsOf(t, h, "__name__", "new1"))
	require.NotContains(t, h.postings.LabelValues(t.Context(), "__name__", nil), "new1")
	require.Len(t, readTestWAL(t, w.Dir()), 2, "the series that was committed, and its sample")

	// It can be created again.
	app = h.AppenderV2(storage.RemoveCreated(t.Context()))
	ref := appendOne(t, app, "new1", 200)
	require.NoError(t, app.Commit())
	require.NotNil(t, h.series.getByID(chunks.HeadSeriesRef(ref)))
	require.EqualValues(t, 2, h.NumSeries())
}

// TestFewSeriesThatAreRolledBackLeaveThePostingsTogether has scrapes that fail for one
// series each. The postings are not looked through for each of them.
func TestFewSeriesThatAreRolledBackLeaveThePostingsTogether(t *testing.T) {
	h, _ := newTestHead(t, 1000, compression.None, false)
	require.NoError(t, h.Init(0))
	const kept = 4 * rolledBackShare
	app := h.AppenderV2(storage.RemoveCreated(t.Context()))
	for i := range kept {
		appendOne(t, app, "kept"+strconv.Itoa(i), 100)
	}
	require.NoError(t, app.Commit())

	rollBack := func() {
		app := h.AppenderV2(storage.RemoveCreated(t.Context()))
		appendOne(t, app, "new", 200)
		require.NoError(t, app.Rollback())
		require.EqualValues(t, kept, h.NumSeries())
		require.Equal(t, kept, h.SeriesWith("job", "x"))
		require.Zero(t, h.SeriesWith("__name__", "new"))
		q, err := NewBlockQuerier(h, 0, 1000)
		require.NoError(t, err)
		defer q.Close()
		require.Len(t, query(t, q, labels.MustNewMatcher(labels.MatchEqual, "job", "x")), kept)
	}
	for n := 1; n < kept/rolledBackShare; n++ {
		rollBack()
		require.Equal(t, kept+n, postingsOf(t, h, "job", "x"))
	}
	rollBack()
	require.Equal(t, kept, postingsOf(t, h, "job", "x"))

	rollBack()
	require.Equal(t, kept+1, postingsOf(t, h, "job", "x"))
	h.gc()
	require.Equal(t, kept, postingsOf(t, h, "job", "x"), "and with each garbage collection")
}

func TestASeriesThatAnotherAppenderHasFoundSurvivesTheRollback(t *testing.T) {
	for _, committed := range []bool{false, true} {
		t.Run(fmt.Sprintf("committed=%v", committed), func(t *testing.T) {
			h, w := newTestHead(t, 1000, compression.None, false)
			require.NoError(t, h.Init(0))
			creator, other := h.AppenderV2(storage.RemoveCreated(t.Context())), h.AppenderV2(storage.RemoveCreated(t.Context()))
			appendOne(t, creator, "shared", 100)
			ref := appendOne(t, other, "shared", 100)
			if committed {
				require.NoError(t, other.Commit())
			}
			require.NoError(t, creator.Rollback())
			require.EqualValues(t, 1, h.NumSeries())
			if !committed {
				require.NoError(t, other.Commit())
			}
			require.Positive(t, h.series.getByID(chunks.HeadSeriesRef(ref)).headChunkCount.Load())
			require.Len(t, readTestWAL(t, w.Dir()), 2, "its record and the sample")
		})
	}
}

// TestNoSampleIsLostToTheRollbackOfAnother has appenders of the same series at the same
// time, some of which roll back, with garbage collections between them. Whatever was
// committed must be there.
func TestNoSampleIsLostToTheRollbackOfAnother(t *testing.T) {
	h, _ := newTestHead(t, 1000, compression.None, false)
	require.NoError(t, h.Init(0))
	const series, appenders, rounds = 20, 4, 300
	committed := make([]map[string]map[int64]bool, appenders)
	stop, gc := make(chan struct{}), sync.WaitGroup{}
	gc.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				h.gc()
			}
		}
	})
	var wg sync.WaitGroup
	for n := range appenders {
		committed[n] = map[string]map[int64]bool{}
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(n), 1))
			for round := range rounds {
				app := h.AppenderV2(storage.RemoveCreated(t.Context()))
				type put struct {
					name string
					t    int64
				}
				var puts []put
				for range 1 + rnd.IntN(5) {
					p := put{"s" + strconv.Itoa(round/10*series+rnd.IntN(series)), int64(round)}
					_, err := app.Append(0, labels.FromStrings("__name__", p.name, "job", "x"), 0, p.t, 1, nil, nil, storage.AOptions{})
					if err == nil {
						puts = append(puts, p)
					}
				}
				if rnd.IntN(2) == 0 {
					_ = app.Rollback()
					continue
				}
				if app.Commit() == nil {
					for _, p := range puts {
						if committed[n][p.name] == nil {
							committed[n][p.name] = map[int64]bool{}
						}
						committed[n][p.name][p.t] = true
					}
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	gc.Wait()
	h.gc()

	q, err := NewBlockQuerier(h, 0, rounds)
	require.NoError(t, err)
	defer q.Close()
	found := map[string]bool{}
	set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchEqual, "job", "x"))
	for set.Next() {
		it := set.At().Iterator(nil)
		for it.Next() != chunkenc.ValNone {
			found[set.At().Labels().Get("__name__")] = true
		}
	}
	require.NoError(t, set.Err())
	for n := range committed {
		for name := range committed[n] {
			require.True(t, found[name], "appender %d committed %s", n, name)
		}
	}
	require.EqualValues(t, postingsOf(t, h, "job", "x"), h.NumSeries())
	require.Zero(t, testutil.ToFloat64(h.metrics.pendingCommitUnderflow))
}

func TestTheFirstAppenderOfAHeadRemovesItsSeries(t *testing.T) {
	h, w := newTestHead(t, 1000, compression.None, false)
	app := h.AppenderV2(storage.RemoveCreated(t.Context()))
	appendOne(t, app, "new", 100)
	require.EqualValues(t, 1, h.NumSeries())
	require.NoError(t, app.Rollback())
	require.Zero(t, h.NumSeries())
	require.Empty(t, readTestWAL(t, w.Dir()))
}

func TestOtherAppendersLeaveTheirSeriesToTheNextOnes(t *testing.T) {
	h, _ := newTestHead(t, 1000, compression.None, false)
	require.NoError(t, h.Init(0))
	for range 2 {
		app := h.AppenderV2(t.Context())
		appendOne(t, app, "new", 100)
		require.NoError(t, app.Rollback())
		require.EqualValues(t, 1, h.NumSeries())
		require.EqualValues(t, 1, testutil.ToFloat64(h.metrics.seriesCreated))
	}
}

func TestASeriesWithAnExemplarOnlyIsNotRemoved(t *testing.T) {
	h, _ := newTestHead(t, 1000, compression.None, false)
	require.NoError(t, h.Init(0))
	app := h.AppenderV2(storage.RemoveCreated(t.Context()))
	ref := appendOne(t, app, "shared", 100)
	s := h.series.getByID(chunks.HeadSeriesRef(ref))
	s.Lock()
	s.rare().hasExemplar = true
	s.Unlock()
	require.NoError(t, app.Rollback())
	require.EqualValues(t, 1, h.NumSeries())
}
