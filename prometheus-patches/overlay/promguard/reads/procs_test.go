// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// always says that memory is scarce.
func always() bool { return true }

// shared returns a table whose reads share n slots.
func shared(n int) *Table {
	table := NewTable(nil)
	table.Procs = NewProcs(n, always)
	return table
}

// works lets the read work for so long, and look as often as it should but at the end.
func works(ctx context.Context, t *testing.T, r *Read, d time.Duration) {
	t.Helper()
	const step = 100 * time.Microsecond
	for ; d > 0; d -= step {
		require.NoError(t, r.Yield(ctx))
		time.Sleep(step)
	}
}

// asks says when the read may go on.
func asks(ctx context.Context, r *Read) <-chan error {
	got := make(chan error, 1)
	go func() { got <- r.Yield(ctx) }()
	synctest.Wait()
	return got
}

func (p *Procs) leased() int {
	p.mtx.Lock()
	defer p.mtx.Unlock()
	return len(p.running)
}

func TestAReadNeedsNoSlotAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := shared(1)
		long, ctx, remove := add(t, table, "/long")
		defer remove()
		works(ctx, t, long, withoutSlot)
		require.Zero(t, table.Procs.leased())
		require.NoError(t, long.Yield(ctx))
		require.Equal(t, 1, table.Procs.leased())
		small, smallCtx, removeSmall := add(t, table, "/small")
		defer removeSmall()
		began := time.Now()
		works(smallCtx, t, small, withoutSlot)
		require.Equal(t, withoutSlot, time.Since(began), "it has not waited")
		require.NoError(t, long.Yield(ctx))
		long.proc.had = withoutSlot + slice/2
		got := asks(smallCtx, small)
		require.Empty(t, got, "now it needs one")
		require.NoError(t, long.Yield(ctx))
		require.Empty(t, got, "the other has not had more")
	})
}

func TestReadsHaveAllProcessorsWhileMemoryIsNotScarce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(nil)
		var scarce atomic.Bool
		table.Procs = NewProcs(1, scarce.Load)
		var reads [3]*Read
		var ctxs [3]context.Context
		for i := range reads {
			var remove func()
			reads[i], ctxs[i], remove = add(t, table, "/x")
			defer remove()
			works(ctxs[i], t, reads[i], withoutSlot)
		}
		require.NoError(t, reads[0].Yield(ctxs[0]))
		require.NoError(t, reads[1].Yield(ctxs[1]))
		third := asks(ctxs[2], reads[2])
		require.Empty(t, third)
		require.Equal(t, 2, table.Procs.leased())

		scarce.Store(true)
		reads[1].Wait()
		synctest.Wait()
		require.Empty(t, third, "now there is one")
		scarce.Store(false)
		time.Sleep(lease)
		synctest.Wait()
		require.Len(t, third, 1)
	})
}

func TestTheReadThatHasHadTheLeastProcessorTimeIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := shared(1)
		read := func(had time.Duration) (*Read, context.Context) {
			r, ctx, remove := add(t, table, had.String())
			t.Cleanup(remove)
			works(ctx, t, r, had)
			r.Wait()
			return r, ctx
		}
		most, mostCtx := read(30 * time.Millisecond)
		least, leastCtx := read(5 * time.Millisecond)
		holder, holderCtx := read(20 * time.Millisecond)
		require.NoError(t, holder.Yield(holderCtx))
		mostGot := asks(mostCtx, most)
		leastGot := asks(leastCtx, least)
		require.Empty(t, mostGot)
		holderGot := asks(holderCtx, holder)
		require.NoError(t, <-leastGot, "the last to come")
		require.Empty(t, mostGot)
		require.Empty(t, holderGot)
		least.Wait()
		require.NoError(t, <-holderGot)
		require.Empty(t, mostGot)
		holder.Wait()
		require.NoError(t, <-mostGot)
	})
}

func TestReadsThatHaveHadAsMuchTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := shared(1)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				r, ctx, remove := add(t, table, "/x")
				defer remove()
				for ctx, end := ctx, time.Now().Add(time.Second); time.Now().Before(end); {
					works(ctx, t, r, 100*time.Microsecond)
				}
				if had := r.proc.had; had < 200*time.Millisecond || had > 300*time.Millisecond {
					t.Errorf("one of four has had %s of a second", had)
				}
			})
		}
		wg.Wait()
		require.Zero(t, table.Procs.leased())
	})
}

func TestALongReadGoesOnWhileShortOnesKeepComing(t *testing.T) {
	for slots := 1; slots <= 3; slots++ {
		synctest.Test(t, func(t *testing.T) {
			table := shared(slots)
			const span = 10 * time.Second
			end := time.Now().Add(span)
			var wg sync.WaitGroup
			for range 4 * slots {
				wg.Go(func() {
					for time.Now().Before(end) {
						r, ctx, remove := add(t, table, "/short")
						works(ctx, t, r, 20*time.Millisecond)
						remove()
					}
				})
			}
			long, ctx, remove := add(t, table, "/long")
			defer remove()
			long.proc.had = time.Hour
			for time.Now().Before(end) {
				works(ctx, t, long, 100*time.Microsecond)
			}
			had := long.proc.had - time.Hour
			require.Greater(t, had, span/20)
			require.Less(t, had, span/4)
			wg.Wait()
		})
	}
}

func TestASlotIsFreeWhenItsLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := shared(1)
		first, ctx, removeFirst := add(t, table, "/waits-for-a-remote-storage")
		defer removeFirst()
		works(ctx, t, first, 3*withoutSlot)
		second, secondCtx, removeSecond := add(t, table, "/second")
		defer removeSecond()
		works(secondCtx, t, second, withoutSlot)
		began := time.Now()
		require.NoError(t, <-asks(secondCtx, second))
		require.LessOrEqual(t, time.Since(began), lease)
		require.Greater(t, time.Since(began), lease/2, "not before")
		time.Sleep(time.Hour)
		require.NoError(t, first.Yield(ctx), "nor has the second one now")
		require.Less(t, first.proc.had, 2*lease, "it has not run for an hour")
		require.True(t, first.Wait())
		require.False(t, first.Wait())
	})
}

func TestAReadThatIsStoppedDoesNotWaitForAProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := shared(1)
		first, ctx, remove := add(t, table, "/first")
		defer remove()
		works(ctx, t, first, 2*withoutSlot)
		second, secondCtx, removeSecond := add(t, table, "/second")
		works(secondCtx, t, second, withoutSlot)
		time.AfterFunc(time.Millisecond, func() { second.Stop(&Stop{Reason: ReasonOperator}) })
		require.Error(t, second.Yield(secondCtx))
		require.Empty(t, table.Procs.waiting)
		removeSecond()
		require.Equal(t, 1, table.Procs.leased())
	})
}

func TestGoroutinesOfOneReadHaveOneProcessor(t *testing.T) {
	table := shared(3)
	r, ctx, remove := add(t, table, "/x")
	began := time.Now()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for r.Yield(ctx) == nil && time.Since(began) < 10*withoutSlot {
				time.Sleep(time.Microsecond)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, table.Procs.leased())
	require.LessOrEqual(t, r.proc.had, time.Since(began))
	remove()
	require.Zero(t, table.Procs.leased())
	require.Nil(t, NewProcs(0, always))
}

// BenchmarkSmallRequestsBesideLongReads asks a server for next to nothing while
// sixteen reads keep its processors busy.
func BenchmarkSmallRequestsBesideLongReads(b *testing.B) {
	for name, n := range map[string]int{"memory=scarce": max(1, runtime.GOMAXPROCS(0)-1), "memory=enough": runtime.GOMAXPROCS(0), "leases=none": 0} {
		b.Run(name, func(b *testing.B) {
			table := NewTable(nil)
			table.Procs = NewProcs(n, always)
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					r, readCtx, remove := table.Add(ctx, Info{}, Limits{})
					defer remove()
					for r.Yield(readCtx) == nil {
						for began := time.Now(); time.Since(began) < 100*time.Microsecond; {
						}
					}
				})
			}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "1") }))
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				resp, err := s.Client().Get(s.URL)
				require.NoError(b, err)
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				took = append(took, time.Since(began))
				time.Sleep(time.Millisecond)
			}
			cancel()
			wg.Wait()
			s.Close()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}

func TestAReadThatWaitsForMemoryHoldsNoProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := fixed(800 * mib)
		table.Procs = NewProcs(1, always)
		first, _, removeFirst := add(t, table, "/first")
		second, _, removeSecond := add(t, table, "/second")
		defer removeSecond()
		require.False(t, expects(t, first, 298*mib))
		require.False(t, expects(t, second, 298*mib))
		third, ctx, removeThird := add(t, table, "/third")
		defer removeThird()
		works(ctx, t, third, 2*withoutSlot) // It counts what it selects.
		require.Equal(t, 1, table.Procs.leased())
		require.True(t, expects(t, third, 298*mib))
		admitted := make(chan error, 1)
		go func() {
			_, err := table.Admit(ctx, third, nil, nil, 0)
			admitted <- err
		}()
		synctest.Wait()
		require.Empty(t, admitted)
		require.Zero(t, table.Procs.leased())
		removeFirst()
		require.NoError(t, <-admitted)
	})
}
