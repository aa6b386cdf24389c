// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/goproxytest"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"patches": main})
}

// publish makes a directory for a module proxy that has the tiny module and its
// later versions.
func publish(t *testing.T, name string) string {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, name), os.DirFS("testdata/tiny/upstream")))
	later, err := filepath.Glob("testdata/versions/v*")
	require.NoError(t, err)
	for _, version := range later {
		path := filepath.Join(dir, "example.com_hello_"+filepath.Base(version))
		require.NoError(t, os.CopyFS(path, os.DirFS(version)))
	}
	// A module's archive holds no other module.
	require.NoError(t, os.RemoveAll(filepath.Join(dir, name, "common")))
	return dir
}

// Each script starts in the root of a repository with a patch set over the tiny
// module in ../upstream. Nothing is downloaded but that module, from a proxy in the
// test itself.
func TestScripts(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output()
	require.NoError(t, err)
	dirs := strings.Fields(string(out))
	require.Len(t, dirs, 2)

	proxy := goproxytest.NewTestServer(t, publish(t, "example.com_hello_v1.2.0"), "")

	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Vars = append(env.Vars,
				"HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(home, ".config"),
				"GOCACHE="+dirs[0], "GOMODCACHE="+dirs[1],
				"GOPROXY=off", "GOTOOLCHAIN=local", "GOFLAGS=", "GOWORK=off",
				"TINY_PROXY="+proxy.URL,
			)
			env.Cd = filepath.Join(env.WorkDir, "repo")
			// The operator, who commits in the tree, has a name.
			if err := os.MkdirAll(home, 0o755); err != nil {
				return err
			}
			config := "[user]\n\tname = Operator\n\temail = operator@example.com\n"
			if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(config), 0o644); err != nil {
				return err
			}
			// What a script brings along stays next to what all start with.
			return os.CopyFS(env.WorkDir, os.DirFS("testdata/tiny"))
		},
	})
}
