// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLimitIsAFactorASizeOrOff(t *testing.T) {
	const rest = 100 << 20
	for text, want := range map[string]int64{
		"off": 0, "2.5": 250 << 20, "1.01": int64(1.01 * rest), "4GiB": 4 << 30, "512MiB": 512 << 20, "800KiB": 800 << 10,
	} {
		var spec Spec
		require.NoError(t, spec.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, spec.Of(rest), text)
	}
}

func TestLimitThatMakesNoSenseIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"": "must be off, a factor such as 2.5, a size such as 4GiB or 512MiB", "much": "must be off", "0": "must be greater than 1 and at most 1000, got 0",
		"1": "must be greater than 1", "-2": "must be greater than 1", "NaN": "must be greater than 1", "Inf": "must be greater than 1",
		"-1GiB": "must be off", "0MiB": "must be off", "4GiB and more": "must be off",
	} {
		require.ErrorContains(t, new(Spec).UnmarshalText([]byte(text)), want, text)
	}
}

func FuzzLimitIsNeverNegative(f *testing.F) {
	for _, s := range []string{"off", "2.5", "4GiB", "NaN", "1e300", "-0", "9999999TiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var spec Spec
		if spec.UnmarshalText([]byte(s)) == nil {
			require.GreaterOrEqual(t, spec.Of(1<<40), int64(0))
		}
	})
}

const (
	hostMounts = `25 30 0:23 / /sys/fs/cgroup rw shared:4 - tmpfs tmpfs ro,mode=755
26 25 0:24 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
27 25 0:25 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
28 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
`
	containerMounts = "28 25 0:26 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)

func TestCgroupOfVersion1IsBelowTheProcesssOwn(t *testing.T) {
	for _, tc := range []struct{ name, own, mounts, want string }{
		{"on a host", "8:pids:/\n4:memory:/a/b\n1:cpu:/x\n0::/\n", hostMounts, "/sys/fs/cgroup/memory/a/b"},
		{"beside another controller", "4:memory,hugetlb:/a\n", hostMounts, "/sys/fs/cgroup/memory/a"},
		{"in a container", "4:memory:/docker/abc\n", containerMounts, "/sys/fs/cgroup/memory"},
		{"below a container", "4:memory:/docker/abc/d\n", containerMounts, "/sys/fs/cgroup/memory/d"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, version, err := place(tc.own, tc.mounts)
			require.NoError(t, err)
			require.Equal(t, 1, version)
			require.Equal(t, tc.want, dir)
		})
	}
}

func TestCgroupOfVersion2IsWhereChildrenMayHaveLimits(t *testing.T) {
	root := t.TempDir()
	mounts := "30 25 0:24 / " + root + " rw - cgroup2 cgroup2 rw\n"
	own := filepath.Join(root, "user.slice", "session")
	require.NoError(t, os.MkdirAll(own, 0o777))

	_, _, err := place("0::/user.slice/session\n", mounts)
	require.ErrorContains(t, err, "neither "+own+" nor the cgroup above it lets its children have memory limits")

	require.NoError(t, os.WriteFile(filepath.Join(root, "user.slice", "cgroup.subtree_control"), []byte("cpu memory pids\n"), 0o666))
	dir, version, err := place("0::/user.slice/session\n", mounts)
	require.NoError(t, err)
	require.Equal(t, 2, version)
	require.Equal(t, filepath.Dir(own), dir)
}

func TestSystemWithoutMemoryCgroupsIsToldSo(t *testing.T) {
	for _, own := range []string{"", "garbage\n", "1:cpu:/\n", "4:memory:/elsewhere\n", "0::/\n"} {
		_, _, err := place(own, containerMounts)
		require.ErrorContains(t, err, "no memory cgroups are mounted", own)
	}
}

func FuzzPlaceOfACgroupDoesNotPanic(f *testing.F) {
	f.Add("4:memory:/a/b\n0::/\n", hostMounts)
	f.Add("4:memory:/docker/abc\n", containerMounts)
	f.Add("0::/../..\n", " - cgroup2 a b\n")
	f.Fuzz(func(t *testing.T, own, mounts string) {
		dir, version, err := place(own, mounts)
		if err == nil {
			require.NotEmpty(t, dir)
			require.NotZero(t, version)
		}
	})
}

func TestCgroupHasItsLimitAndLeavesNothing(t *testing.T) {
	c, err := NewCgroup(64 << 20)
	if err != nil {
		t.Skip("no memory cgroup can be made here: ", err)
	}
	name := map[int]string{1: "memory.limit_in_bytes", 2: "memory.max"}[c.Version]
	b, err := os.ReadFile(filepath.Join(c.dir, name))
	require.NoError(t, err)
	require.Equal(t, "67108864\n", string(b))
	kills, err := c.Kills()
	require.NoError(t, err)
	require.Zero(t, kills)
	require.FileExists(t, c.Procs())
	require.NoError(t, c.Remove())
	require.NoDirExists(t, c.dir)
	require.NoError(t, c.Remove(), "a second time")
}
