// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGOMAXPROCSIsRaisedWhileReadsWaitForTheirTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(nil)
		table.Turns = NewTurns(1, 4)
		_, first, removeFirst := table.Add(t.Context(), Info{}, Limits{})
		_, second, removeSecond := table.Add(t.Context(), Info{}, Limits{})
		defer removeFirst()
		defer removeSecond()

		require.NoError(t, Yield(first))
		synctest.Wait()
		require.Equal(t, 2, runtime.GOMAXPROCS(0), "one read is no crowd")

		require.NoError(t, Yield(second))
		synctest.Wait()
		require.Equal(t, 4, runtime.GOMAXPROCS(0))

		time.Sleep(calm / 2)
		require.NoError(t, Yield(first))
		time.Sleep(calm * 3 / 4)
		synctest.Wait()
		require.Equal(t, 4, runtime.GOMAXPROCS(0), "somebody has waited since")

		time.Sleep(2 * calm)
		synctest.Wait()
		require.Equal(t, 2, runtime.GOMAXPROCS(0))
	})
}

func TestGOMAXPROCSIsNeverLowered(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(6))
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(4)
		c.isThere()
		synctest.Wait()
		require.Equal(t, 6, runtime.GOMAXPROCS(0))
		time.Sleep(2 * calm)
		synctest.Wait()
		require.Equal(t, 6, runtime.GOMAXPROCS(0))
	})
}
