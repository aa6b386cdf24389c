// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/goproxytest"
	"github.com/stretchr/testify/require"
)

// The shim is git, but kills its caller at the KILL_AT-th time that it is called.
const shim = `#!/bin/sh
n=$(($(cat "$KILL_COUNT") + 1))
echo $n >"$KILL_COUNT"
[ $n != "$KILL_AT" ] || { kill -9 $PPID; exit 1; }
PATH=$SYSTEM_PATH
exec git "$@"
`

// bump bumps a repository; killAt 0 is never. It returns how often git was called.
func bump(t *testing.T, repo string, env []string, killAt int) (calls int, output string, err error) {
	count := filepath.Join(t.TempDir(), "count")
	require.NoError(t, os.WriteFile(count, []byte("0"), 0o644))
	cmd := exec.CommandContext(t.Context(), "patches", "--tree", "build/bump", "bump", "--no-test", "v1.3.0")
	cmd.Dir = repo
	cmd.Env = append(slices.Clip(env), "KILL_AT="+strconv.Itoa(killAt), "KILL_COUNT="+count)
	out, err := cmd.CombinedOutput()
	text, readErr := os.ReadFile(count)
	require.NoError(t, readErr)
	calls, readErr = strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, readErr)
	return calls, string(out), err
}

func tinyRepo(t *testing.T) string {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/tiny")))
	repo := filepath.Join(dir, "repo")
	for name, text := range map[string]string{
		"go.mod": "module example.com/repo\n\ngo 1.26.0\n\nrequire example.com/hello v1.2.0\n",
		"use.go": "// Package repo is built against the module that it patches.\npackage repo\n\nimport _ \"example.com/hello\"\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(repo, name), []byte(text), 0o644))
	}
	return repo
}

// repoFiles are those of the repository, without what is built.
func repoFiles(t *testing.T, repo string) map[string]string {
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(repo, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "build" {
			return fs.SkipDir
		}
		if err == nil && !d.IsDir() {
			text, readErr := os.ReadFile(path)
			all[strings.TrimPrefix(path, repo)], err = string(text), readErr
		}
		return err
	}))
	return all
}

// PROMGUARD_KILL_EVERY=1 kills at every call of git; by default it is a few of them.
func TestBumpThatIsKilledAtAnyCallOfGitGoesOn(t *testing.T) {
	step := 17
	if every := os.Getenv("PROMGUARD_KILL_EVERY"); every != "" {
		var err error
		step, err = strconv.Atoi(every)
		require.NoError(t, err)
	}
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "git"), []byte(shim), 0o755))
	proxy := goproxytest.NewTestServer(t, publish(t, "example.com_hello_v1.2.0"), "")
	env := append(os.Environ(), "GOPROXY="+proxy.URL, "GOSUMDB=off", "GOTOOLCHAIN=local", "GOWORK=off",
		"GOMODCACHE="+t.TempDir(), "GOFLAGS=-mod=mod -modcacherw", "SYSTEM_PATH="+os.Getenv("PATH"), "PATH="+bin+":"+os.Getenv("PATH"))

	undisturbed := tinyRepo(t)
	calls, output, err := bump(t, undisturbed, env, 0)
	require.NoError(t, err, output)
	want := repoFiles(t, undisturbed)
	require.Contains(t, want["/prometheus-patches/UPSTREAM"], "v1.3.0")
	for at := 1; at <= calls; at += step {
		t.Run(strconv.Itoa(at), func(t *testing.T) {
			repo := tinyRepo(t)
			_, output, err := bump(t, repo, env, at)
			require.EqualError(t, err, "signal: killed", output)
			_, output, err = bump(t, repo, env, 0)
			require.NoError(t, err, output)
			require.Equal(t, want, repoFiles(t, repo))
			_, output, err = bump(t, repo, env, 0)
			require.NoError(t, err, output)
			require.Contains(t, output, "already")
		})
	}
}
