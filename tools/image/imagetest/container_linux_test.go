// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package imagetest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/image"
)

// nobody is the number of the user that both images run as.
const nobody = 65534

// container is a process in the file system of an image.
type container struct {
	rootfs string
	cmd    *exec.Cmd
	out    *os.File
	exited chan struct{}
	// kill sends a signal to the process.
	kill func(syscall.Signal) error
	// pid is the process itself, which a runtime started.
	pid func(*testing.T) int
}

// unpack writes an image's files where the test may run them.
func unpack(t *testing.T, index v1.ImageIndex) (rootfs string, config v1.Config) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("giving files to nobody, and starting a process as nobody, needs root")
	}
	img, err := image.ForPlatform(index, platform())
	require.NoError(t, err)
	file, err := img.ConfigFile()
	require.NoError(t, err)
	// Everyone may pass, down to the files of the image.
	dir, err := os.MkdirTemp("", "promguard-image-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	rootfs = filepath.Join(dir, "rootfs")
	require.NoError(t, image.Unpack(img, rootfs, true))
	return rootfs, file.Config
}

// user looks up a container's user in its own /etc/passwd, as runtimes do.
func user(t *testing.T, rootfs, name string) (uid, gid int) {
	t.Helper()
	if u, g, ok := strings.Cut(name, ":"); ok {
		return atoi(t, u), atoi(t, g)
	}
	passwd, err := os.ReadFile(filepath.Join(rootfs, "etc/passwd"))
	require.NoError(t, err)
	for line := range strings.Lines(string(passwd)) {
		if f := strings.Split(line, ":"); f[0] == name {
			return atoi(t, f[2]), atoi(t, f[3])
		}
	}
	t.Fatalf("the image's /etc/passwd does not know %s", name)
	return 0, 0
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

// start runs the image's own command, and further arguments behind it.
func start(t *testing.T, index v1.ImageIndex, args ...string) *container {
	t.Helper()
	rootfs, config := unpack(t, index)
	argv := append(append(append([]string{}, config.Entrypoint...), config.Cmd...), args...)
	c := command(t, rootfs, config, argv)
	require.NoError(t, c.cmd.Start())
	go func() {
		_ = c.cmd.Wait()
		close(c.exited)
	}()
	t.Cleanup(func() {
		if !c.ended() {
			_ = c.kill(syscall.SIGKILL)
			<-c.exited
		}
	})
	return c
}

// output runs another command in the image and returns what it printed.
func output(t *testing.T, index v1.ImageIndex, argv ...string) string {
	t.Helper()
	rootfs, config := unpack(t, index)
	c := command(t, rootfs, config, argv)
	require.NoError(t, c.cmd.Run(), c.output())
	return c.output()
}

// command prepares a process in the image: with runc or crun where one is
// installed, and else in a change of root, which gives it the same files, user,
// directory and environment.
func command(t *testing.T, rootfs string, config v1.Config, argv []string) *container {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "output"))
	require.NoError(t, err)
	t.Cleanup(func() { out.Close() })
	c := &container{rootfs: rootfs, out: out, exited: make(chan struct{})}
	uid, gid := user(t, rootfs, config.User)
	runtime := ociRuntime()
	if runtime == "" {
		c.chroot(config, uid, gid, argv)
	} else {
		c.bundle(t, runtime, config, uid, gid, argv)
	}
	t.Logf("%s with %s", argv[0], map[bool]string{true: "chroot", false: runtime}[runtime == ""])
	c.cmd.Stdout, c.cmd.Stderr = out, out
	return c
}

// ociRuntime is the container runtime to use; "" is none. PROMGUARD_RUNTIME
// chooses one, chroot among them.
func ociRuntime() string {
	chosen := os.Getenv("PROMGUARD_RUNTIME")
	if chosen == "chroot" {
		return ""
	}
	for _, name := range []string{chosen, "runc", "crun"} {
		if path, err := exec.LookPath(name); err == nil && name != "" {
			return path
		}
	}
	return ""
}

func (c *container) chroot(config v1.Config, uid, gid int, argv []string) {
	c.cmd = &exec.Cmd{
		Path: argv[0], Args: argv, Dir: config.WorkingDir, Env: config.Env,
		SysProcAttr: &syscall.SysProcAttr{
			Chroot:     c.rootfs,
			Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
		},
	}
	c.kill = func(s syscall.Signal) error { return c.cmd.Process.Signal(s) }
	c.pid = func(*testing.T) int { return c.cmd.Process.Pid }
}

// bundle writes what an OCI runtime reads. The container shares this machine's
// network, so that the test reaches it, and has no privilege.
func (c *container) bundle(t *testing.T, runtime string, config v1.Config, uid, gid int, argv []string) {
	t.Helper()
	dir := filepath.Dir(c.rootfs)
	mount := func(to, kind string, options ...string) map[string]any {
		return map[string]any{"destination": to, "type": kind, "source": kind, "options": options}
	}
	spec, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{
			"user": map[string]int{"uid": uid, "gid": gid}, "args": argv, "env": config.Env, "cwd": config.WorkingDir,
			"noNewPrivileges": true, "capabilities": map[string]any{},
		},
		"root":   map[string]any{"path": "rootfs"},
		"mounts": []any{mount("/proc", "proc"), mount("/dev", "tmpfs", "nosuid", "mode=755")},
		"linux":  map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}}},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), spec, 0o644))
	id := filepath.Base(dir)
	root := "--root=" + filepath.Join(dir, "state")
	pidFile := filepath.Join(dir, "pid")
	c.cmd = exec.Command(runtime, root, "run", "--bundle="+dir, "--pid-file="+pidFile, id)
	c.kill = func(s syscall.Signal) error {
		return exec.Command(runtime, root, "kill", id, strconv.Itoa(int(s))).Run()
	}
	c.pid = func(t *testing.T) int {
		t.Helper()
		text, err := os.ReadFile(pidFile)
		require.NoError(t, err)
		return atoi(t, strings.TrimSpace(string(text)))
	}
}

// user is the number of the user that the process runs as, for the kernel.
func (c *container) user(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid(t)))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); f[0] == "Uid:" {
			return atoi(t, f[2])
		}
	}
	t.Fatal("the kernel does not say whose the process is")
	return 0
}

// stop ends the container as kubelet does, which must be enough.
func (c *container) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, c.kill(syscall.SIGTERM))
	select {
	case <-c.exited:
	case <-time.After(30 * time.Second):
		t.Fatalf("SIGTERM did not end it:\n%s", c.output())
	}
	require.True(t, c.cmd.ProcessState.Success(), c.output())
}

func (c *container) ended() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

func (c *container) output() string {
	text, err := os.ReadFile(c.out.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}
