// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Cgroup is a memory cgroup made here. A process that joins it is killed by the
// kernel when it needs more than the limit.
type Cgroup struct {
	// Version is 1 or 2, that of the hierarchy.
	Version int
	dir     string
}

// removeTimeout is how long the kernel may take to let go of a cgroup whose
// processes have ended.
const removeTimeout = 5 * time.Second

// NewCgroup makes a cgroup with a limit in bytes. It returns an error if this
// system has no memory cgroups, or if the user may not make one.
func NewCgroup(limit int64) (*Cgroup, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	parent, version, err := place(string(own), string(mounts))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "oomstorm-")
	if err != nil {
		return nil, err
	}
	c := &Cgroup{Version: version, dir: dir}
	if err := c.setLimit(limit); err != nil {
		return nil, errors.Join(err, c.Remove())
	}
	return c, nil
}

// place is where a cgroup can be made, by the contents of the process's cgroup
// and mountinfo files. In a hierarchy of version 1 it is below the process's
// own, so that a limit on that one still holds. In version 2 a cgroup with
// processes can have no children with controllers; there it is beside it.
func place(own, mounts string) (dir string, version int, err error) {
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch controllers, path := strings.Split(parts[1], ","), parts[2]; {
		case slices.Contains(controllers, "memory"):
			if dir, ok := mounted(mounts, "cgroup", "memory", path); ok {
				return dir, 1, nil
			}
		case parts[0] == "0":
			if at, ok := mounted(mounts, "cgroup2", "", path); ok {
				dir, version = at, 2
			}
		}
	}
	if version == 0 {
		return "", 0, errors.New("no memory cgroups are mounted")
	}
	for _, candidate := range []string{dir, filepath.Dir(dir)} {
		enabled, err := os.ReadFile(filepath.Join(candidate, "cgroup.subtree_control"))
		if err == nil && slices.Contains(strings.Fields(string(enabled)), "memory") {
			return candidate, 2, nil
		}
	}
	return "", 0, fmt.Errorf("neither %s nor the cgroup above it lets its children have memory limits", dir)
}

// mounted is the directory of a cgroup's path under the mount of its hierarchy.
// A hierarchy of version 1 is known by an option of its file system.
func mounted(mounts, fsType, option, path string) (string, bool) {
	for line := range strings.Lines(mounts) {
		left, right, ok := strings.Cut(line, " - ")
		before, after := strings.Fields(left), strings.Fields(right)
		if !ok || len(before) < 5 || len(after) < 3 || after[0] != fsType {
			continue
		}
		if option != "" && !slices.Contains(strings.Split(after[2], ","), option) {
			continue
		}
		// The mount's root may itself be a cgroup, as in a container.
		rel, err := filepath.Rel(before[3], path)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		return filepath.Join(before[4], rel), true
	}
	return "", false
}

// setLimit also keeps the processes from going on in swap, where there is some.
func (c *Cgroup) setLimit(limit int64) error {
	files := []struct{ name, value string }{
		{"memory.max", strconv.FormatInt(limit, 10)},
		{"memory.swap.max", "0"},
	}
	if c.Version == 1 {
		files[0].name = "memory.limit_in_bytes"
		files[1].name, files[1].value = "memory.memsw.limit_in_bytes", files[0].value
	}
	for i, f := range files {
		err := write(filepath.Join(c.dir, f.name), f.value)
		if err != nil && (i == 0 || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// write writes to a file that exists; the kernel's files cannot be made.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// Procs is the file that a process joins the cgroup by writing its number to.
func (c *Cgroup) Procs() string { return filepath.Join(c.dir, "cgroup.procs") }

// Kills is how many processes the kernel killed for the limit.
func (c *Cgroup) Kills() (int, error) {
	name := "memory.events"
	if c.Version == 1 {
		name = "memory.oom_control"
	}
	b, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "oom_kill" {
			return strconv.Atoi(fields[1])
		}
	}
	return 0, fmt.Errorf("%s in %s has no oom_kill", name, c.dir)
}

// Remove removes the cgroup. Its processes must have ended.
func (c *Cgroup) Remove() error {
	begin := time.Now()
	for {
		err := os.Remove(c.dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Since(begin) > removeTimeout {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
