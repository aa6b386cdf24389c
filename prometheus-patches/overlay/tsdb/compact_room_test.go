// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// Series that end in an explosion are in blocks that overlap, one more at each early
// compaction.
func TestACompactionOfBlocksWaitsForMemory(t *testing.T) {
	e := explosion{lasting: 20, born: 5}
	db, err := e.open(t.TempDir(), true)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	memory := db.opts.Memory.(*scarce)
	var log bytes.Buffer
	db.logger = slog.New(slog.NewTextHandler(&log, nil))
	scrapes := 0
	for ; scrapes < 30; scrapes++ {
		require.NoError(t, e.append(db, scrapes))
		db.nextTight = time.Time{}
		db.compactTight()
	}
	blocks := len(db.Blocks())
	require.Greater(t, blocks, 5)
	memory.most = 0

	memory.full = true
	for range 3 {
		require.NoError(t, db.Compact(context.Background()))
		require.Len(t, db.Blocks(), blocks)
	}
	require.Zero(t, memory.most, "what waits reserves nothing")
	require.EqualValues(t, memory.wanted, compactionBytes+5*blocks*compactionBytesPerBlockSeries, "each has five that ended")
	require.Equal(t, 1, strings.Count(log.String(), "A compaction of blocks waits until there is memory for it"))

	memory.full = false
	require.NoError(t, db.Compact(context.Background()))
	require.Less(t, len(db.Blocks()), blocks)
	require.Greater(t, memory.most, int64(compactionBytes))
	require.Zero(t, memory.reserved)
	require.Zero(t, memory.wanted, "nothing waits any more")
	e.check(t, db, scrapes, func(int) bool { return true })
}

// Blocks of one server have most of their series in common.
func TestACompactionOfBlocksCountsSeriesThatAreInSeveralOnce(t *testing.T) {
	const series = 1000
	dir := t.TempDir()
	for block := range 3 {
		var all []storage.Series
		for i := range series { // A tenth of each is new.
			ls := labels.FromStrings("__name__", "m", "i", strconv.Itoa(i+block*series/10))
			all = append(all, storage.NewListSeries(ls, []chunks.Sample{sample{0, int64(block), 1, nil, nil}}))
		}
		all = append(all, storage.NewListSeries(labels.FromStrings("__name__", "m"), []chunks.Sample{sample{0, int64(block), 1, nil, nil}}))
		createBlock(t, dir, all)
	}
	db, err := openStill(dir, DefaultOptions())
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	var dirs []string
	for _, b := range db.Blocks() {
		dirs = append(dirs, b.Dir())
	}
	require.Len(t, dirs, 3)
	got := db.seriesOf(dirs)
	require.InDelta(t, 1.2*series, got, 0.1*series)
}

// Its memory is reserved for as long as it takes it, and no longer.
func TestACompactionOfTheHeadReservesNothingForBlocks(t *testing.T) {
	e := explosion{lasting: 20, born: 5}
	db, err := e.open(t.TempDir(), true)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	memory := db.opts.Memory.(*scarce)
	for scrape := range 200 {
		require.NoError(t, e.append(db, scrape))
	}
	head := db.head.CompactionBytes()
	require.NoError(t, db.Compact(context.Background()))
	require.NotEmpty(t, db.Blocks())
	require.Equal(t, head, memory.most)
	require.Zero(t, memory.reserved)
}
