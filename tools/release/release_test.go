// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"release": main})
}

// Each script starts with the tiny module, which is committed, in repo.
func TestScripts(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output()
	require.NoError(t, err)
	dirs := strings.Split(strings.TrimSpace(string(out)), "\n")
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Vars = append(env.Vars, "GOCACHE="+dirs[0], "GOMODCACHE="+dirs[1], "GOPROXY=off", "GOTOOLCHAIN=local",
				"GOFLAGS=-trimpath -buildvcs=false", "GOWORK=off", "CGO_ENABLED=0", "ROOT="+root,
				"GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
				"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
			return os.CopyFS(filepath.Join(env.WorkDir, "repo"), os.DirFS("../image/testdata/tiny"))
		},
	})
}

var today = time.Date(2026, time.October, 2, 12, 0, 0, 0, time.UTC)

func TestMistakesInTheChangelogAreNamedWithTheirLines(t *testing.T) {
	const good = "# Changelog\n\n## Unreleased\n\n* [FEATURE] promguard: new.\n\n## 3.16.0+promguard.2 / 2026-10-02\n\n* [BUGFIX] Prometheus: no longer old.\n\n" +
		"## 3.16.0+promguard.1 / 2026-09-01\n\n* [PERF] walreplay, oomstorm: fast.\n"
	for name, tc := range map[string]struct{ old, now, want string }{
		"none":                       {"", "", ""},
		"no title":                   {"# Changelog", "# Changes", `CHANGELOG.md:1: "# Changes" is not`},
		"no section":                 {good, "# Changelog\n", "there is no section"},
		"prose":                      {"* [FEATURE] promguard: new.", "Much is new.", "CHANGELOG.md:5: neither a heading nor an entry"},
		"an entry of no kind":        {"[FEATURE]", "[NEW]", "CHANGELOG.md:5: an entry is like"},
		"an entry of no part":        {"promguard: new.", "new.", "CHANGELOG.md:5: an entry is like"},
		"an entry without an end":    {"new.", "new", "CHANGELOG.md:5: an entry is like"},
		"a version twice":            {"promguard.1 /", "promguard.2 /", "CHANGELOG.md:11: 3.16.0+promguard.2 is there twice"},
		"a version of another form":  {"3.16.0+promguard.2", "v3.16.0", `CHANGELOG.md:7: "v3.16.0" is no version like`},
		"no date":                    {" / 2026-10-02", "", `CHANGELOG.md:7: "" is no date`},
		"a day that is none":         {"2026-10-02", "2026-02-30", `CHANGELOG.md:7: "2026-02-30" is no date`},
		"a day to come":              {"2026-10-02", "2026-10-03", "CHANGELOG.md:7: 2026-10-03 is in the future"},
		"an older one that is newer": {"2026-09-01", "2026-10-03", "CHANGELOG.md:11: 2026-10-03 is"},
		"versions out of order":      {"2026-10-02", "2026-08-01", "CHANGELOG.md:11: 2026-09-01 is later than that of the version above"},
		"nothing in a version":       {"* [BUGFIX] Prometheus: no longer old.\n", "", "CHANGELOG.md:7: 3.16.0+promguard.2 has no entry"},
		"a date for what is not":     {"## Unreleased", "## Unreleased / 2026-10-02", "CHANGELOG.md:3: Unreleased comes first and has no date"},
	} {
		t.Run(name, func(t *testing.T) {
			log, err := parseChangelog(strings.Replace(good, tc.old, tc.now, 1))
			if err == nil {
				err = log.check(today)
			}
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestTheChangelogOfThisRepositoryIsInOrder(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	require.NoError(t, err)
	log, err := parseChangelog(string(text))
	require.NoError(t, err)
	require.NoError(t, log.check(time.Now()))
}

func FuzzChangelog(f *testing.F) {
	f.Add("# Changelog\n\n## Unreleased\n\n* [FEATURE] a: b.\n\n## 1.0.0+promguard.1 / 2026-01-01\n\n* [BUGFIX] c: d.\n")
	f.Fuzz(func(t *testing.T, text string) {
		log, err := parseChangelog(text)
		if err != nil {
			return
		}
		require.NotEmpty(t, log)
		if log.check(today) == nil {
			for _, s := range log {
				require.True(t, s.name == unreleasedName || versionForm.MatchString(s.name))
			}
		}
	})
}
