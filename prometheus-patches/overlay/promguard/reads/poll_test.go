// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPollFindsWhatTheNetworkHas(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	r, w, err := os.Pipe() // Stands for a connection.
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	p := newPoller()
	var arrived atomic.Bool
	go func() {
		_, _ = r.Read(make([]byte, 1))
		arrived.Store(true)
	}()
	p.now() // The reader waits.
	require.False(t, arrived.Load())
	_, err = w.Write([]byte{0})
	require.NoError(t, err)
	// The poll wakes both; which of them runs first is the scheduler's choice.
	for range 3 {
		p.now()
	}
	require.True(t, arrived.Load())
}

func BenchmarkPoll(b *testing.B) {
	p := newPoller()
	for b.Loop() {
		p.now()
	}
}
