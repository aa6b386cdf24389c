// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package patchset

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const wholeUpstream = `# What is patched.
module   example.com/hello
version  v1.2.0
tag	v1.2.0-final
go       1.26.0
release  promguard.3

copy     internal/a/ internal/b
copy     c
build    ./cmd/hello
build    ./cmd/tool ./cmd/more
`

func writeUpstream(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "UPSTREAM")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func TestUpstreamIsReadFromKeysAndValues(t *testing.T) {
	u, err := loadUpstream(writeUpstream(t, wholeUpstream))
	require.NoError(t, err)
	require.Equal(t, Upstream{
		Module:  "example.com/hello",
		Version: "v1.2.0",
		Tag:     "v1.2.0-final",
		Go:      "1.26.0",
		Release: "promguard.3",
		Copy:    []string{"internal/a", "internal/b", "c"},
		Build:   []string{"./cmd/hello", "./cmd/tool", "./cmd/more"},
	}, u)
	require.Equal(t, "1.2.0-final+promguard.3", u.ProductVersion())
}

func TestWrongUpstreamIsRefused(t *testing.T) {
	for name, tc := range map[string]struct{ old, new, want string }{
		"a key that is missing":      {"version  v1.2.0\n", "", "version must have one value and has 0"},
		"a key without a value":      {"v1.2.0-final", "", "tag must have one value and has 0"},
		"a key that is given twice":  {"version  v1.2.0\n", "version v1.2.0\nversion v1.2.0\n", "version must have one value and has 2"},
		"a key with two values":      {"1.26.0", "1.26.0 or later", "go must have one value and has 3"},
		"an unknown key":             {"go  ", "golang", `unknown key "golang": allowed are module, version, tag, go, release, copy, build`},
		"nothing to build":           {"build ", "# ", "build names no package"},
		"a copy from outside":        {"internal/b", "../b", "copy ../b: must be a path below the repository's root"},
		"a copy from the root's own": {"internal/b", "/b", "copy /b: must be a path below the repository's root"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.ReplaceAll(wholeUpstream, tc.old, tc.new)
			require.NotEqual(t, wholeUpstream, text)
			path := writeUpstream(t, text)
			_, err := loadUpstream(path)
			require.ErrorContains(t, err, path+": "+tc.want)
		})
	}
}

func TestEverythingWrongInUpstreamIsReportedAtOnceAndInOrder(t *testing.T) {
	path := writeUpstream(t, "module m\nzeta 1\nalpha 1\n")
	_, err := loadUpstream(path)
	require.EqualError(t, err, strings.Join([]string{
		path + ": version must have one value and has 0",
		path + ": tag must have one value and has 0",
		path + ": go must have one value and has 0",
		path + ": release must have one value and has 0",
		path + ": build names no package",
		path + `: unknown key "alpha": allowed are module, version, tag, go, release, copy, build`,
		path + `: unknown key "zeta": allowed are module, version, tag, go, release, copy, build`,
	}, "\n"))
}
