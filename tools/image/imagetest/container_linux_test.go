// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package imagetest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
	// patience is how long a condition may take.
	patience time.Duration
	// kill sends a signal to the process.
	kill func(syscall.Signal) error
	// pid is the process itself, which a runtime started.
	pid func(*testing.T) int
}

// way is how an image is started: by what, and for which platform.
type way struct {
	// runtime is the name of an OCI runtime, or chroot, which gives a process the
	// same files, user, directory and environment.
	runtime  string
	platform string
	// emulator is the program on this machine that runs the platform's binaries;
	// "" where the machine does it itself.
	emulator string
}

const chroot = "chroot"

// native is this machine's platform.
const native = "linux/" + runtime.GOARCH

func (w way) String() string { return w.runtime + " " + strings.TrimPrefix(w.platform, "linux/") }

// patience is how long a condition may take.
func (w way) patience() time.Duration {
	if w.emulator != "" {
		return 10 * time.Minute
	}
	return time.Minute
}

// ways are those that this machine knows: every runtime that is installed, and a
// change of root; and the first of them for platforms that an emulator runs.
// PROMGUARD_RUNTIME chooses one, chroot among them.
func ways(t *testing.T) []way {
	t.Helper()
	var runtimes []string
	for _, name := range []string{"runc", "crun"} {
		if _, err := exec.LookPath(name); err == nil {
			runtimes = append(runtimes, name)
		}
	}
	runtimes = append(runtimes, chroot)
	if chosen := os.Getenv("PROMGUARD_RUNTIME"); chosen != "" {
		require.Contains(t, runtimes, chosen, "PROMGUARD_RUNTIME")
		runtimes = []string{chosen}
	}
	var all []way
	manifest, err := index(t, "prometheus").IndexManifest()
	require.NoError(t, err)
	for _, d := range manifest.Manifests {
		platform := d.Platform.String()
		if platform == native {
			for _, r := range runtimes {
				all = append(all, way{runtime: r, platform: platform})
			}
			continue
		}
		qemu, known := map[string]string{"linux/arm64": "qemu-aarch64-static", "linux/amd64": "qemu-x86_64-static"}[platform]
		emulator, err := exec.LookPath(qemu)
		if !known || err != nil {
			t.Logf("%s is not started: %s is not installed", platform, qemu)
			continue
		}
		all = append(all, way{runtime: runtimes[0], platform: platform, emulator: emulator})
	}
	return all
}

// inEachWay runs a test once in each way.
func inEachWay(t *testing.T, test func(*testing.T, way)) {
	t.Helper()
	images(t, "prometheus")
	if os.Geteuid() != 0 {
		t.Skip("giving files to nobody, and starting a process as nobody, needs root")
	}
	for _, w := range ways(t) {
		t.Run(w.String(), func(t *testing.T) { test(t, w) })
	}
}

// unpack writes an image's files where the test may run them.
func (w way) unpack(t *testing.T, index v1.ImageIndex) (rootfs string, config v1.Config) {
	t.Helper()
	img, err := image.ForPlatform(index, w.platform)
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
func (w way) start(t *testing.T, index v1.ImageIndex, args ...string) *container {
	t.Helper()
	rootfs, config := w.unpack(t, index)
	c := w.command(t, rootfs, config, slices.Concat(config.Entrypoint, config.Cmd, args))
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

// run runs a command to its end: the image's entry point with arguments in the
// place of its own, as docker run IMAGE ARGS does, or another one where argv is
// an absolute path. It returns what was printed.
func (w way) run(t *testing.T, index v1.ImageIndex, argv ...string) string {
	t.Helper()
	rootfs, config := w.unpack(t, index)
	if !filepath.IsAbs(argv[0]) {
		argv = append(slices.Clone(config.Entrypoint), argv...)
	}
	c := w.command(t, rootfs, config, argv)
	require.NoError(t, c.cmd.Run(), c.output())
	return c.output()
}

// command prepares a process in the image.
func (w way) command(t *testing.T, rootfs string, config v1.Config, argv []string) *container {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "output"))
	require.NoError(t, err)
	t.Cleanup(func() { out.Close() })
	c := &container{rootfs: rootfs, out: out, exited: make(chan struct{}), patience: w.patience()}
	uid, gid := user(t, rootfs, config.User)
	if w.emulator != "" {
		binary, err := os.ReadFile(w.emulator)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(rootfs, "emulator"), binary, 0o755))
		argv = append([]string{"/emulator"}, argv...)
	}
	if w.runtime == chroot {
		c.chroot(config, uid, gid, argv)
	} else {
		c.bundle(t, w.runtime, config, uid, gid, argv)
	}
	c.cmd.Stdout, c.cmd.Stderr = out, out
	return c
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
// network, so that the test reaches it, has no privilege, and may write to its
// volumes and /tmp only, as under readOnlyRootFilesystem.
func (c *container) bundle(t *testing.T, runtime string, config v1.Config, uid, gid int, argv []string) {
	t.Helper()
	dir := filepath.Dir(c.rootfs)
	mount := func(to, kind string, options ...string) map[string]any {
		return map[string]any{"destination": to, "type": kind, "source": kind, "options": options}
	}
	mounts := []any{mount("/proc", "proc"), mount("/dev", "tmpfs", "nosuid", "mode=755"), mount("/tmp", "tmpfs", "nosuid", "mode=1777")}
	for volume := range config.Volumes {
		mounts = append(mounts, map[string]any{
			"destination": volume, "type": "bind", "source": filepath.Join(c.rootfs, volume), "options": []string{"rbind", "rw"},
		})
	}
	spec, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{
			"user": map[string]int{"uid": uid, "gid": gid}, "args": argv, "env": config.Env, "cwd": config.WorkingDir,
			"noNewPrivileges": true, "capabilities": map[string]any{},
		},
		"root":   map[string]any{"path": "rootfs", "readonly": true},
		"mounts": mounts,
		"linux":  map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}}},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), spec, 0o644))
	id := filepath.Base(dir)
	pidFile := filepath.Join(dir, "pid")
	call := func(args ...string) *exec.Cmd {
		return runtimeCommand(runtime, append([]string{"--root=" + filepath.Join(dir, "state")}, args...)...)
	}
	c.cmd = call("run", "--bundle="+dir, "--pid-file="+pidFile, id)
	c.kill = func(s syscall.Signal) error { return call("kill", id, strconv.Itoa(int(s))).Run() }
	c.pid = func(t *testing.T) int {
		t.Helper()
		text, err := os.ReadFile(pidFile)
		require.NoError(t, err)
		return atoi(t, strings.TrimSpace(string(text)))
	}
}

// runtimeCommand calls an OCI runtime. Limits are not what is tested; crun is told
// so, and sees no cgroups where both versions are mounted, which it refuses.
func runtimeCommand(runtime string, args ...string) *exec.Cmd {
	if runtime != "crun" {
		return exec.Command(runtime, args...)
	}
	args = append([]string{"--cgroup-manager=disabled"}, args...)
	if _, err := os.Stat("/sys/fs/cgroup/unified"); err != nil {
		return exec.Command(runtime, args...)
	}
	const hide = `mount -t tmpfs none /sys/fs/cgroup && exec "$0" "$@"`
	return exec.Command("unshare", append([]string{"--mount", "sh", "-c", hide, runtime}, args...)...)
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
	case <-time.After(c.patience):
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
