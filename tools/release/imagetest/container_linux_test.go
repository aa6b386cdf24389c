// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package imagetest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/stretchr/testify/require"
)

// nobody is the number of the user that both images run as.
const nobody = 65534

// way is how images are started: those of a platform, and by which emulator, ""
// where this machine runs them itself.
type way struct{ platform, emulator string }

// container is a process in the files of an image.
type container struct {
	rootfs string
	cmd    *exec.Cmd
	exited chan struct{}
	output string // The file with what it printed.
	// patience is how long a condition may take.
	patience time.Duration
	kill     func(syscall.Signal) error
	pid      func(*testing.T) int
}

// inEachWay runs a test once for each platform that this machine can run.
func inEachWay(t *testing.T, test func(*testing.T, way)) {
	t.Helper()
	manifest, err := index(t, "prometheus").IndexManifest()
	require.NoError(t, err)
	if os.Geteuid() != 0 {
		t.Skip("giving files to nobody, and starting a process as nobody, needs root")
	}
	for _, d := range manifest.Manifests {
		w := way{platform: d.Platform.String()}
		t.Run(w.platform, func(t *testing.T) {
			if w.platform != "linux/"+runtime.GOARCH {
				qemu := map[string]string{"arm64": "qemu-aarch64-static", "amd64": "qemu-x86_64-static"}[d.Platform.Architecture]
				if w.emulator, err = exec.LookPath(qemu); err != nil {
					t.Skip(qemu + " is not installed: Debian's qemu-user-static has it")
				}
			}
			test(t, w)
		})
	}
}

// unpack writes an image's files where everyone may pass, as root does who unpacks it
// for a runtime.
func (w way) unpack(t *testing.T, index v1.ImageIndex) (rootfs string, config v1.Config) {
	t.Helper()
	platform, err := v1.ParsePlatform(w.platform)
	require.NoError(t, err)
	found, err := partial.FindImages(index, match.Platforms(*platform))
	require.NoError(t, err)
	require.Len(t, found, 1)
	file, err := found[0].ConfigFile()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "promguard-image-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	rootfs = filepath.Join(dir, "rootfs")
	require.NoError(t, os.Mkdir(rootfs, 0o755))
	tar := exec.Command("tar", "-x", "-p", "--same-owner", "--numeric-owner", "-C", rootfs)
	tar.Stdin = mutate.Extract(found[0])
	out, err := tar.CombinedOutput()
	require.NoError(t, err, string(out))
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
	ids := regexp.MustCompile(`(?m)^` + name + `:[^:]*:(\d+):(\d+):`).FindStringSubmatch(string(passwd))
	require.NotNil(t, ids, "the image's /etc/passwd does not know %s", name)
	return atoi(t, ids[1]), atoi(t, ids[2])
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

// run runs a command to its end and returns what it printed: the image's entry point
// with arguments in the place of its own, as docker run IMAGE ARGS does, or another
// program where argv is an absolute path.
func (w way) run(t *testing.T, index v1.ImageIndex, argv ...string) string {
	t.Helper()
	rootfs, config := w.unpack(t, index)
	if !filepath.IsAbs(argv[0]) {
		argv = append(slices.Clone(config.Entrypoint), argv...)
	}
	c := w.command(t, rootfs, config, argv)
	require.NoError(t, c.cmd.Run(), c.printed())
	return c.printed()
}

// command prepares a process in the image: by runc where it is installed, and else by
// a change of root, which gives it the same files, user, directory and environment.
func (w way) command(t *testing.T, rootfs string, config v1.Config, argv []string) *container {
	t.Helper()
	c := &container{
		rootfs: rootfs, output: filepath.Join(t.TempDir(), "output"), exited: make(chan struct{}), patience: time.Minute,
	}
	uid, gid := user(t, rootfs, config.User)
	if w.emulator != "" {
		c.patience = 10 * time.Minute
		binary, err := os.ReadFile(w.emulator)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(rootfs, "emulator"), binary, 0o755))
		argv = append([]string{"/emulator"}, argv...)
	}
	if _, err := exec.LookPath("runc"); err == nil {
		c.runc(t, config, uid, gid, argv)
	} else {
		c.cmd = &exec.Cmd{
			Path: argv[0], Args: argv, Dir: config.WorkingDir, Env: config.Env,
			SysProcAttr: &syscall.SysProcAttr{Chroot: rootfs, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}},
		}
		c.kill = func(s syscall.Signal) error { return c.cmd.Process.Signal(s) }
		c.pid = func(*testing.T) int { return c.cmd.Process.Pid }
	}
	out, err := os.Create(c.output)
	require.NoError(t, err)
	t.Cleanup(func() { out.Close() })
	c.cmd.Stdout, c.cmd.Stderr = out, out
	return c
}

// runc writes what runc reads. The container shares this machine's network, so that
// the test reaches it, has no privilege, and may write to its volumes and /tmp only,
// as under readOnlyRootFilesystem.
func (c *container) runc(t *testing.T, config v1.Config, uid, gid int, argv []string) {
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
	id, pidFile := filepath.Base(dir), filepath.Join(dir, "pid")
	call := func(args ...string) *exec.Cmd {
		return exec.Command("runc", append([]string{"--root=" + filepath.Join(dir, "state")}, args...)...)
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

// user is the number of the user that the process runs as, for the kernel.
func (c *container) user(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid(t)))
	require.NoError(t, err)
	effective := regexp.MustCompile(`(?m)^Uid:\s+\d+\s+(\d+)`).FindStringSubmatch(string(status))
	require.NotNil(t, effective)
	return atoi(t, effective[1])
}

// stop ends the container as kubelet does, which must be enough.
func (c *container) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, c.kill(syscall.SIGTERM))
	select {
	case <-c.exited:
	case <-time.After(c.patience):
		t.Fatalf("SIGTERM did not end it:\n%s", c.printed())
	}
	require.True(t, c.cmd.ProcessState.Success(), c.printed())
}

func (c *container) ended() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

func (c *container) printed() string {
	text, err := os.ReadFile(c.output)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
