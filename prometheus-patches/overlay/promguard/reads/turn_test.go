// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// taking returns n reads with their contexts in a table with the given turns.
func taking(t *testing.T, turns, n int) (*Table, []context.Context, []func()) {
	t.Helper()
	table := NewTable(nil)
	table.Turns = NewTurns(turns, 0)
	var ctxs []context.Context
	var removes []func()
	for range n {
		_, ctx, remove := table.Add(t.Context(), Info{}, Limits{})
		ctxs, removes = append(ctxs, ctx), append(removes, remove)
	}
	return table, ctxs, removes
}

func TestAsManyReadsRunForLongAsThereAreTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, ctxs, removes := taking(t, 2, 8)
		var running, most atomic.Int64
		var wg sync.WaitGroup
		for i, ctx := range ctxs {
			wg.Go(func() {
				defer removes[i]()
				for range 20 {
					require.NoError(t, Yield(ctx))
					most.Store(max(most.Load(), running.Add(1)))
					time.Sleep(turn / 2) // Stands for work.
					running.Add(-1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 2, most.Load())
		require.Empty(t, table.Turns.holders)
	})
}

func TestReadThatBlocksElsewhereWithItsTurnDoesNotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, ctxs, removes := taking(t, 1, 2)
		require.NoError(t, Yield(ctxs[0]))
		start := time.Now()
		require.NoError(t, Yield(ctxs[1]))
		require.Equal(t, turnPatience, time.Since(start))
		time.Sleep(turn)
		start = time.Now()
		require.NoError(t, Yield(ctxs[1]))
		require.Zero(t, time.Since(start), "patience is lost once")

		require.True(t, FromContext(ctxs[1]).Wait())
		require.False(t, FromContext(ctxs[1]).Wait())
		require.NoError(t, Yield(ctxs[0]))
		require.Zero(t, time.Since(start), "a read that says it waits gives its turn back")
		for _, remove := range removes {
			remove()
		}
		require.Empty(t, table.Turns.holders)
	})
}

func TestReadWithoutCompetitionKeepsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, ctxs, removes := taking(t, 1, 1)
		for range 100 {
			require.NoError(t, Yield(ctxs[0]))
			require.Len(t, table.Turns.holders, 1)
			time.Sleep(turn)
		}
		removes[0]()
		require.Empty(t, table.Turns.holders)
	})
}

func TestGoroutinesOfOneReadShareItsTurn(t *testing.T) {
	table, ctxs, removes := taking(t, 2, 1)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				require.NoError(t, Yield(ctxs[0]))
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, len(table.Turns.holders), 1)
	removes[0]()
	require.Empty(t, table.Turns.holders)
}

func TestReadThatIsStoppedDoesNotWaitForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctxs, removes := taking(t, 1, 2)
		require.NoError(t, Yield(ctxs[0]))
		FromContext(ctxs[1]).Stop(&Stop{Reason: ReasonOperator})
		start := time.Now()
		require.Error(t, Yield(ctxs[1]))
		require.Zero(t, time.Since(start))
		for _, remove := range removes {
			remove()
		}
	})
}

func TestWaitingForATurnAllocatesNothing(t *testing.T) {
	_, ctxs, removes := taking(t, 1, 2)
	for i := range removes {
		defer removes[i]()
	}
	// Each takes the turn from the other.
	turns := FromContext(ctxs[0]).turns
	swap := func() {
		for _, ctx := range ctxs {
			w := turns.ask(FromContext(ctx))
			turns.steal(w)
			turns.recycle(w)
		}
	}
	swap()
	require.Zero(t, testing.AllocsPerRun(100, swap))
}
