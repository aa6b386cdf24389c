// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package patchset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Marks inside a tree's git repository.
const (
	upstreamRef = "promguard-upstream" // Tag of the commit with upstream's files alone.
	newFilesRef = "promguard-newfiles" // Tag of the commit that adds the new files.
	sourceMark  = "promguard-source"   // File below .git: the directory upstream's files came from.
	inputsMark  = "promguard-inputs"   // File below .git: what the tree was made of.
	headMark    = "promguard-head"     // File below .git, written last: the commit that Apply ended with.
)

// Tree is a patched source tree, which is a git repository of its own.
type Tree struct{ Dir string }

// gitEnvironment makes git behave the same for everybody: no configuration but
// the tree's own, and an author and a date that depend on nothing, so that the
// same inputs give the same commits.
func gitEnvironment() []string {
	env := []string{
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=promguard", "GIT_AUTHOR_EMAIL=promguard@localhost", "GIT_AUTHOR_DATE=2000-01-01T00:00:00Z",
		"GIT_COMMITTER_NAME=promguard", "GIT_COMMITTER_EMAIL=promguard@localhost", "GIT_COMMITTER_DATE=2000-01-01T00:00:00Z",
		"LC_ALL=C",
	}
	for _, kv := range os.Environ() {
		// A git hook that calls us exports GIT_DIR and GIT_INDEX_FILE of another repository.
		if !strings.HasPrefix(kv, "GIT_") && !strings.HasPrefix(kv, "LC_ALL=") {
			env = append(env, kv)
		}
	}
	return env
}

// git runs a git command in the tree and returns what it printed.
func (t Tree) git(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", t.Dir, "-c", "core.autocrlf=false", "-c", "gc.auto=0"}, args...)...)
	cmd.Env = gitEnvironment()
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", errors.New("git is not installed: the patches are applied with it")
		}
		return "", fmt.Errorf("git %s: %w\n%s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// exists says whether the tree has been made by Apply.
func (t Tree) exists() bool {
	_, err := os.Stat(filepath.Join(t.Dir, ".git", headMark))
	return err == nil
}

// mark reads one of the files that Apply leaves below .git; absent is empty.
func (t Tree) mark(name string) string {
	b, err := os.ReadFile(filepath.Join(t.Dir, ".git", name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (t Tree) setMark(name, value string) error {
	return os.WriteFile(filepath.Join(t.Dir, ".git", name), []byte(value+"\n"), 0o644)
}

// Revision is the tree's commit. It depends on upstream's files, the new files
// and the patches, and on nothing else.
func (t Tree) Revision(ctx context.Context) (string, error) {
	out, err := t.git(ctx, "", "rev-parse", "HEAD")
	return strings.TrimSpace(out), err
}

// changed lists what differs from the last commit, as git status --porcelain does.
func (t Tree) changed(ctx context.Context) ([]string, error) {
	out, err := t.git(ctx, "", "status", "--porcelain", "--untracked-files=all", "--no-renames")
	if err != nil {
		return nil, err
	}
	return nonEmptyLines(out), nil
}

// edited says why the tree differs from what Apply made, or "" if it does not.
func (t Tree) edited(ctx context.Context) (string, error) {
	head, err := t.Revision(ctx)
	if err != nil {
		return "", err
	}
	if head != t.mark(headMark) {
		return "commits", nil
	}
	files, err := t.changed(ctx)
	if err != nil || len(files) == 0 {
		return "", err
	}
	return "uncommitted changes", nil
}

// paths lists the files of one commit.
func (t Tree) paths(ctx context.Context, ref string) (map[string]bool, error) {
	out, err := t.git(ctx, "", "ls-tree", "-r", "-z", "--name-only", ref)
	if err != nil {
		return nil, err
	}
	set := map[string]bool{}
	for p := range strings.SplitSeq(out, "\x00") {
		if p != "" {
			set[p] = true
		}
	}
	return set, nil
}

// commitAll commits everything in the working tree and tags it.
func (t Tree) commitAll(ctx context.Context, message, tag string) error {
	for _, args := range [][]string{
		{"add", "--all", "--force", "."},
		{"commit", "--quiet", "--no-verify", "--allow-empty", "--message", message},
		{"tag", "--force", tag},
	} {
		if _, err := t.git(ctx, "", args...); err != nil {
			return err
		}
	}
	return nil
}

func nonEmptyLines(s string) []string {
	var out []string
	for line := range strings.SplitSeq(s, "\n") {
		if line != "" {
			out = append(out, line)
		}
	}
	return out
}
