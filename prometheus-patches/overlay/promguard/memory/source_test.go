// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// kernel writes files below a directory, as the kernel has them below /.
func kernel(t *testing.T, files map[string]string) string {
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return root
}

func TestResidentIsWhatTheKernelCannotTakeBack(t *testing.T) {
	page := int64(os.Getpagesize())
	const statm = "5000 1000 400 1 0 900 0\n"
	const v1 = "4:memory:/a/b\n1:cpu:/a/b\n0::/\n"
	const v1Stat = "cache 900\ninactive_file 7\ntotal_inactive_file 1000\ntotal_active_file 2000\n"
	for name, tc := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is there":   {nil, 0},
		"only the process's": {map[string]string{"proc/self/statm": statm}, 600 * page},
		"cgroup v2": {map[string]string{
			"proc/self/statm":                         statm,
			"proc/self/cgroup":                        "0::/pod/server\n",
			"sys/fs/cgroup/pod/server/memory.current": "5000000\n",
			"sys/fs/cgroup/pod/server/memory.stat":    "anon 4000000\nfile 1\ninactive_file 300000\nactive_file 200000\nslab_reclaimable 500000\n",
		}, 4000000},
		"cgroup v2 of a container": {map[string]string{
			"proc/self/statm":              statm,
			"proc/self/cgroup":             "0::/\n",
			"sys/fs/cgroup/memory.current": "4500000\n",
			"sys/fs/cgroup/memory.stat":    "inactive_file 500000\n",
		}, 4000000},
		"cgroup v1": {map[string]string{
			"proc/self/statm":  statm,
			"proc/self/cgroup": v1,
			"sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": "4003000\n",
			"sys/fs/cgroup/memory/a/b/memory.stat":           v1Stat,
		}, 4000000},
		"cgroup v1 of a container": {map[string]string{
			"proc/self/statm":  statm,
			"proc/self/cgroup": v1,
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "4003000\n",
			"sys/fs/cgroup/memory/memory.stat":           v1Stat,
		}, 4000000},
		"a cgroup that is mostly others'": {map[string]string{
			"proc/self/statm":              statm,
			"proc/self/cgroup":             "0::/\n",
			"sys/fs/cgroup/memory.current": "40000000\n",
			"sys/fs/cgroup/memory.stat":    "inactive_file 0\n",
		}, 600 * page},
		"a cgroup without statistics": {map[string]string{
			"proc/self/statm":              statm,
			"proc/self/cgroup":             "0::/\n",
			"sys/fs/cgroup/memory.current": "4500000\n",
		}, 600 * page},
		"nonsense": {map[string]string{
			"proc/self/statm":              "x y z\n",
			"proc/self/cgroup":             "0::/\n\nmemory\n::\n",
			"sys/fs/cgroup/memory.current": "-\n",
			"sys/fs/cgroup/memory.stat":    "inactive_file\n\n5\n",
		}, 0},
	} {
		if page != 4096 {
			t.Skip("the figures are of pages of 4 KiB")
		}
		require.Equal(t, tc.want, newSourceBelow(kernel(t, tc.files)).resident(), name)
	}
}

func TestWhatTheProcessHoldsIsSeen(t *testing.T) {
	s := newSource()
	runtime.GC()
	before := s.read()
	held := make([]byte, 64<<20)
	for i := 0; i < len(held); i += 512 {
		held[i] = 1
	}
	runtime.GC()
	after, resident := s.read(), s.resident()
	runtime.KeepAlive(held)
	require.Greater(t, after.Live, before.Live+60<<20)
	require.Greater(t, after.Heap, before.Heap+60<<20)
	require.Greater(t, after.Cycle, before.Cycle)
	require.GreaterOrEqual(t, after.allocated, before.allocated+64<<20)
	if runtime.GOOS == "linux" {
		// What was there before may have been more: of garbage, or of others in the cgroup.
		require.Greater(t, resident, int64(60<<20))
		require.Positive(t, s.kill())
	}
}

func TestAutoIsGOMEMLIMITOrWhatTheContainerHas(t *testing.T) {
	was := debug.SetMemoryLimit(3 << 30)
	defer debug.SetMemoryLimit(was)
	require.EqualValues(t, 3<<30, Auto())
	debug.SetMemoryLimit(math.MaxInt64)
	require.Equal(t, Container(), Auto())
}

func TestTheRuntimeIsToldOfASizeThatIsLess(t *testing.T) {
	was := debug.SetMemoryLimit(3 << 30)
	defer debug.SetMemoryLimit(was)
	limit := AtMost(2 << 30)
	require.EqualValues(t, 2<<30, limit())
	require.EqualValues(t, 2<<30, debug.SetMemoryLimit(-1))
	debug.SetMemoryLimit(1 << 30)
	require.EqualValues(t, 1<<30, limit())
	require.EqualValues(t, 1<<30, debug.SetMemoryLimit(-1))
}
