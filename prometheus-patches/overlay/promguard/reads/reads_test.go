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
	release, err := table.Admit(ctx, r, nil, time.Second)
	require.NoError(t, err)
	return r, ctx, sync.OnceFunc(func() { release(); remove() })
}

func TestReadIsFoundInItsContextAndNowhereElse(t *testing.T) {
	r, ctx, remove := add(t, NewTable(nil), "/x")
	defer remove()
	require.Same(t, r, FromContext(ctx))
	require.Nil(t, FromContext(t.Context()))
	require.NoError(t, (*Read)(nil).Reserve(t.Context(), 1<<40), "other code has no limit")
	require.NoError(t, (*Read)(nil).CheckResponse(1<<40))
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

func TestBudgetIsGivenBackWhenAReadEnds(t *testing.T) {
	b := NewBudget(100 << 20)
	table := NewTable(b)
	r, ctx, remove := add(t, table, "/x")
	require.NoError(t, r.Reserve(ctx, 10<<20))
	require.EqualValues(t, 11<<20, b.Held())
	require.EqualValues(t, 11<<20, table.List()[0].ReservedBytes)
	remove()
	require.Zero(t, b.Held())
	require.Zero(t, table.Len())
}

func TestReadThatNeedsMoreThanHalfOfTheBudgetIsTooLarge(t *testing.T) {
	table := NewTable(NewBudget(100 << 20))
	r, ctx, remove := add(t, table, "/x")
	defer remove()
	require.NoError(t, r.Reserve(ctx, 49<<20))
	err := r.Reserve(ctx, 1<<20)
	require.ErrorContains(t, err, "GET /x needs more than 50MiB of memory, half of --guard.read-memory-budget=100MiB")
	require.Equal(t, ReasonTooLarge, Stopped(ctx).Reason)
}

func TestReadsWaitForMemoryThatOthersHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(NewBudget(128 << 20))
		first, firstCtx, removeFirst := add(t, table, "/first")
		require.NoError(t, first.Reserve(firstCtx, 60<<20))
		second, secondCtx, removeSecond := add(t, table, "/second")
		defer removeSecond()
		got := make(chan error, 1)
		go func() { got <- second.Reserve(secondCtx, 60<<20) }()
		synctest.Wait()
		require.Empty(t, got)
		require.Nil(t, Stopped(firstCtx), "it runs, and will end")

		_, _, removeSmall := add(t, table, "/small")
		removeSmall() // A small read does not wait.

		removeFirst()
		require.NoError(t, <-got)
	})
}

func TestReadThatWaitsForMemoryLeavesWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(NewBudget(128 << 20))
		first, firstCtx, removeFirst := add(t, table, "/first")
		defer removeFirst()
		require.NoError(t, first.Reserve(firstCtx, 60<<20))
		second, secondCtx, removeSecond := add(t, table, "/second")
		defer removeSecond()
		ctx, cancel := context.WithTimeout(secondCtx, time.Second)
		defer cancel()
		require.ErrorIs(t, second.Reserve(ctx, 60<<20), context.DeadlineExceeded)
		require.Zero(t, table.Budget.waiting)
	})
}

func TestLargestReadIsStoppedWhenEveryReadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(NewBudget(128 << 20))
		reads := map[string]*Read{}
		ctxs := map[string]context.Context{}
		removes := map[string]func(){}
		for name, size := range map[string]int64{"/large": 40 << 20, "/middle": 30 << 20, "/less": 20 << 20} {
			reads[name], ctxs[name], removes[name] = add(t, table, name)
			require.NoError(t, reads[name].Reserve(ctxs[name], size))
		}
		got := make(chan error, 2)
		go func() { got <- reads["/middle"].Reserve(ctxs["/middle"], 20<<20) }()
		go func() { got <- reads["/less"].Reserve(ctxs["/less"], 20<<20) }()
		synctest.Wait()
		require.Nil(t, Stopped(ctxs["/large"]), "it runs")
		err := reads["/large"].Reserve(ctxs["/large"], 20<<20)
		require.ErrorContains(t, err, "it held the most, 41MiB")
		require.Equal(t, ReasonMemory, Stopped(ctxs["/large"]).Reason)
		require.Empty(t, got, "one at a time")
		removes["/large"]()
		require.NoError(t, <-got)
		removes["/middle"]()
		removes["/less"]()
	})
}

func TestReadsThatAllWantMoreNeverWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(NewBudget(64 << 20))
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				r, ctx, remove := table.Add(t.Context(), Info{}, Limits{})
				defer remove()
				release, err := table.Admit(ctx, r, nil, time.Hour)
				if err != nil {
					return
				}
				defer release()
				for range 20 {
					if r.Reserve(ctx, 528<<10) != nil {
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		require.Zero(t, table.Budget.Held())
	})
}

func TestNewReadsWaitForMemoryAndAreRefusedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(NewBudget(8 << 20))
		var removes []func()
		for range 8 {
			_, _, remove := add(t, table, "/x")
			removes = append(removes, remove)
		}
		admit := func() error {
			r, ctx, remove := table.Add(t.Context(), Info{Method: "GET", Endpoint: "/y"}, Limits{})
			defer remove()
			_, err := table.Admit(ctx, r, nil, 10*time.Second)
			return err
		}
		start := time.Now()
		err := admit()
		require.ErrorContains(t, err, "--guard.queue-timeout=10s")
		require.ErrorContains(t, err, "--guard.read-memory-budget=8MiB is spent")
		require.Equal(t, 10*time.Second, time.Since(start))

		got := make(chan error, 1)
		go func() { got <- admit() }()
		synctest.Wait()
		removes[0]()
		require.NoError(t, <-got)
		for _, remove := range removes[1:] {
			remove()
		}
	})
}

func TestPoolBoundsWhatRunsAndHowManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, pool := NewTable(nil), NewPool("metadata", 1)
		admit := func(ctx context.Context) (func(), error) {
			r, ctx, _ := table.Add(ctx, Info{}, Limits{})
			return table.Admit(ctx, r, pool, time.Second)
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
	require.Nil(t, NewPool("none", 0))
}

func TestWhatIsExpectedIsReservedWhenTheReadBegins(t *testing.T) {
	table := NewTable(NewBudget(64 << 20))
	r, ctx, remove := table.Add(t.Context(), Info{}, Limits{})
	defer remove()
	require.NoError(t, r.Expect(10<<20))
	require.NoError(t, r.Expect(5<<20))
	require.Zero(t, table.Budget.Held())
	require.NoError(t, r.Begin(ctx))
	require.NoError(t, r.Begin(ctx))
	require.EqualValues(t, 15<<20, table.Budget.Held())

	require.NoError(t, r.Use(10<<20))
	require.EqualValues(t, 15<<20, table.Budget.Held(), "it was reserved")
	require.NoError(t, r.Use(10<<20))
	require.EqualValues(t, 21<<20, table.Budget.Held(), "what it had at its start, and what it holds")
	require.NoError(t, r.Use(-10<<20))
	require.Error(t, r.Expect(12<<20))
	require.Equal(t, ReasonTooLarge, Stopped(ctx).Reason)
}

func TestReadThatUsesMoreThanAnyMayHaveIsStopped(t *testing.T) {
	table := NewTable(NewBudget(64 << 20))
	r, ctx, remove := table.Add(t.Context(), Info{}, Limits{})
	defer remove()
	require.NoError(t, r.Use(30<<20))
	require.ErrorContains(t, r.Use(2<<20), BudgetFlag)
	require.Equal(t, ReasonTooLarge, Stopped(ctx).Reason)
}

func TestExemptReadNeverWaitsForMemory(t *testing.T) {
	table := NewTable(NewBudget(2 << 20))
	for range 2 {
		_, _, remove := add(t, table, "/x")
		defer remove()
	}
	r, ctx, remove := table.Add(t.Context(), Info{}, Limits{Exempt: true})
	defer remove()
	release, err := table.Admit(ctx, r, nil, 0)
	require.NoError(t, err)
	release()
	require.NoError(t, r.Reserve(ctx, 1<<40))
}

func TestPressureStopsTheReadThatHoldsTheMost(t *testing.T) {
	b := NewBudget(1 << 30)
	table := NewTable(b)
	require.False(t, b.relieve(9, 10), "nobody to stop")
	small, smallCtx, removeSmall := add(t, table, "/small")
	defer removeSmall()
	require.False(t, b.relieve(9, 10), "a read that holds nothing brings no relief")
	require.NoError(t, small.Reserve(smallCtx, 20<<20))
	large, largeCtx, removeLarge := add(t, table, "/large")
	require.NoError(t, large.Reserve(largeCtx, 40<<20))

	require.True(t, b.relieve(9<<30, 10<<30))
	require.ErrorContains(t, Stopped(largeCtx), "about to run out of memory (9GiB of 10GiB in use)")
	require.True(t, b.relieve(9<<30, 10<<30))
	require.Nil(t, Stopped(smallCtx), "the next only when the first has ended")
	removeLarge()
	require.True(t, b.relieve(9<<30, 10<<30))
	require.NotNil(t, Stopped(smallCtx))
}

func TestMemoryInUseAndItsLimitAreRead(t *testing.T) {
	live, limit, _ := newMemory().read()
	require.Positive(t, limit)
	require.Less(t, live, limit)
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
