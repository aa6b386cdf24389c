// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/promguard/memory"
)

// atOnce is how long a collection takes.
func atOnce() time.Duration { return 0 }

// running are the contexts of reads, by name.
type running map[string]context.Context

// add enters a read.
func (r running) add(t *testing.T, table *Table, name string) (*Read, func()) {
	read, ctx, remove := add(t, table, name)
	r[name] = ctx
	return read, remove
}

// stopped returns which of the reads are stopped.
func stopped(ctxs running) (names []string) {
	for name, ctx := range ctxs {
		if Stopped(ctx) != nil {
			names = append(names, name)
		}
	}
	return names
}

func TestTheBackstopStopsTheLargestAccountsThenTheYoungestThenAll(t *testing.T) {
	table := fixed(10 << 30)
	ctxs := running{}
	for _, read := range []struct {
		name string
		uses int64
	}{{"old", 0}, {"large", 40 * mib}, {"larger", 60 * mib}, {"small", 2 * mib}, {"young", 0}, {"younger", 0}, {"youngest", 0}} {
		r, remove := ctxs.add(t, table, read.name)
		defer remove()
		r.long.Store(true)
		require.NoError(t, r.Use(read.uses))
	}
	collections := 0
	s := &backstop{budget: table.Budget, collect: func(bool) { collections++ }, takes: atOnce, hasLimit: true}
	now, u := time.Now(), memory.Usage{Limit: 1000 * mib, Live: 700 * mib, Heap: 960 * mib, Cycle: 7}
	s.look(u, now)
	require.Empty(t, stopped(ctxs), "garbage is no reason")
	require.Zero(t, collections)

	u.Live, u.Cycle = 860*mib, 8
	now = now.Add(time.Hour) // It has not grown fast.
	s.look(u, now)
	require.ElementsMatch(t, []string{"larger"}, stopped(ctxs))
	require.ErrorContains(t, Stopped(ctxs["larger"]), "about to run out of memory (960MiB of 1000MiB in use)")
	require.Positive(t, collections, "what it held is free when it has been collected")
	u.Cycle = 9
	s.look(u, now)
	require.Len(t, stopped(ctxs), 1, "that collection may have begun before the read ended")
	u.Cycle = 10
	s.look(u, now)
	require.ElementsMatch(t, []string{"larger", "large", "youngest"}, stopped(ctxs), "twice as many, whatever they claim")
	u.Cycle = 12
	s.look(u, now)
	require.Len(t, stopped(ctxs), 7)
	u.Cycle = 14
	s.look(u, now)
	require.Len(t, stopped(ctxs), 7)
}

func TestTheBackstopStopsLastWhatIsAnsweredOrHasJustBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := fixed(10 << 30)
		ctxs := running{}
		enter := func(name string) *Read {
			r, remove := ctxs.add(t, table, name)
			t.Cleanup(remove)
			return r
		}
		enter("answered").Wrote(1)
		require.NoError(t, enter("long and large").Use(40*mib))
		long := enter("long")
		enter("long and answered").Wrote(1)
		time.Sleep(quickFor)
		enter("quick")
		enter("quicker")
		require.NoError(t, enter("quick and large").Use(60*mib))
		require.False(t, long.isQuick())
		var order []string
		for n := range len(ctxs) {
			require.True(t, table.Budget.stopSome(1, true, memory.Usage{}))
			names := stopped(ctxs)
			require.Len(t, names, n+1)
			for _, name := range names {
				if !slices.Contains(order, name) {
					order = append(order, name)
				}
			}
		}
		require.Equal(t, []string{"quick and large", "long and large", "long", "quick", "quicker", "long and answered", "answered"}, order)
	})
}

func TestWhatIsAnsweredIsNotStoppedForWhatOthersMayTake(t *testing.T) {
	table := fixed(10 << 30)
	r, ctx, remove := add(t, table, "/answered")
	defer remove()
	r.Wrote(1)
	s := &backstop{budget: table.Budget, collect: func(bool) {}, takes: atOnce, hasLimit: true}
	now, u := time.Now(), memory.Usage{Limit: 1000 * mib, Live: 700 * mib, Heap: 800 * mib, Cycle: 1}
	s.look(u, now)
	for range 100 { // What lives and what is allocated grows fast.
		u.Live, u.Cycle, u.Growth, now = u.Live+mib, u.Cycle+2, 1<<30, now.Add(time.Millisecond)
		s.look(u, now)
	}
	require.NotEqual(t, everyRead, table.Budget.allowed, "no other large one begins")
	require.NoError(t, ctx.Err())
	u.Live, u.Cycle = 860*mib, u.Cycle+2
	s.look(u, now)
	require.Error(t, ctx.Err(), "that is what lives already")
}

func TestTheBackstopStopsEarlierWhenTheHeapGrowsFaster(t *testing.T) {
	for _, tc := range []struct {
		name  string
		grows int64 // In a second, from 400 MiB of 1,000.
		stops bool
	}{
		{"slowly", 200 * mib, false},
		{"fast", 350 * mib, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table := fixed(10 << 30)
			_, ctx, remove := add(t, table, "/x")
			defer remove()
			s := &backstop{budget: table.Budget, collect: func(bool) {}, takes: atOnce, hasLimit: true}
			now, u := time.Now(), memory.Usage{Limit: 1000 * mib, Live: 400 * mib, Heap: 400 * mib, Cycle: 1}
			s.look(u, now)
			u.Live, u.Heap, u.Cycle, u.Growth = u.Live+tc.grows, u.Live+tc.grows, 2, 2<<30
			s.look(u, now.Add(time.Second))
			require.Equal(t, tc.stops, Stopped(ctx) != nil)
		})
	}
}

func TestWhenTheKernelIsAboutToKillAllAreStoppedAndNoneBegins(t *testing.T) {
	table := fixed(10 << 30)
	ctxs := running{}
	var removes []func()
	for i := range 20 {
		_, remove := ctxs.add(t, table, strconv.Itoa(i))
		removes = append(removes, remove)
	}
	s := &backstop{budget: table.Budget, collect: func(bool) {}, takes: atOnce, hasLimit: true}
	now, u := time.Now(), memory.Usage{Limit: 900 * mib, Kill: 1000 * mib, Live: 400 * mib, Heap: 870 * mib, Resident: 900 * mib, Cycle: 1}
	s.look(u, now)
	require.Empty(t, stopped(ctxs), "garbage may fill all of GOMEMLIMIT")
	u.Growth = 1 << 30
	s.look(u, now)
	require.Len(t, stopped(ctxs), 20)
	for _, remove := range removes {
		remove()
	}
	require.Error(t, begins(t, table), "until memory falls")
	u.Growth, u.Resident, u.Heap = 0, 500*mib, 500*mib
	s.look(u, now)
	require.Error(t, begins(t, table), "which a collection has to show")
	u.Cycle += 2
	s.look(u, now)
	require.NoError(t, begins(t, table))
}

func TestFewSmallReadsBeginUntilMemoryFalls(t *testing.T) {
	table := fixed(10 << 30)
	s := &backstop{budget: table.Budget, collect: func(bool) {}, takes: atOnce, hasLimit: true}
	u := memory.Usage{Limit: 1000 * mib, Live: 900 * mib, Heap: 900 * mib, Cycle: 1}
	s.look(u, time.Now())
	for range pressedReads {
		require.NoError(t, begins(t, table))
		_, _, remove := add(t, table, "/small")
		defer remove()
	}
	require.Error(t, begins(t, table))
	for r := range table.Budget.reads { // Its client may be slow.
		r.Wrote(1)
		break
	}
	require.NoError(t, begins(t, table))
	u.Live, u.Cycle = 500*mib, 3
	s.look(u, time.Now())
	require.NoError(t, begins(t, table))
}

func TestNothingIsCollectedForReadsThatAreGone(t *testing.T) {
	for name, u := range map[string]memory.Usage{
		"live":   {Limit: 1000 * mib, Live: 900 * mib, Heap: 910 * mib},
		"kernel": {Limit: 900 * mib, Kill: 1000 * mib, Live: 700 * mib, Heap: 710 * mib, Resident: 960 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			table := fixed(10 << 30)
			_, _, remove := add(t, table, "/x")
			s := &backstop{budget: table.Budget, collect: func(bool) { u.Cycle++ }, takes: atOnce, hasLimit: true}
			s.look(u, time.Now())
			require.Positive(t, u.Cycle)
			remove()
			for range 100 {
				s.look(u, time.Now())
			}
			require.LessOrEqual(t, u.Cycle, uint64(3), "what is left is not of reads")
		})
	}
}

// begins says whether a read may begin, by the error why not.
func begins(t *testing.T, table *Table) error {
	r, ctx, remove := table.Add(t.Context(), Info{}, Limits{})
	defer remove()
	_, err := admit(ctx, table, r, nil, 0)
	return err
}

func TestWithoutGOMEMLIMITGarbageIsCollectedBelowTheLimit(t *testing.T) {
	for _, hasLimit := range []bool{true, false} {
		collections := 0
		s := &backstop{budget: fixed(mib).Budget, collect: func(bool) { collections++ }, takes: atOnce, hasLimit: hasLimit}
		s.look(memory.Usage{Limit: 1000 * mib, Live: 500 * mib, Heap: 750 * mib, Cycle: 1}, time.Now())
		require.Zero(t, collections)
		s.look(memory.Usage{Limit: 1000 * mib, Live: 500 * mib, Heap: 810 * mib, Cycle: 1}, time.Now())
		require.Equal(t, hasLimit, collections == 0)
	}
}

// Where reads keep all processors busy, the goroutine of Backstop may come too late.
func TestAReadThatRunsLooksAtTheMemoryItself(t *testing.T) {
	table := fixed(10 << 30)
	m := memory.NewMonitor(func() int64 { return 1 })
	table.Budget.backstop.Store(&backstop{budget: table.Budget, monitor: m, collect: func(bool) {}, takes: atOnce, hasLimit: true})
	r, ctx, remove := table.Add(t.Context(), Info{}, Limits{})
	defer remove()
	_, err := admit(ctx, table, r, nil, 0)
	require.NoError(t, err)
	require.ErrorContains(t, r.Yield(ctx), "about to run out of memory")
}

// stormEnv makes the test binary run the storm. It holds the memory of the process.
const stormEnv = "PROMGUARD_TEST_STORM"

// TestReadsThatClaimNothingDoNotOutrunTheBackstop lets sixteen reads at a time allocate
// as fast as they can, in a process of its own: in a memory cgroup if this system lets
// one be made, else its largest size is looked at afterwards.
func TestReadsThatClaimNothingDoNotOutrunTheBackstop(t *testing.T) {
	if os.Getenv(stormEnv) != "" {
		storm(t)
		return
	}
	if testing.Short() {
		t.Skip("takes a gigabyte")
	}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("the race detector takes memory that the runtime does not know of")
	}
	const limit = 1 << 30
	for name, env := range map[string]string{
		"with GOMEMLIMIT":    fmt.Sprintf("GOMEMLIMIT=%d", limit/10*9),
		"without GOMEMLIMIT": "GOMEMLIMIT=off",
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestReadsThatClaimNothingDoNotOutrunTheBackstop$", "-test.v")
			cmd.Env = append(os.Environ(), env, stormEnv+"="+strconv.Itoa(limit))
			group := memoryCgroup(t, limit)
			if group != "" {
				cmd.Env = append(cmd.Env, "PROMGUARD_TEST_CGROUP="+group)
			}
			out, err := cmd.CombinedOutput()
			t.Logf("cgroup %q: %s", group, out)
			require.NoError(t, err, "it was killed")
			rss := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
			require.Less(t, rss, int64(limit))
		})
	}
}

// memoryCgroup makes a memory cgroup below this process's own, if it can.
func memoryCgroup(t *testing.T, limit int64) string {
	own, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		parent, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		if len(fields) < 3 || fields[1] != "memory" {
			if len(fields) < 3 || fields[1] != "" {
				continue
			}
			parent, file = "/sys/fs/cgroup", "memory.max"
		}
		dir, err := os.MkdirTemp(filepath.Join(parent, fields[2]), "backstop-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0); err == nil {
			_, err = fmt.Fprint(f, limit)
			if f.Close() == nil && err == nil {
				return dir
			}
		}
	}
	return ""
}

// tree is memory that a collection has to look through.
type tree struct {
	left, right *tree
	_           [64]byte
}

func grow(depth int) *tree {
	if depth == 0 {
		return &tree{}
	}
	return &tree{left: grow(depth - 1), right: grow(depth - 1)}
}

func storm(t *testing.T) {
	if group := os.Getenv("PROMGUARD_TEST_CGROUP"); group != "" {
		require.NoError(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0))
	}
	limit, err := strconv.ParseInt(os.Getenv(stormEnv), 10, 64)
	require.NoError(t, err)
	head := grow(20) // 160 MiB.
	m := memory.NewMonitor(func() int64 {
		if auto := memory.Auto(); auto < limit {
			return auto
		}
		return limit
	})
	table := NewTable(NewBudget(0, m.Usage))
	table.Procs = NewProcs(max(1, runtime.GOMAXPROCS(0)-1), m.Tight)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watchers, readers sync.WaitGroup
	watchers.Go(func() { m.Run(ctx) })
	watchers.Go(func() { table.Budget.Backstop(ctx, m) })
	var allocated, stops, answers atomic.Int64
	for i := range 16 {
		readers.Go(func() {
			for ctx.Err() == nil {
				r, readCtx, remove := table.Add(ctx, Info{Method: "GET", Endpoint: strconv.Itoa(i)}, Limits{})
				if _, err := admit(readCtx, table, r, nil, 20*time.Millisecond); err == nil {
					var held [][]*tree
					for r.Yield(readCtx) == nil {
						held = append(held, make([]*tree, 1<<17))
						for j := range 256 { // Touches each page.
							held[len(held)-1][j*512] = head
						}
						allocated.Add(mib)
					}
				}
				if Stopped(readCtx) != nil {
					stops.Add(1)
				}
				remove()
			}
		})
	}
	readers.Go(func() { // Somebody looks what is going on.
		defer cancel()
		for allocated.Load() < limit || stops.Load() < 200 || answers.Load() < 20 {
			r, readCtx, remove := table.Add(ctx, Info{Endpoint: "sum(up)"}, Limits{})
			if _, err := admit(readCtx, table, r, nil, time.Second); err == nil && readCtx.Err() == nil {
				answers.Add(1)
			}
			remove()
			time.Sleep(time.Millisecond)
		}
	})
	readers.Wait()
	watchers.Wait()
	require.NotNil(t, head.left)
	fmt.Printf("allocated %d MiB; %d reads stopped, %d small ones answered\n", allocated.Load()/mib, stops.Load(), answers.Load())
}
