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
