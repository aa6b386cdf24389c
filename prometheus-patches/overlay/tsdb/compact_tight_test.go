// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// explosion is what is scraped from a target with series that last and others that
// end after three scrapes. All of it follows from the number of the scrape.
type explosion struct{ lasting, born int }

const (
	explosionInterval = 15_000
	explosionLife     = 3
)

func (explosion) time(scrape int) int64            { return int64(scrape) * explosionInterval }
func (explosion) value(series, scrape int) float64 { return float64(series*31%1009 + scrape*7) }

func (explosion) labels(series int) labels.Labels {
	return labels.FromStrings("__name__", "m", "job", "j", "request_id", fmt.Sprintf("%08x", series), "shard", strconv.Itoa(series%7))
}

// each calls f with the series of a scrape, and with those that ended.
func (e explosion) each(scrape int, f func(series int, v float64)) {
	for i := range e.lasting {
		f(i, e.value(i, scrape))
	}
	for born := max(0, scrape-explosionLife); born <= scrape; born++ {
		for i := range e.born {
			series := e.lasting + born*e.born + i
			v := e.value(series, scrape)
			if born == scrape-explosionLife {
				v = math.Float64frombits(value.StaleNaN)
			}
			f(series, v)
		}
	}
}

func (e explosion) append(db *DB, scrape int) error {
	app := db.Appender(context.Background())
	var err error
	e.each(scrape, func(series int, v float64) {
		if _, aerr := app.Append(0, e.labels(series), e.time(scrape), v); aerr != nil {
			err = fmt.Errorf("series %d at scrape %d: %w", series, scrape, aerr)
		}
	})
	if err != nil {
		return err
	}
	return app.Commit()
}

// open opens a database whose blocks have 40 scrapes, and which compacts early only
// when it is told to.
func (e explosion) open(dir string, parallel bool) (*DB, error) {
	return openStill(dir, e.options(parallel))
}

// openStill opens a database that looks at nothing by itself.
func openStill(dir string, opts *Options) (*DB, error) {
	db, err := Open(dir, promslog.NewNopLogger(), nil, opts, nil)
	if err != nil {
		return nil, err
	}
	close(db.stopc)
	<-db.donec
	db.stopc, db.donec = make(chan struct{}), make(chan struct{})
	go func() {
		<-db.stopc
		close(db.donec)
	}()
	return db, nil
}

func (explosion) options(parallel bool) *Options {
	opts := DefaultOptions()
	opts.MinBlockDuration, opts.MaxBlockDuration = 40*explosionInterval, 9*40*explosionInterval
	opts.RetentionDuration, opts.ParallelWALReplay = 0, parallel
	opts.WALSegmentSize = 64 << 10
	opts.Memory = &scarce{tight: true}
	return opts
}

// check compares all that can be queried with what was scraped. Nothing may lack of
// the scrapes that were acknowledged; whole is false for others, of which some may.
func (e explosion) check(t *testing.T, db *DB, scrapes int, whole func(scrape int) bool) {
	t.Helper()
	q, err := db.Querier(math.MinInt64, math.MaxInt64)
	require.NoError(t, err)
	defer q.Close()
	got := map[string]map[int64]uint64{}
	set := q.Select(context.Background(), false, nil, labels.MustNewMatcher(labels.MatchEqual, "__name__", "m"))
	var it chunkenc.Iterator
	for set.Next() {
		s := set.At()
		samples := map[int64]uint64{}
		for it = s.Iterator(it); it.Next() != chunkenc.ValNone; {
			at, v := it.At()
			_, twice := samples[at]
			require.False(t, twice, "a sample came twice")
			samples[at] = math.Float64bits(v)
		}
		require.NoError(t, it.Err())
		_, twice := got[s.Labels().String()]
		require.False(t, twice, "a series came twice")
		got[s.Labels().String()] = samples
	}
	require.NoError(t, set.Err())
	for scrape := range scrapes {
		e.each(scrape, func(series int, v float64) {
			samples := got[e.labels(series).String()]
			have, ok := samples[e.time(scrape)]
			if ok || whole(scrape) {
				require.Truef(t, ok, "series %d has no sample of scrape %d", series, scrape)
				require.Equalf(t, math.Float64bits(v), have, "series %d at scrape %d", series, scrape)
			}
			delete(samples, e.time(scrape))
		})
	}
	for series, samples := range got {
		require.Emptyf(t, samples, "%s has samples that it never had", series)
	}
}

// Whenever the head is compacted early, and wherever the process is killed, all that
// was scraped is there, once, and what is scraped next is accepted.
func TestCompactionWhileMemoryIsTightLosesNothing(t *testing.T) {
	for seed := range int64(6) {
		t.Run(strconv.FormatInt(seed, 10), func(t *testing.T) {
			t.Parallel()
			e := explosion{lasting: 20, born: 5}
			rnd := rand.New(rand.NewSource(seed))
			dir := t.TempDir()
			db, err := e.open(dir, true)
			require.NoError(t, err)
			scrapes, early := 0, 0
			for ; scrapes < 250; scrapes++ {
				require.NoError(t, e.append(db, scrapes))
				switch n := rnd.Intn(40); {
				case n < 5:
					before := db.head.NumSeries()
					db.nextTight = time.Time{}
					db.compactTight()
					if db.head.NumSeries() < before {
						early++
					}
				case n == 5:
					require.NoError(t, db.Compact(context.Background()))
				case n < 8: // It is killed.
					killed := filepath.Join(t.TempDir(), "data")
					db.cmtx.Lock() // A copy while blocks come and go would have parts of several times.
					require.NoError(t, os.CopyFS(killed, os.DirFS(dir)))
					db.cmtx.Unlock()
					require.NoError(t, db.Close())
					require.NoError(t, os.RemoveAll(filepath.Join(killed, "lock")))
					dir = killed
					db, err = e.open(dir, rnd.Intn(2) == 0)
					require.NoError(t, err)
				}
			}
			require.Positive(t, early)
			e.check(t, db, scrapes, func(int) bool { return true })
			require.NoError(t, db.Close())
		})
	}
}

// The same with a process that compacts all the time, and is killed at any instant.
// PROMGUARD_KILLS is how often.
func TestAKillInACompactionWhileMemoryIsTightLosesNothing(t *testing.T) {
	e := explosion{lasting: 100, born: 40}
	if dir := os.Getenv("PROMGUARD_KILLED_DIR"); dir != "" {
		e.scrapeUntilKilled(t, dir)
		return
	}
	kills := 6
	if s := os.Getenv("PROMGUARD_KILLS"); s != "" {
		var err error
		kills, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	rnd := rand.New(rand.NewSource(1))
	dir := t.TempDir()
	scrapes, torn, replays := 0, map[int]bool{}, [2]int{}
	for kill := range kills {
		parallel := kill % 2
		acked := e.killed(t, dir, scrapes, parallel, rnd)
		if acked > scrapes {
			replays[parallel]++
		}
		torn[acked] = true // It may be there, or part of it.
		scrapes = acked + 1

		db, err := e.open(dir, kill/2%2 == 0)
		require.NoError(t, err)
		e.check(t, db, scrapes, func(scrape int) bool { return !torn[scrape] })
		require.NoError(t, db.Close())
	}
	t.Logf("%d scrapes, %d and %d processes scraped", scrapes, replays[0], replays[1])
	require.Positive(t, replays[0])
	require.Positive(t, replays[1])
}

// killed runs a process that scrapes, from scrape on, and kills it at some time. It
// returns the number of the first scrape that was not acknowledged.
func (explosion) killed(t *testing.T, dir string, scrape, parallel int, rnd *rand.Rand) int {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestAKillInACompactionWhileMemoryIsTightLosesNothing$")
	cmd.Env = append(os.Environ(), "PROMGUARD_KILLED_DIR="+dir, "PROMGUARD_KILLED_SCRAPE="+strconv.Itoa(scrape), "PROMGUARD_KILLED_PARALLEL="+strconv.Itoa(parallel))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	last := scrape + 1 + rnd.Intn(60)
	if rnd.Intn(8) == 0 {
		time.AfterFunc(time.Duration(rnd.Intn(300))*time.Millisecond, func() { _ = cmd.Process.Kill() }) // As it starts.
	}
	in := bufio.NewScanner(out)
	for in.Scan() {
		line, ok := strings.CutPrefix(in.Text(), "scraped ")
		require.True(t, ok, in.Text())
		n, err := strconv.Atoi(line)
		require.NoError(t, err)
		if scrape = n + 1; scrape == last {
			time.AfterFunc(time.Duration(rnd.Intn(20_000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		}
	}
	_ = cmd.Wait()
	return scrape
}

func (e explosion) scrapeUntilKilled(t *testing.T, dir string) {
	scrape, err := strconv.Atoi(os.Getenv("PROMGUARD_KILLED_SCRAPE"))
	require.NoError(t, err)
	db, err := e.open(dir, os.Getenv("PROMGUARD_KILLED_PARALLEL") == "1")
	require.NoError(t, err)
	go func() {
		for {
			db.nextTight = time.Time{}
			db.compactTight()
		}
	}()
	for ; ; scrape++ {
		if err := e.append(db, scrape); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("scraped", scrape)
		time.Sleep(time.Millisecond)
	}
}

// Whoever sends blocks elsewhere, as Thanos's sidecar does, has equal block durations. It
// takes blocks that were not compacted, and the other end wants none that overlap.
func TestBlocksThatAreSentElsewhereDoNotOverlapWhileMemoryIsTight(t *testing.T) {
	e := explosion{lasting: 20, born: 5}
	opts := e.options(true)
	opts.MaxBlockDuration = opts.MinBlockDuration
	db, err := openStill(t.TempDir(), opts)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	for scrape := range 70 {
		require.NoError(t, e.append(db, scrape))
		db.nextTight = time.Time{}
		db.compactTight()
		require.NoError(t, db.Compact(t.Context()))
		for _, b := range db.BlockMetas() {
			require.Equal(t, 1, b.Compaction.Level)
		}
		require.Empty(t, OverlappingBlocks(db.BlockMetas()))
	}
	require.NotEmpty(t, db.Blocks())
	e.check(t, db, 70, func(int) bool { return true })
}

// Nothing happens where memory is not tight, compaction is off, or was a short while ago.
func TestHeadIsNotCompactedEarlyWithoutNeed(t *testing.T) {
	e := explosion{lasting: 20, born: 5}
	db, err := e.open(t.TempDir(), true)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	for scrape := range 10 {
		require.NoError(t, e.append(db, scrape))
	}
	series := db.head.NumSeries()
	memory := db.opts.Memory.(*scarce)

	db.opts.Memory = nil
	db.compactTight()
	db.opts.Memory = &scarce{}
	db.compactTight()
	db.opts.Memory = memory
	db.DisableCompactions()
	db.compactTight()
	db.EnableCompactions()
	db.nextTight = time.Now().Add(time.Hour)
	db.compactTight()
	require.Equal(t, series, db.head.NumSeries())
	require.Empty(t, db.Blocks())
	require.Zero(t, memory.most)

	db.nextTight = time.Time{}
	db.compactTight()
	require.Less(t, db.head.NumSeries(), series)
	require.Zero(t, db.head.NumStaleSeries())
	require.NotEmpty(t, db.Blocks())
	require.True(t, db.nextTight.After(time.Now()))
	require.Greater(t, memory.most, int64(compactionBytes))
	require.Zero(t, memory.reserved)
}

// The database looks at its blocks when their interval has passed, and before that when
// an early compaction makes memory less tight.
func TestHeadIsLookedAtEarlyWhileMemoryIsTight(t *testing.T) {
	e := explosion{lasting: 20, born: 5}
	db, err := e.open(t.TempDir(), true)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	memory := db.opts.Memory
	db.nextLook = time.Time{}
	require.Equal(t, tightLook, db.untilLook())
	require.False(t, db.due(), "nothing has ended")

	for scrape := range 10 {
		require.NoError(t, e.append(db, scrape))
	}
	db.nextLook, db.opts.Memory = time.Now().Add(time.Hour), &scarce{}
	require.False(t, db.due(), "memory is not tight")
	db.opts.Memory = memory
	db.nextTight = time.Now().Add(time.Hour)
	require.False(t, db.due(), "the last compaction was a short while ago")
	db.nextTight = time.Time{}
	require.True(t, db.due())
	db.nextTight, db.nextLook = time.Now().Add(time.Hour), time.Now()
	require.True(t, db.due(), "the interval has passed")
	require.True(t, db.nextLook.After(time.Now()))
	db.opts.Memory = nil
	require.Equal(t, db.opts.BlockReloadInterval, db.untilLook())
	require.True(t, db.due())
}

// A reader that holds up a compaction for half a minute does not put off the next one for
// five.
func TestThePauseAfterAnEarlyCompactionIsAMinuteAtMost(t *testing.T) {
	for took, pause := range map[time.Duration]time.Duration{
		0: 15 * time.Second, time.Second: 15 * time.Second, 4 * time.Second: 40 * time.Second, 30 * time.Second: time.Minute,
	} {
		require.Equal(t, pause, pauseAfter(took), took)
	}
}

// A compaction that comes in its time takes memory, too.
func TestACompactionReservesMemory(t *testing.T) {
	e := explosion{lasting: 20, born: 5}
	db, err := e.open(t.TempDir(), true)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	memory := db.opts.Memory.(*scarce)
	require.NoError(t, e.append(db, 0))
	require.NoError(t, db.Compact(context.Background()))
	require.Zero(t, memory.most, "there was nothing to compact")
	db.DisableCompactions()
	for scrape := 1; scrape < 70; scrape++ {
		require.NoError(t, e.append(db, scrape))
	}
	require.NoError(t, db.Compact(context.Background()))
	require.NotEmpty(t, db.Blocks())
	require.Greater(t, memory.most, int64(compactionBytes))
	require.Zero(t, memory.reserved)
}

// scarce is a Memory that says what it is told to.
type scarce struct {
	tight, full            bool
	mtx                    sync.Mutex
	reserved, most, wanted int64
}

func (s *scarce) Tight() bool { return s.tight }

func (s *scarce) Room(bytes int64) bool {
	s.wanted = bytes
	return !s.full || bytes == 0
}

func (s *scarce) Reserve(bytes int64) func() {
	s.add(bytes)
	return func() { s.add(-bytes) }
}

func (s *scarce) add(bytes int64) {
	s.mtx.Lock()
	defer s.mtx.Unlock()
	s.reserved += bytes
	s.most = max(s.most, s.reserved)
}
