// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolatedEnv tells the second process of Isolated its directory.
const isolatedEnv = "PROMGUARD_CLUSTER_ISOLATED"

// Isolated runs a test binary's tests, for root in a second process with PIDs,
// mounts and a network of its own, and returns the exit status. When that process
// ends, the kernel ends all that it started, unmounts and forgets the rest; its
// control groups and its files are removed here.
func Isolated(run func() int) int {
	if os.Geteuid() != 0 {
		return run()
	}
	if dir := os.Getenv(isolatedEnv); dir != "" {
		if err := furnish(dir); err != nil {
			fmt.Fprintln(os.Stderr, "the namespaces of the cluster:", err)
			return 1
		}
		return run()
	}
	status, err := again()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// isolation is the directory of this process's own /var and /run, or empty where
// it runs beside everything else.
func isolation() string { return os.Getenv(isolatedEnv) }

// again runs this program in new namespaces.
func again() (int, error) {
	dir, err := os.MkdirTemp("", "promguard-cluster-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	defer removeGroups(filepath.Base(dir))
	// The parent's death is that of the thread that started the child.
	runtime.LockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), isolatedEnv+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	// Not ended by Ctrl-C before what is left has been removed.
	signal.Ignore(os.Interrupt)
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	} else if err != nil {
		return 0, err
	}
	return 0, nil
}

// furnish gives the namespaces what programs expect: a /proc of their PIDs, an
// empty /var and /run, a loopback device, and tunables of the kernel that cannot be
// changed, for they are those of the whole machine.
func furnish(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, name := range []string{"/var", "/run"} {
		own := dir + name
		if err := os.MkdirAll(own, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(own, name, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s: %w", name, err)
		}
	}
	if err := os.MkdirAll("/var/log", 0o755); err != nil {
		return err
	}
	if err := os.Symlink("/run", "/var/run"); err != nil {
		return err
	}
	if err := fixTunables(dir); err != nil {
		return err
	}
	return loopbackUp()
}

// expected is what a kubelet wants of the kernel and would set, for all processes of
// the machine.
var expected = map[string]string{
	"kernel/keys/root_maxbytes": "25000000",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
}

// fixTunables leaves only those of the network writable, which are this namespace's
// own, and shows a kubelet the others as it wants them.
func fixTunables(dir string) error {
	const all, network = "/proc/sys", "/proc/sys/net"
	bind := func(from, to string) error {
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", to, err)
		}
		return nil
	}
	if err := errors.Join(bind(all, all), bind(network, network)); err != nil {
		return err
	}
	for name, value := range expected {
		shown := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(shown, []byte(value+"\n"), 0o444); err != nil {
			return err
		}
		if err := bind(shown, filepath.Join(all, name)); err != nil {
			return err
		}
	}
	if err := unix.Mount("", all, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("remount %s: %w", all, err)
	}
	return nil
}

func loopbackUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

// hierarchies are where control groups of version 1 are mounted.
func hierarchies() []string {
	mounts, _ := os.ReadFile("/proc/mounts")
	var dirs []string
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && (f[2] == "cgroup" || f[2] == "cgroup2") {
			dirs = append(dirs, f[1])
		}
	}
	return dirs
}

// makeGroups makes a control group of this name in every hierarchy.
func makeGroups(name string) error {
	for _, dir := range hierarchies() {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// removeGroups removes the groups of this name and those below. All processes in
// them are gone.
func removeGroups(name string) {
	for _, dir := range hierarchies() {
		root := filepath.Join(dir, name)
		var groups []string
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
		for i := len(groups) - 1; i >= 0; i-- {
			if err := unix.Rmdir(groups[i]); err != nil {
				fmt.Fprintln(os.Stderr, "left behind:", groups[i], err)
			}
		}
	}
}
