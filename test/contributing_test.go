// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	pageLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// What stands in code is no link, and has no link in it.
	codeBlock  = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	heading    = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	anchorLess = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// page returns a page of the repository.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", name))
	require.NoError(t, err)
	return string(text)
}

// documents returns the names of all pages for people.
func documents(t *testing.T) []string {
	t.Helper()
	list := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "prometheus-patches/README.md"}
	require.NoError(t, fs.WalkDir(os.DirFS(".."), "docs", func(name string, _ fs.DirEntry, err error) error {
		if filepath.Ext(name) == ".md" {
			list = append(list, name)
		}
		return err
	}))
	return list
}

// links returns what a page links to, by names in the repository, without links to other sites.
func links(t *testing.T, name string) []string {
	t.Helper()
	var list []string
	for _, found := range pageLink.FindAllStringSubmatch(codeBlock.ReplaceAllString(page(t, name), ""), -1) {
		target, anchor, _ := strings.Cut(found[1], "#")
		switch {
		case strings.Contains(found[1], "://"):
			continue
		case target == "":
			target = name
		default:
			target = filepath.Join(filepath.Dir(name), target)
		}
		list = append(list, strings.TrimSuffix(target+"#"+anchor, "#"))
	}
	return list
}

// anchors returns the anchors that GitHub gives to the headings of a page.
func anchors(t *testing.T, name string) []string {
	t.Helper()
	var list []string
	for _, found := range heading.FindAllStringSubmatch(page(t, name), -1) {
		text := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(found[1], "$1")
		list = append(list, strings.ReplaceAll(anchorLess.ReplaceAllString(strings.ToLower(text), ""), " ", "-"))
	}
	return list
}

func TestEachLinkOfAPageLeadsSomewhere(t *testing.T) {
	for _, name := range documents(t) {
		for _, link := range links(t, name) {
			target, anchor, _ := strings.Cut(link, "#")
			if _, err := os.Stat(filepath.Join("..", target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, target)
			} else if anchor != "" && !slices.Contains(anchors(t, target), anchor) {
				t.Errorf("%s links to %s, which has no heading #%s", name, target, anchor)
			}
		}
	}
}

func TestTheIndexOfTheDocsHasEachPage(t *testing.T) {
	for _, name := range documents(t) {
		if !strings.HasPrefix(name, "docs/") || filepath.Base(name) == "README.md" {
			continue
		}
		index := "docs/README.md"
		if dir := filepath.Join(filepath.Dir(name), "README.md"); filepath.Dir(name) != "docs" {
			if _, err := os.Stat(filepath.Join("..", dir)); err == nil {
				require.Contains(t, links(t, index), dir)
				index = dir
			}
		}
		require.Contains(t, links(t, index), name, "%s does not link to it", index)
	}
}

// upstreamFile reports whether the patched tree has a file: a new one, or one of upstream's.
func upstreamFile(t *testing.T, upstream, name string) bool {
	t.Helper()
	for _, dir := range []string{"../prometheus-patches/overlay", upstream} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

func TestContributorsAreToldOfFilesAndTargetsThatExist(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/prometheus/prometheus").Output()
	require.NoError(t, err)
	upstream := strings.TrimSpace(string(out))
	makefiles, err := filepath.Glob("../tools/*.mk")
	require.NoError(t, err)
	var targets []string
	for _, file := range append(makefiles, "../Makefile") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile(`(?m)^([a-z][a-z0-9 -]*):( |$)`).FindAllStringSubmatch(string(text), -1) {
			targets = append(targets, strings.Fields(found[1])...)
		}
	}
	path := regexp.MustCompile(`(?:\.golangci\.yml|(?:build/prometheus|bench|cmd|deploy|docs|internal|prometheus-patches|test|tools)/[\w./-]*[\w-])`)
	made := regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z0-9 -]*)")
	found := 0
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"} {
		text := page(t, name)
		for _, words := range made.FindAllStringSubmatch(text, -1) {
			for target := range strings.FieldsSeq(words[1]) {
				require.Contains(t, targets, target, "%s says make %s", name, target)
				found++
			}
		}
		if name != "CONTRIBUTING.md" {
			continue // The others name only what they link to.
		}
		for _, code := range regexp.MustCompile("`[^`\n]+`|(?m)^(git|go|make|cd) .*$").FindAllString(text, -1) {
			for _, file := range path.FindAllString(code, -1) {
				if inTree, ok := strings.CutPrefix(file, "build/prometheus/"); ok {
					require.True(t, upstreamFile(t, upstream, inTree), "%s names %s", name, file)
				} else if file != "build/prometheus" && file != "internal/NAME" && !strings.HasPrefix(file, "github.com/") {
					_, err := os.Stat(filepath.Join("..", file))
					require.NoError(t, err, "%s names it", name)
				}
				found++
			}
		}
	}
	require.Greater(t, found, 100)
}

// A change beside an example can make it out of date: then change the example, too.
func TestTheWorkedExamplesFit(t *testing.T) {
	for _, example := range []string{"new-limit", "new-drop-rule"} {
		check := exec.CommandContext(t.Context(), "git", "apply", "--check", "docs/examples/"+example+".diff")
		check.Dir = ".."
		out, err := check.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

func TestTheWorkedExamplesOfContributingWorkAsTheyAreWritten(t *testing.T) {
	if os.Getenv("PROMGUARD_EXAMPLES") == "" {
		t.Skip("PROMGUARD_EXAMPLES is not set: make test-contributing sets it")
	}
	_, text, found := strings.Cut(page(t, "CONTRIBUTING.md"), "\n## Three worked examples\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\n## ")
	examples := strings.Split(text, "\n### ")[1:]
	require.Len(t, examples, 3)
	for _, example := range examples {
		name, _, _ := strings.Cut(example, "\n")
		t.Run(name, func(t *testing.T) {
			dir := copyOfTheRepository(t)
			commands := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(example, -1)
			require.NotEmpty(t, commands)
			for _, c := range commands {
				if strings.HasPrefix(c[1], "make patches-verify") {
					addRowOfTheLastPatch(t, dir)
				}
				sh := exec.CommandContext(t.Context(), "sh", "-exc", c[1])
				sh.Dir = dir
				sh.Env = append(os.Environ(), "PROMGUARD_EXAMPLES=", "GIT_CONFIG_GLOBAL=/dev/null",
					"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
				out, err := sh.CombinedOutput()
				require.NoError(t, err, "%s", out)
			}
		})
	}
}

// copyOfTheRepository returns a directory with what git does not ignore.
func copyOfTheRepository(t *testing.T) string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = ".."
	out, err := list.Output()
	require.NoError(t, err)
	dir := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		info, err := os.Stat(filepath.Join("..", name))
		if os.IsNotExist(err) {
			continue // Removed, and not committed.
		}
		require.NoError(t, err)
		text, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, info.Mode()))
	}
	return dir
}

// addRowOfTheLastPatch adds the row that make patches-verify asks for.
func addRowOfTheLastPatch(t *testing.T, dir string) {
	t.Helper()
	set := filepath.Join(dir, "prometheus-patches")
	series, err := os.ReadFile(filepath.Join(set, "series"))
	require.NoError(t, err)
	patches := strings.Fields(string(series))
	file := patches[len(patches)-1]
	patch, err := os.ReadFile(filepath.Join(set, file))
	require.NoError(t, err)
	subject, _, _ := strings.Cut(string(patch), "\n")
	field := func(name string) string {
		found := regexp.MustCompile(`(?m)^` + name + `: (.*)$`).FindSubmatch(patch)
		require.NotNil(t, found, "%s has no %s", file, name)
		return string(found[1])
	}
	row := fmt.Sprintf("| %s %s | An example | %s | %s |\n", file[:4], subject, field("Reason"), field("Remove-When"))
	readme := filepath.Join(set, "README.md")
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	before, after, found := strings.Cut(string(text), "\n\n`make patches-verify` compares")
	require.True(t, found)
	require.NoError(t, os.WriteFile(readme, []byte(before+"\n"+row+"\n`make patches-verify` compares"+after), 0o644))
}

func TestInstallPutsTheBinariesBelowThePrefix(t *testing.T) {
	t.Parallel()
	bin := filepath.Dir(binary(t, "promguard"))
	dest := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "make", "-C", "..", "install", "BIN="+bin, "DESTDIR="+dest, "PREFIX=/usr").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{"promguard", "prometheus", "promtool"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(dest, "usr/bin", name), "--version").CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), name+", version ")
	}
}
