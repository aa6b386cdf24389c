// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// fake is a process whose memory the test sets.
type fake struct {
	mu          sync.Mutex
	u           Usage
	limit, kill int64
	reads       int
}

func (f *fake) set(change func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) looks() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

// monitor returns a Monitor of the process that runs until the test ends.
func (f *fake) monitor(t *testing.T) *Monitor {
	m := newMonitor(
		func() int64 { f.mu.Lock(); defer f.mu.Unlock(); return f.limit },
		func() Usage {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.reads++
			u := f.u
			u.Resident = 0
			return u
		},
		func() int64 { f.mu.Lock(); defer f.mu.Unlock(); return f.u.Resident },
		func() int64 { f.mu.Lock(); defer f.mu.Unlock(); return f.kill },
	)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return m
}

func TestALookBetweenThoseOfRunAsksTheRuntimeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{u: Usage{Live: 100, Heap: 100, Resident: 100}, limit: 1000}
		m := f.monitor(t)
		f.set(func(f *fake) { f.u.Heap, f.u.Resident = 999, 999 })
		u := m.Look()
		require.EqualValues(t, 999, u.Heap)
		require.EqualValues(t, 100, u.Resident)
		require.EqualValues(t, 999, m.Usage().Heap)
		time.Sleep(2 * slow)
		synctest.Wait()
		require.EqualValues(t, 999, m.Usage().Resident)
	})
}

func TestTheMonitorLooksOftenOnlyWhileItMatters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{u: Usage{Live: 100, Heap: 100}, limit: 1000}
		m := f.monitor(t)
		in := func(d time.Duration) int {
			before := f.looks()
			time.Sleep(d)
			synctest.Wait()
			return f.looks() - before
		}
		in(500 * time.Millisecond) // From now on between ticks.
		require.Equal(t, 10, in(10*time.Second))
		done := m.Need()
		require.InDelta(t, 200, in(10*time.Second), 5)
		done()
		done()
		in(2 * time.Second)
		require.InDelta(t, 10, in(10*time.Second), 1)
		f.set(func(f *fake) { f.u.Live, f.u.Heap = 600, 600 })
		in(2 * time.Second)
		require.InDelta(t, 200, in(10*time.Second), 5)
	})
}

func TestTheLimitIsReadAgainWhileTheProcessRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{u: Usage{Live: 400, Heap: 400}, limit: 1000}
		m := f.monitor(t)
		time.Sleep(2500 * time.Millisecond)
		require.Equal(t, OK, m.State())
		f.set(func(f *fake) { f.limit = 500 })
		time.Sleep(3 * time.Second)
		require.Equal(t, Tight, m.State())
		require.EqualValues(t, 500, m.Usage().Limit)
		f.set(func(f *fake) { f.limit = 0 })
		time.Sleep(20 * time.Second)
		require.Equal(t, OK, m.State())
	})
}

func TestChangesOfStateAreToldLoggedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{u: Usage{Live: 400 << 20, Heap: 400 << 20}, limit: 1000 << 20}
		m := f.monitor(t)
		var log bytes.Buffer
		reg := prometheus.NewPedanticRegistry()
		m.Register(slog.New(slog.NewTextHandler(&log, nil)), reg)
		m.Transient(func() int64 { return 80 << 20 })
		var told []string
		m.OnChange(func(old, current State, u Usage) {
			require.Equal(t, current, m.State())
			require.EqualValues(t, 1000<<20, u.Limit)
			told = append(told, old.String()+" "+current.String())
		})
		begin := time.Now()
		time.Sleep(1500 * time.Millisecond)
		f.set(func(f *fake) { f.u.Live, f.u.Heap, f.u.Cycle = 900<<20, 900<<20, 1 })
		time.Sleep(5 * time.Second)
		require.Equal(t, Critical, m.Status().State)
		require.WithinRange(t, m.Status().Since, begin.Add(2*time.Second), begin.Add(4*time.Second))
		require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP prometheus_guard_memory_state 1 for the state of the memory: ok, tight, or critical, in which new series are refused.
# TYPE prometheus_guard_memory_state gauge
prometheus_guard_memory_state{state="critical"} 1
prometheus_guard_memory_state{state="ok"} 0
prometheus_guard_memory_state{state="tight"} 0
# HELP prometheus_guard_memory_live_bytes Memory of the heap after the last garbage collection, stacks, and the runtime's own.
# TYPE prometheus_guard_memory_live_bytes gauge
prometheus_guard_memory_live_bytes 9.437184e+08
`), "prometheus_guard_memory_state", "prometheus_guard_memory_live_bytes"))
		f.set(func(f *fake) { f.u.Live, f.u.Heap, f.u.Cycle = 100<<20, 100<<20, 2 })
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"ok tight", "tight critical", "critical ok"}, told)
		require.Equal(t, 3, strings.Count(log.String(), "The state of the memory has changed"))
		require.Contains(t, log.String(), `level=WARN msg="The state of the memory has changed" state=critical was=tight live=900MiB limit=1000MiB`)
		require.Contains(t, log.String(), `level=INFO msg="The state of the memory has changed" state=ok was=critical`)
		require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP prometheus_guard_memory_state_changes_total How often the state of the memory became this one.
# TYPE prometheus_guard_memory_state_changes_total counter
prometheus_guard_memory_state_changes_total{state="critical"} 1
prometheus_guard_memory_state_changes_total{state="ok"} 1
prometheus_guard_memory_state_changes_total{state="tight"} 1
`), "prometheus_guard_memory_state_changes_total"))
	})
}

func TestWhatReadsHoldDoesNotMakeTheStateCritical(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{u: Usage{Live: 900, Heap: 900}, limit: 1000}
		m := f.monitor(t)
		m.Transient(func() int64 { return 500 })
		time.Sleep(10 * time.Second)
		require.Equal(t, OK, m.State())
	})
}

// Collections are far apart where much of the limit is left, and one scrape can bring what
// is left.
func TestNewSeriesChangeTheStateBeforeTheNextCollectionAndTheNextTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{u: Usage{Live: 400, Heap: 400}, limit: 1000}
		m := f.monitor(t)
		time.Sleep(slow + slow/2)
		f.set(func(f *fake) { f.u.Heap = 990 })
		for range 47 {
			m.Created(10)
			synctest.Wait()
		}
		require.Equal(t, Critical, m.State())
		// The collection that sees them may have begun before the last.
		f.set(func(f *fake) { f.u.Live, f.u.Heap, f.u.Cycle = 410, 410, 1 })
		time.Sleep(2 * linger)
		synctest.Wait()
		require.Equal(t, OK, m.State())
	})
}

// Reads ask what is used while they hold what the Monitor waits for to ask them.
func TestTheUsageIsToldWhileTheMonitorAsksWhatReadsHold(t *testing.T) {
	f := &fake{u: Usage{Live: 400, Heap: 400}, limit: 1000}
	m := f.monitor(t)
	m.Transient(func() int64 { return m.Usage().Reserved + 20 })
	defer m.Reserve(10)()
	require.EqualValues(t, 15, m.Look().transient)
}

// What it has taken already lives: it does not count twice.
func TestACompactionThatRunsCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{u: Usage{Live: 600, Heap: 600}, limit: 1000}
		m := f.monitor(t)
		m.Plan(func() int64 { return 200 })
		done := m.Reserve(200)
		require.EqualValues(t, 200, m.Usage().Reserved)
		f.set(func(f *fake) { f.u.Live, f.u.Heap, f.u.Cycle = 790, 790, 1 })
		time.Sleep(3 * slow)
		synctest.Wait()
		require.Equal(t, Tight, m.State())
		m.Created(60)
		f.set(func(f *fake) { f.u.Heap = 840 })
		synctest.Wait()
		require.Equal(t, Critical, m.State(), "with what it still takes, and the series, nothing is left")
		f.set(func(f *fake) { f.u.Live, f.u.Heap, f.u.Cycle = 500, 500, 2 })
		done()
		done()
		require.Zero(t, m.Usage().Reserved)
		time.Sleep(2 * linger)
		synctest.Wait()
		require.Equal(t, OK, m.State())
	})
}

func TestWhoWaitsForRoomIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{u: Usage{Live: 800, Heap: 800}, limit: 1000}
		m := f.monitor(t)
		reg := prometheus.NewPedanticRegistry()
		m.Register(slog.New(slog.DiscardHandler), reg)
		waits := func() float64 {
			families, err := reg.Gather()
			require.NoError(t, err)
			for _, family := range families {
				if family.GetName() == "prometheus_guard_compaction_waiting_bytes" {
					return family.GetMetric()[0].GetGauge().GetValue()
				}
			}
			return -1
		}
		require.False(t, m.Room(70))
		require.InDelta(t, 70, waits(), 0)
		require.True(t, m.Room(0))
		require.Zero(t, waits())
		require.False(t, m.Room(70))
		f.set(func(f *fake) { f.u.Live = 770 })
		require.True(t, m.Room(70))
		require.Zero(t, waits())
	})
}

func TestGrowthIsThatOfTheHeapUntilTheNextCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{u: Usage{Live: 600, Heap: 600}, limit: 1000}
		m := f.monitor(t)
		time.Sleep(25 * time.Millisecond) // From now on between ticks.
		for range 100 {
			time.Sleep(50 * time.Millisecond)
			f.set(func(f *fake) { f.u.allocated += 100 })
		}
		require.InDelta(t, 2000, m.Usage().Growth, 200)
		time.Sleep(5 * time.Second)
		require.InDelta(t, 0, m.Usage().Growth, 1)
	})
}

func TestWithoutAMonitorTheStateIsOK(t *testing.T) {
	var m *Monitor
	m.Run(t.Context())
	m.Need()()
	m.OnChange(nil)
	m.Transient(nil)
	m.Plan(nil)
	m.Created(1)
	m.Reserve(1)()
	require.True(t, m.Room(1))
	m.Register(nil, nil)
	require.Equal(t, OK, m.State())
	require.Zero(t, m.Usage())
	require.Nil(t, m.Status())
}
