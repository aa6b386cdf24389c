// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	upstreamRef = "promguard-upstream" // Tag of the commit with upstream's files alone.
	newFilesRef = "promguard-newfiles" // Tag of the commit that adds the new files.
	applyIndex  = "promguard-apply"    // Index below .git, in which commits are made.
	exportIndex = "promguard-export"   // Another, in which files are compared.
)

// What the tree's repository ignores: what a build of the web UI leaves there.
const treeExcludes = "/web/ui/static/\n/web/ui/embed.go\n"

// What no attribute, upstream's or ours, may change: bytes are bytes.
const treeAttributes = "* -text -eol -ident -filter -working-tree-encoding\n"

// tree is the directory of a patched source tree, which is a git repository of its
// own: a commit with upstream's files, one with the new files, and one for each
// patch. A file beside it, which is written before and after, has its state.
type tree string

// state is what a tree was made of. A tree with an empty one is half made: it is
// ours to replace, and holds nobody's work.
type state struct {
	Head     string // The last commit that is of ours.
	NewFiles string // The commit with the new files.
	Patches  string // The hash of the patches.
	Bump     string // The version that a bump takes the tree to.
}

func (t tree) path(parts ...string) string {
	return filepath.Join(append([]string{string(t)}, parts...)...)
}

func (t tree) statePath() string { return filepath.Clean(string(t)) + ".state" }

// recorded is the state that was written last, of whatever lies there now.
func (t tree) recorded() (s state, ok bool) {
	b, err := os.ReadFile(t.statePath())
	return s, err == nil && json.Unmarshal(b, &s) == nil
}

func (t tree) state() state {
	if s, _ := t.recorded(); exists(t.path(".git")) {
		return s
	}
	return state{}
}

func (t tree) setState(s state) error {
	b, err := json.Marshal(s)
	next := t.statePath() + ".next"
	return errors.Join(err, os.WriteFile(next, b, 0o644), os.Rename(next, t.statePath()))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (t tree) checkMade() error {
	if t.state() == (state{}) {
		return fmt.Errorf("%s is not a patched tree: apply the patches first", t)
	}
	return nil
}

// rebasing says whether a git rebase stopped half-way.
func (t tree) rebasing() bool {
	found, err := filepath.Glob(t.path(".git", "rebase-*"))
	return err == nil && len(found) > 0
}

// gitEnvironment makes git behave the same for everybody: no configuration but
// the tree's own, and an author and a date that depend on nothing, so that the
// same inputs give the same commits.
func gitEnvironment() []string {
	var env []string
	for _, kv := range os.Environ() {
		// A git hook that calls us exports GIT_DIR and GIT_INDEX_FILE of another repository.
		if !strings.HasPrefix(kv, "GIT_") {
			env = append(env, kv)
		}
	}
	return append(env,
		// Without a home there are no ignore and attributes files of the user
		// either, which git reads whatever the configuration is.
		"HOME="+os.DevNull, "XDG_CONFIG_HOME="+os.DevNull,
		"GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1",
		// The patches' index lines name blobs by SHA-1.
		"GIT_DEFAULT_HASH=sha1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=promguard", "GIT_AUTHOR_EMAIL=promguard@localhost", "GIT_AUTHOR_DATE=2000-01-01T00:00:00Z",
		"GIT_COMMITTER_NAME=promguard", "GIT_COMMITTER_EMAIL=promguard@localhost", "GIT_COMMITTER_DATE=2000-01-01T00:00:00Z",
	)
}

// command is a git command in the tree's repository.
type command struct {
	stdin string
	index string // In place of the tree's own.
	files string // Directory in place of the tree's.
}

func (c command) run(ctx context.Context, t tree, args ...string) (string, error) {
	root, err := filepath.Abs(string(t))
	if err != nil {
		return "", err
	}
	// The explicit --git-dir keeps git from looking for a repository above the
	// tree, which would be the user's own.
	gitDir := filepath.Join(root, ".git")
	fixed := []string{"--git-dir=" + gitDir, "--literal-pathspecs", "-c", "core.autocrlf=false", "-c", "gc.auto=0", "-c", "merge.conflictStyle=zdiff3"}
	cmd := exec.CommandContext(ctx, "git", append(fixed, args...)...)
	cmd.Dir, cmd.Env, cmd.Stdin = root, gitEnvironment(), strings.NewReader(c.stdin)
	if c.files != "" {
		cmd.Dir = c.files
	}
	if c.index != "" {
		index := filepath.Join(gitDir, c.index)
		cmd.Env = append(cmd.Env, "GIT_INDEX_FILE="+index)
		_ = os.Remove(index + ".lock") // Of a command that was killed.
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("git %s: %w\n%s", args[0], err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// script runs git commands in a tree until one fails, as sh -e does. Nothing runs
// after that, what is returned is empty, and err says why: it is looked at before
// anything is written.
type script struct {
	tree tree
	err  error
}

func (g *script) run(ctx context.Context, c command, args ...string) string {
	if g.err != nil {
		return ""
	}
	out, err := c.run(ctx, g.tree, args...)
	g.err = err
	return out
}

// git runs a command and returns what it printed. Paths among its arguments are
// literal.
func (g *script) git(ctx context.Context, args ...string) string {
	return g.run(ctx, command{}, args...)
}

// line is git for one line.
func (g *script) line(ctx context.Context, args ...string) string {
	return strings.TrimSpace(g.git(ctx, args...))
}

// commit commits what an index holds, and returns the commit.
func (g *script) commit(ctx context.Context, index, message string, parents ...string) string {
	args := []string{"commit-tree", strings.TrimSpace(g.run(ctx, command{index: index}, "write-tree")), "-F", "-"}
	for _, parent := range parents {
		args = append(args, "-p", parent)
	}
	return strings.TrimSpace(g.run(ctx, command{stdin: strings.TrimSpace(message) + "\n"}, args...))
}

// names is a set of paths that git prints with -z.
func (g *script) names(ctx context.Context, args ...string) map[string]bool {
	set := map[string]bool{}
	for path := range strings.SplitSeq(g.git(ctx, args...), "\x00") {
		set[path] = true
	}
	delete(set, "")
	return set
}

// paths are the files of a commit.
func (g *script) paths(ctx context.Context, commit string) map[string]bool {
	return g.names(ctx, "ls-tree", "-r", "-z", "--name-only", commit)
}

// differ are the files in which two commits differ.
func (g *script) differ(ctx context.Context, a, b string, flags ...string) map[string]bool {
	return g.names(ctx, append([]string{"diff-tree", "-r", "-z", "--name-only", "--no-renames", a, b}, flags...)...)
}

// open gives the tree a repository, a new one if it is half made or in the midst
// of a rebase. A directory with files that were not made here is refused.
func (t tree) open(ctx context.Context) error {
	if t.state() != (state{}) && !t.rebasing() {
		return nil
	}
	made, ok := t.recorded()
	if ours := ok && (made == (state{}) || exists(t.path(".git"))); !ours {
		entries, err := os.ReadDir(string(t))
		if len(entries) > 0 || (err != nil && !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("%s is not a patched tree: choose another directory, or remove it", t)
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(string(t)), 0o755), t.setState(state{}), os.RemoveAll(string(t)), os.MkdirAll(t.path(".git", "info"), 0o755)); err != nil {
		return err
	}
	_, err := command{}.run(ctx, t, "init", "--quiet", "--template=")
	return errors.Join(err, os.WriteFile(t.path(".git", "info", "exclude"), []byte(treeExcludes), 0o644),
		os.WriteFile(t.path(".git", "info", "attributes"), []byte(treeAttributes), 0o644))
}

// place brings the tree's files to a commit. What git ignores stays, as it takes
// long to build. The tree is half made from here on, until it has a state.
func (t tree) place(ctx context.Context, upstream, newFiles, head string) error {
	if err := t.setState(state{}); err != nil {
		return err
	}
	g := script{tree: t}
	g.git(ctx, "checkout", "--quiet", "--force", "--detach", head)
	g.git(ctx, "clean", "--quiet", "-d", "--force")
	g.git(ctx, "tag", "--force", upstreamRef, upstream)
	g.git(ctx, "tag", "--force", newFilesRef, newFiles)
	return g.err
}
