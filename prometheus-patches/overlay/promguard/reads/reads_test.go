// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// add enters a read that runs.
func add(t *testing.T, table *Table, endpoint string) (*Read, context.Context, func()) {
	t.Helper()
	r, ctx, remove := table.Add(t.Context(), Info{Method: "GET", Endpoint: endpoint}, Limits{})
	leave, err := admit(ctx, table, r, nil, time.Second)
	require.NoError(t, err)
	return r, ctx, sync.OnceFunc(func() { leave(); remove() })
}

// admit waits for the read's turn for so long.
func admit(ctx context.Context, table *Table, r *Read, pool *Pool, wait time.Duration) (leave func(), err error) {
	return table.Admit(ctx, r, pool, time.After(wait), wait)
}

func TestReadIsFoundInItsContextAndNowhereElse(t *testing.T) {
	r, ctx, remove := add(t, NewTable(nil), "/x")
	defer remove()
	require.Same(t, r, FromContext(ctx))
	require.Nil(t, FromContext(t.Context()))
}

func TestStopEndsTheContextWithItsReason(t *testing.T) {
	r, ctx, remove := add(t, NewTable(nil), "/x")
	defer remove()
	require.NoError(t, Check(ctx))
	require.Nil(t, Stopped(ctx))
	first := &Stop{ReasonOperator, "first"}
	r.Stop(first)
	r.Stop(&Stop{ReasonShutdown, "second"})
	require.Same(t, first, Stopped(ctx))
	require.ErrorIs(t, Check(ctx), first)
	require.NotErrorIs(t, Check(ctx), context.DeadlineExceeded)
	require.ErrorIs(t, &Stop{Reason: ReasonDeadline}, context.DeadlineExceeded)
}

func TestClientThatLeavesIsNoStop(t *testing.T) {
	parent, leave := context.WithCancel(t.Context())
	_, ctx, remove := NewTable(nil).Add(parent, Info{}, Limits{})
	defer remove()
	leave()
	require.Nil(t, Stopped(ctx))
	require.ErrorIs(t, Check(ctx), context.Canceled)
}

func TestPoolBoundsWhatRunsAndHowManyWait(t *testing.T) {
	for _, table := range []*Table{NewTable(nil), fixed(128 * mib)} {
		testPoolBounds(t, table)
	}
	require.Nil(t, NewPool("none", 0))
}

func testPoolBounds(t *testing.T, table *Table) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool("metadata", 1)
		admit := func(ctx context.Context) (func(), error) {
			r, ctx, _ := table.Add(ctx, Info{}, Limits{})
			return admit(ctx, table, r, pool, time.Second)
		}
		release, err := admit(t.Context())
		require.NoError(t, err)

		_, err = admit(t.Context())
		require.ErrorContains(t, err, "all 1 of --guard.metadata-concurrency are taken")

		var wg sync.WaitGroup
		for range maxWaiting {
			wg.Go(func() { _, _ = admit(t.Context()) })
		}
		synctest.Wait()
		require.EqualValues(t, maxWaiting, pool.Waiting())
		start := time.Now()
		_, err = admit(t.Context())
		require.Error(t, err)
		require.Zero(t, time.Since(start), "a full queue is not waited for")
		wg.Wait()

		ctx, leave := context.WithCancel(t.Context())
		leave()
		_, err = admit(ctx)
		require.ErrorIs(t, err, context.Canceled)

		release()
		release, err = admit(t.Context())
		require.NoError(t, err)
		release()
	})
}

// inPool returns n reads that run in a pool, and their contexts.
func inPool(t *testing.T, table *Table, pool *Pool, n int) (reads []*Read, ctxs []context.Context) {
	t.Helper()
	for range n {
		r, ctx, remove := table.Add(t.Context(), Info{Method: "GET", Endpoint: "/x"}, Limits{})
		leave, err := admit(ctx, table, r, pool, time.Second)
		require.NoError(t, err)
		t.Cleanup(func() { leave(); remove() })
		reads, ctxs = append(reads, r), append(ctxs, ctx)
	}
	return reads, ctxs
}

func TestAQuarterOfThePlacesIsForReadsThatHaveJustBegun(t *testing.T) {
	for _, tc := range []struct{ size, quick int }{{1, 0}, {2, 1}, {4, 1}, {10, 2}, {16, 4}} {
		synctest.Test(t, func(t *testing.T) {
			table, pool := NewTable(nil), NewPool("query", tc.size)
			reads, ctxs := inPool(t, table, pool, tc.size)
			time.Sleep(quickFor - time.Microsecond)
			for i, r := range reads {
				require.NoError(t, r.Yield(ctxs[i]), "it is quick")
			}
			time.Sleep(time.Microsecond)
			mustWait := 0
			for i, r := range reads {
				err := r.Yield(ctxs[i])
				require.Equal(t, r.MustWait(), err != nil)
				if err == nil {
					continue
				}
				mustWait++
				require.ErrorIs(t, r.Yield(ctxs[i]), errMustWait, "all of its goroutines end")
				require.False(t, r.Begun(), "it answers nothing")
				r.place.Load().leave()
				got := make(chan error, 1)
				go func() {
					_, err := admit(ctxs[i], table, r, pool, time.Hour)
					got <- err
				}()
				synctest.Wait()
				require.Empty(t, got, "it waits for a place for long reads")
				_, _ = inPool(t, table, pool, 1)
				reads[0].place.Load().leave()
				require.NoError(t, <-got)
				reads[0] = r
				time.Sleep(2 * quickFor)
				require.NoError(t, r.Yield(ctxs[i]), "it runs twice at most")
				require.True(t, r.Begun())
				break
			}
			require.Equal(t, min(1, tc.quick), mustWait)
		})
	}
}

func TestAReadMovesToAPlaceForLongOnesIfThereIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, pool := NewTable(nil), NewPool("query", 2)
		reads, ctxs := inPool(t, table, pool, 2)
		require.Len(t, pool.quick, 1)
		reads[0].place.Load().leave()
		time.Sleep(quickFor)
		require.NoError(t, reads[1].Yield(ctxs[1]))
		require.Empty(t, pool.quick)
		require.Len(t, pool.normal, 1)
		reads[1].place.Load().leave()
		reads[1].place.Load().leave()
		require.Empty(t, pool.normal)
		require.True(t, reads[1].place.Load().move(), "one without a place needs none")
	})
}

func TestAnAnswerThatHasBegunWaitsForAPlaceForLongReads(t *testing.T) {
	for name, table := range map[string]*Table{"without a budget": NewTable(nil), "with one": fixed(128 * mib)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool := NewPool("metadata", 2)
				reads, ctxs := inPool(t, table, pool, 2)
				require.True(t, reads[1].Begun())
				time.Sleep(quickFor)
				goesOn := make(chan error, 1)
				go func() { goesOn <- reads[1].Yield(ctxs[1]) }()
				synctest.Wait()
				require.Empty(t, goesOn)
				for range 2 {
					quick, _ := inPool(t, table, pool, 1)
					quick[0].place.Load().leave()
				}
				reads[0].place.Load().leave()
				require.NoError(t, <-goesOn)
				require.Len(t, pool.normal, 1)
				require.Empty(t, pool.quick)
				require.True(t, reads[1].Begun())
				require.True(t, reads[1].long.Load())
				reads[1].place.Load().leave()
				require.Empty(t, pool.normal)
			})
		})
	}
}

func TestAnAnswerThatEndsWhileItWaitsForAPlaceHoldsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, pool := NewTable(nil), NewPool("metadata", 2)
		reads, ctxs := inPool(t, table, pool, 2)
		require.True(t, reads[1].Begun())
		time.Sleep(quickFor)
		goesOn := make(chan error, 1)
		go func() { goesOn <- reads[1].Yield(ctxs[1]) }()
		synctest.Wait()
		reads[1].place.Load().leave()
		reads[0].place.Load().leave()
		require.NoError(t, <-goesOn)
		require.Empty(t, pool.normal)
		require.Empty(t, pool.quick)
	})
}

func TestAReadThatWaitsForAPlaceHoldsNoMemoryAndTheOtherWayRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, pool := fixed(128*mib), NewPool("query", 1)
		runs, _ := inPool(t, table, pool, 1)
		again, ctx, _ := table.Add(t.Context(), Info{}, Limits{})
		again.needs = 50 * mib
		begins := make(chan error, 1)
		var leave func()
		go func() {
			var err error
			leave, err = admit(ctx, table, again, pool, time.Hour)
			begins <- err
		}()
		synctest.Wait()
		require.EqualValues(t, mib, table.Budget.Held())
		require.EqualValues(t, 1, pool.Waiting())
		require.Zero(t, table.Budget.Waiting())
		other, _, removeOther := add(t, table, "/large")
		require.False(t, expects(t, other, 60*mib), "nobody lacks memory")

		runs[0].place.Load().leave()
		synctest.Wait()
		require.Empty(t, begins)
		require.Zero(t, pool.Waiting())
		require.Equal(t, 1, table.Budget.Waiting())
		small, _ := inPool(t, table, pool, 1)
		small[0].place.Load().leave()
		removeOther()
		require.NoError(t, <-begins)
		require.EqualValues(t, 50*mib, table.Budget.heldBy(again))
		leave()
		require.Zero(t, table.Budget.Waiting()+int(pool.Waiting()))
	})
}

func TestOfThoseThatWaitForAPlaceTheOldestIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, pool := fixed(128*mib), NewPool("query", 1)
		runs, _ := inPool(t, table, pool, 1)
		order := make(chan string, 3)
		for _, name := range []string{"long", "large", "small"} {
			r, ctx, _ := table.Add(t.Context(), Info{}, Limits{})
			r.long.Store(name == "long")
			if name == "large" {
				r.needs = 50 * mib
			}
			go func() {
				leave, err := admit(ctx, table, r, pool, time.Hour)
				if err == nil {
					order <- name
					leave()
				}
			}()
		}
		synctest.Wait()
		require.EqualValues(t, 3, pool.Waiting())
		runs[0].place.Load().leave()
		require.Equal(t, []string{"long", "large", "small"}, []string{<-order, <-order, <-order})
	})
}

func TestAReadThatRunsAgainWaitsForWhatItHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, pool := fixed(128*mib), NewPool("query", 2)
		reads, ctxs := inPool(t, table, pool, 2)
		require.NoError(t, reads[1].Use(10*mib))
		time.Sleep(quickFor)
		require.ErrorIs(t, reads[1].Yield(ctxs[1]), errMustWait)
		reads[1].place.Load().leave()
		reads[0].place.Load().leave()
		_, err := admit(ctxs[1], table, reads[1], pool, time.Second)
		require.NoError(t, err)
		require.EqualValues(t, 11*mib, reads[1].budget.heldBy(reads[1]))
		require.NoError(t, reads[1].Use(10*mib))
		require.EqualValues(t, 11*mib, reads[1].budget.heldBy(reads[1]))
	})
}

func TestTableStopsOneReadOrAll(t *testing.T) {
	table := NewTable(nil)
	_, ctx1, remove1 := add(t, table, "/1")
	_, ctx2, remove2 := add(t, table, "/2")
	defer remove2()
	id := table.List()[0].ID
	status, done, ok := table.Stop(id, &Stop{ReasonOperator, "x"})
	require.True(t, ok)
	require.Equal(t, "/1", status.Endpoint)
	require.Error(t, ctx1.Err())
	require.NoError(t, ctx2.Err())
	remove1()
	<-done
	_, _, ok = table.Stop(id, &Stop{})
	require.False(t, ok)
	table.StopAll(&Stop{ReasonShutdown, "y"}, time.Millisecond)
	require.Equal(t, ReasonShutdown, Stopped(ctx2).Reason)
}

func TestListCutsLongExpressions(t *testing.T) {
	table := NewTable(nil)
	_, _, remove := table.Add(t.Context(), Info{Expressions: []string{string(make([]byte, 5000)), "up"}}, Limits{})
	defer remove()
	list := table.List()
	require.Equal(t, "waiting", list[0].State)
	require.Len(t, list[0].Expressions[0], 1<<10+3)
	require.Equal(t, "up", list[0].Expressions[1])
}
