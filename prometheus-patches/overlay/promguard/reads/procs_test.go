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
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// shared returns a table whose reads share n processors.
func shared(n int) *Table {
	table := NewTable(nil)
	table.Procs = NewProcs(n)
	return table
}

func TestReadsShareTheProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := shared(1)
		first, ctx, removeFirst := add(t, table, "/first")
		second, secondCtx, removeSecond := add(t, table, "/second")
		require.NoError(t, first.Yield(ctx))
		require.NoError(t, first.Yield(ctx), "nobody else waits")
		got := make(chan error, 1)
		go func() { got <- second.Yield(secondCtx) }()
		synctest.Wait()
		require.NoError(t, first.Yield(ctx))
		require.Empty(t, got, "the slice is not over")
		time.Sleep(slice + slice/2)
		synctest.Wait()
		go func() { _ = first.Yield(ctx) }()
		require.NoError(t, <-got)
		removeSecond() // Gives back what the first waits for.
		synctest.Wait()
		require.True(t, first.Wait(), "it has its turn again")
		require.False(t, first.Wait())
		removeFirst()
		require.Empty(t, table.Procs.slots)
	})
}

func TestAReadThatWaitsTooLongForAProcessorGoesOnWithout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := shared(1)
		_, _, removeFirst := func() (*Read, context.Context, func()) {
			r, ctx, remove := add(t, table, "/waits-for-a-remote-storage")
			require.NoError(t, r.Yield(ctx))
			return r, ctx, remove
		}()
		defer removeFirst()
		second, ctx, remove := add(t, table, "/second")
		defer remove()
		began := time.Now()
		require.NoError(t, second.Yield(ctx))
		require.Equal(t, procPatience, time.Since(began))
		for range 1000 {
			time.Sleep(100 * time.Microsecond)
			require.NoError(t, second.Yield(ctx))
		}
		require.LessOrEqual(t, time.Since(began), 4*procPatience, "for as long as it has waited")
	})
}

func TestAReadThatIsStoppedDoesNotWaitForAProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := shared(1)
		first, ctx, remove := add(t, table, "/first")
		defer remove()
		require.NoError(t, first.Yield(ctx))
		second, secondCtx, removeSecond := add(t, table, "/second")
		defer removeSecond()
		time.AfterFunc(time.Millisecond, func() { second.Stop(&Stop{Reason: ReasonOperator}) })
		require.Error(t, second.Yield(secondCtx))
	})
}

func TestGoroutinesOfOneReadHaveOneProcessor(t *testing.T) {
	table := shared(3)
	r, ctx, remove := add(t, table, "/x")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				_ = r.Yield(ctx)
			}
		})
	}
	wg.Wait()
	require.Len(t, table.Procs.slots, 1)
	remove()
	require.Empty(t, table.Procs.slots)
	require.Nil(t, NewProcs(0))
}

// BenchmarkSmallRequestsBesideLongReads asks a server for next to nothing while
// sixteen reads keep its processors busy.
func BenchmarkSmallRequestsBesideLongReads(b *testing.B) {
	for name, n := range map[string]int{"semaphore": max(1, runtime.GOMAXPROCS(0)-1), "without": 0} {
		b.Run(name, func(b *testing.B) {
			table := NewTable(nil)
			table.Procs = NewProcs(n)
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
		table.Procs = NewProcs(1)
		first, _, removeFirst := add(t, table, "/first")
		second, _, removeSecond := add(t, table, "/second")
		defer removeSecond()
		require.False(t, expects(t, first, 298*mib))
		require.False(t, expects(t, second, 298*mib))
		third, ctx, removeThird := add(t, table, "/third")
		defer removeThird()
		require.NoError(t, third.Yield(ctx), "it counts what it selects")
		require.Len(t, table.Procs.slots, 1)
		require.True(t, expects(t, third, 298*mib))
		admitted := make(chan error, 1)
		go func() {
			_, err := table.Admit(ctx, third, nil, nil, 0)
			admitted <- err
		}()
		synctest.Wait()
		require.Empty(t, admitted)
		require.Empty(t, table.Procs.slots)
		removeFirst()
		require.NoError(t, <-admitted)
	})
}
