// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Auto returns how much memory the process may use by what its environment says:
// GOMEMLIMIT, which Prometheus sets from the container's memory by default, or else
// what the container or the machine has. 0 means that nobody knows.
func Auto() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit
	}
	return Container()
}

// Container returns the memory of the container, or else of the machine, or 0 if
// nobody knows.
func Container() int64 {
	limit, err := memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)()
	if err != nil || limit > math.MaxInt64 {
		return 0
	}
	return int64(limit)
}

// AtMost returns a limit for NewMonitor that is so many bytes, or GOMEMLIMIT if that
// is less. If it is more, the runtime is told: it would let garbage grow beyond.
func AtMost(limit int64) func() int64 {
	return func() int64 {
		if was := debug.SetMemoryLimit(-1); was <= limit {
			return was
		}
		debug.SetMemoryLimit(limit)
		return limit
	}
}

// What is read of the runtime. Live memory is the sum of the first ones.
const (
	heapLive = iota
	stacks
	spans
	other
	heapObjects
	allocated
	cycles
)

// source reads what the process uses. Where there is no /proc and no cgroup, what
// the runtime says must do.
type source struct {
	samples []metrics.Sample
	proc    string
	cgroup  cgroup
}

func newSource() *source {
	return newSourceBelow("/")
}

// newSourceBelow reads the files of the kernel below a directory.
func newSourceBelow(root string) *source {
	names := []string{
		heapLive:    "/gc/heap/live:bytes",
		stacks:      "/memory/classes/heap/stacks:bytes",
		spans:       "/memory/classes/metadata/mspan/inuse:bytes",
		other:       "/memory/classes/metadata/other:bytes",
		heapObjects: "/memory/classes/heap/objects:bytes",
		allocated:   "/gc/heap/allocs:bytes",
		cycles:      "/gc/cycles/total:gc-cycles",
	}
	s := &source{samples: make([]metrics.Sample, len(names)), proc: filepath.Join(root, "proc/self"), cgroup: findCgroup(root)}
	for i, name := range names {
		s.samples[i].Name = name
	}
	return s
}

// read returns what the runtime knows. It asks the kernel for nothing: a system call may
// cost a busy process its turn.
func (s *source) read() Usage {
	metrics.Read(s.samples)
	n := func(i int) int64 { return int64(s.samples[i].Value.Uint64()) }
	u := Usage{
		Heap:      n(heapObjects),
		Cycle:     s.samples[cycles].Value.Uint64(),
		own:       n(stacks) + n(spans) + n(other),
		allocated: s.samples[allocated].Value.Uint64(),
	}
	u.Live = n(heapLive) + u.own
	return u
}

// resident returns what the kernel knows, as Usage.Resident.
func (s *source) resident() int64 {
	own := residentOf(s.proc)
	// Where most of the cgroup's memory is that of others, it is theirs to give back.
	if all := s.cgroup.used(); own >= all/2 {
		return max(own, all)
	}
	return own
}

func (*source) kill() int64 { return Container() }

// residentOf returns the pages of the process that are in memory and not of files, in
// bytes. The kernel drops those of files, as of blocks, when it needs memory.
func residentOf(proc string) int64 {
	text, err := os.ReadFile(filepath.Join(proc, "statm"))
	fields := bytes.Fields(text)
	if err != nil || len(fields) < 3 {
		return 0
	}
	resident, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	shared, _ := strconv.ParseInt(string(fields[2]), 10, 64)
	return max(0, resident-shared) * int64(os.Getpagesize())
}

// cgroup is the memory cgroup of the process: its directory, and what its files and
// values are called.
type cgroup struct {
	dir, current string
	cached       []string
}

// findCgroup finds the cgroup where it is mounted usually: what the process's path is,
// or, in a container, the mount itself.
func findCgroup(root string) cgroup {
	text, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		c, mount := cgroup{current: "memory.current", cached: []string{"inactive_file", "active_file", "slab_reclaimable"}}, "sys/fs/cgroup"
		switch fields[1] {
		case "":
		case "memory":
			c, mount = cgroup{current: "memory.usage_in_bytes", cached: []string{"total_inactive_file", "total_active_file"}}, "sys/fs/cgroup/memory"
		default:
			continue
		}
		for _, path := range []string{fields[2], "."} {
			c.dir = filepath.Join(root, mount, path)
			if _, err := os.Stat(filepath.Join(c.dir, c.current)); err == nil {
				return c
			}
		}
	}
	return cgroup{}
}

// used returns the bytes of the cgroup that the kernel cannot take back.
func (c cgroup) used() int64 {
	if c.dir == "" {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(c.dir, c.current))
	used, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	stat, errStat := os.ReadFile(filepath.Join(c.dir, "memory.stat"))
	if err != nil || errStat != nil {
		return 0
	}
	for line := range bytes.Lines(stat) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		for _, cached := range c.cached {
			if string(name) == cached {
				n, _ := strconv.ParseInt(string(value), 10, 64)
				used -= n
			}
		}
	}
	return max(0, used)
}
