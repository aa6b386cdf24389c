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
	synctest.Test(t, func(t *testing.T) {
		table, pool := NewTable(nil), NewPool("metadata", 1)
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
	require.Nil(t, NewPool("none", 0))
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
