// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// tailLines is how much of a failed step's log is shown.
const tailLines = 15

// steps runs a build's commands one after another, each with a log file of its
// own and a line of progress before and after.
type steps struct {
	logs string   // folder of the log files
	env  []string // of the commands
	out  io.Writer
}

// run runs a command in dir. Its output goes to the log file NAME.log. Where it
// fails, the error says where that is, and its end is shown unless the cause is
// plain from the error.
func (s *steps) run(ctx context.Context, dir, name, program string, args ...string) error {
	if err := os.MkdirAll(s.logs, 0o755); err != nil {
		return err
	}
	file := filepath.Join(s.logs, name+".log")
	log, err := os.Create(file)
	if err != nil {
		return err
	}
	defer log.Close()
	command := strings.Join(append([]string{program}, args...), " ")
	fmt.Fprintf(s.out, "webui: %s: %s\n", name, command)
	start := time.Now()
	err = s.command(ctx, log, dir, program, args).Run()
	if err == nil {
		fmt.Fprintf(s.out, "webui: %s: done in %s\n", name, elapsed(start))
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: interrupted after %s", name, elapsed(start))
	}
	text, readErr := os.ReadFile(file)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	if code := unreachable.Find(tail(text, 2*tailLines)); code != nil {
		return fmt.Errorf("%s: the npm registry cannot be reached (%s): check `npm config get registry` and HTTPS_PROXY; log: %s; %s",
			name, code, file, without)
	}
	fmt.Fprintf(s.out, "%s\n", tail(text, tailLines))
	return fmt.Errorf("%s: `%s`: %w; log: %s; %s", name, command, err, file, without)
}

// command looks program up in the steps' PATH, not in this process's.
func (s *steps) command(ctx context.Context, log io.Writer, dir, program string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/usr/bin/env", append([]string{program}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, s.env, log, log
	// npm and pnpm start programs of their own: an interrupt has to end them all.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// prependPath puts dir first in the PATH of the commands that follow.
func (s *steps) prependPath(dir string) {
	for i, kv := range s.env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			s.env[i] = "PATH=" + dir + string(os.PathListSeparator) + path
			return
		}
	}
	s.env = append(s.env, "PATH="+dir)
}

// unreachable matches what npm, pnpm and Node.js print when the network is the
// cause.
var unreachable = regexp.MustCompile(`\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ERR_SOCKET_TIMEOUT|UND_ERR_CONNECT_TIMEOUT)\b`)

// tail is the last n lines of text.
func tail(text []byte, n int) []byte {
	lines := bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}

// passed are the variables that commands get from this process's environment.
// All others stay out, as some (NODE_ENV, CI, PUBLIC_URL) change what is built.
var passed = []string{
	"HOME", "USER", "PATH", "TMPDIR", "LANG",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
	"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR",
}

// environment is the commands' environment: what they need of environ, npm's
// own settings, and caches inside work, so that nothing is left outside of it.
func environment(environ []string, work string) []string {
	var env []string
	for _, kv := range environ {
		key, _, _ := strings.Cut(kv, "=")
		if key = strings.ToUpper(key); slices.Contains(passed, key) || strings.HasPrefix(key, "NPM_CONFIG_") {
			env = append(env, kv)
		}
	}
	for _, kv := range [][2]string{
		{"npm_config_cache", "npm-cache"},
		{"npm_config_store_dir", "pnpm-store"},
		{"npm_config_cache_dir", "pnpm-cache"},
		{"npm_config_state_dir", "pnpm-state"},
	} {
		env = append(env, kv[0]+"="+filepath.Join(work, kv[1]))
	}
	return env
}
