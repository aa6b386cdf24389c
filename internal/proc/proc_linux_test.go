// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func rusage(t *testing.T) syscall.Rusage {
	t.Helper()
	var ru syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &ru))
	return ru
}

func TestCPUClockAgreesWithTheKernelsAccounts(t *testing.T) {
	used := func() time.Duration {
		ru := rusage(t)
		return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	}
	for used() < 100*time.Millisecond {
		runtime.Gosched()
	}
	before := used()
	got, err := CPUTime(os.Getpid())
	require.NoError(t, err)
	// The kernel's accounts may lag by a tick per thread.
	require.InDelta(t, before.Seconds(), got.Seconds(), 0.05)
}

func TestContextSwitchesAgreeWithTheKernelsAccounts(t *testing.T) {
	for range 100 {
		time.Sleep(time.Millisecond)
	}
	voluntary, involuntary, err := ContextSwitches(os.Getpid())
	require.NoError(t, err)
	ru := rusage(t)
	require.InDelta(t, ru.Nvcsw, voluntary, 100)
	require.InDelta(t, ru.Nivcsw, involuntary, 200)
	require.Greater(t, voluntary, int64(50))
}

func TestAnonymousMemoryGrowsByWhatIsTouched(t *testing.T) {
	before, err := ReadMemory(os.Getpid())
	require.NoError(t, err)
	block, err := syscall.Mmap(-1, 0, 64<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	for i := 0; i < len(block); i += os.Getpagesize() {
		block[i] = 1
	}
	after, err := ReadMemory(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, syscall.Munmap(block))
	require.InDelta(t, 64<<20, after.Anon-before.Anon, 8<<20)
	require.GreaterOrEqual(t, after.RSS, after.Anon)
	require.GreaterOrEqual(t, after.Peak, after.RSS)
}

func TestBytesReadGrowByWhatIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, make([]byte, 3<<20), 0o666))
	before, _, err := BytesRead(os.Getpid())
	require.NoError(t, err)
	_, err = os.ReadFile(path)
	require.NoError(t, err)
	after, _, err := BytesRead(os.Getpid())
	require.NoError(t, err)
	require.InDelta(t, 3<<20, after-before, 256<<10)
}

func TestProcessesThatAreGoneAreErrors(t *testing.T) {
	const gone = 1<<22 + 1 // Beyond the kernel's limit on process numbers.
	_, err := CPUTime(gone)
	require.Error(t, err)
	_, err = ReadMemory(gone)
	require.Error(t, err)
}
