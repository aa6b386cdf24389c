// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

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
release  promguard.3

copy     internal/a internal/b
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
	require.Equal(t, upstream{
		Module:  "example.com/hello",
		Version: "v1.2.0",
		Tag:     "v1.2.0-final",
		Release: "promguard.3",
		Copy:    []string{"internal/a", "internal/b", "c"},
		Build:   []string{"./cmd/hello", "./cmd/tool", "./cmd/more"},
	}, u)
	require.Equal(t, "1.2.0-final+promguard.3", u.productVersion())
}

func TestWrongUpstreamIsRefused(t *testing.T) {
	const missing, notOne = "one of module, version, tag, release, build is missing", ": it should be one each of module, version, tag, release with a value, or copy or build"
	for name, tc := range map[string]struct{ old, new, want string }{
		"a key that is missing":     {"version  v1.2.0\n", "", missing},
		"a key without a value":     {"v1.2.0-final", "", `"tag"` + notOne},
		"a key that is given twice": {"version  v1.2.0\n", "version v1.2.0\nversion v1.3.0\n", `"version v1.3.0"` + notOne},
		"a key with two values":     {"promguard.3", "promguard.3 or later", `"release  promguard.3 or later"` + notOne},
		"an unknown key":            {"release ", "releases ", `"releases  promguard.3"` + notOne},
		"nothing to build":          {"build ", "# ", missing},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.ReplaceAll(wholeUpstream, tc.old, tc.new)
			require.NotEqual(t, wholeUpstream, text)
			path := writeUpstream(t, text)
			_, err := loadUpstream(path)
			require.EqualError(t, err, path+": "+tc.want)
		})
	}
}
