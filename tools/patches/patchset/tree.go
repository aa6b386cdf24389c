// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package patchset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Marks inside a tree's git repository.
const (
	upstreamRef = "promguard-upstream" // Tag of the commit with upstream's files alone.
	newFilesRef = "promguard-newfiles" // Tag of the commit that adds the new files.
	sourceMark  = "promguard-source"   // File below .git, written first: the directory upstream's files came from.
	inputsMark  = "promguard-inputs"   // File below .git: what the tree was made of.
	patchesMark = "promguard-patches"  // File below .git: the patches among that.
	bumpMark    = "promguard-bump"     // File below .git: the version that Bump takes the tree to.
	headMark    = "promguard-head"     // File below .git, written last: the commit that Apply ended with.
)

// Ignored by the tree's repository: what a build of the web UI leaves there.
const treeExcludes = "/web/ui/static/\n/web/ui/embed.go\n"

// Tree is a patched source tree, which is a git repository of its own.
type Tree struct{ Dir string }

// gitEnvironment makes git behave the same for everybody: no configuration but
// the tree's own, and an author and a date that depend on nothing, so that the
// same inputs give the same commits.
func gitEnvironment() []string {
	fixed := []string{
		// Without a home there are no ignore and attributes files of the user
		// either, which git reads whatever the configuration is.
		"HOME=" + os.DevNull, "XDG_CONFIG_HOME=" + os.DevNull,
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1",
		// The patches' index lines name blobs by SHA-1.
		"GIT_DEFAULT_HASH=sha1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=promguard", "GIT_AUTHOR_EMAIL=promguard@localhost", "GIT_AUTHOR_DATE=2000-01-01T00:00:00Z",
		"GIT_COMMITTER_NAME=promguard", "GIT_COMMITTER_EMAIL=promguard@localhost", "GIT_COMMITTER_DATE=2000-01-01T00:00:00Z",
		"LC_ALL=C",
	}
	var env []string
	for _, kv := range os.Environ() {
		// A git hook that calls us exports GIT_DIR and GIT_INDEX_FILE of another repository.
		if !strings.HasPrefix(kv, "GIT_") {
			env = append(env, kv)
		}
	}
	return append(env, fixed...)
}

// git runs a git command in the tree and returns what it printed. Paths among
// its arguments are literal.
func (t Tree) git(ctx context.Context, stdin string, args ...string) (string, error) {
	stdout, stderr, err := t.runGit(ctx, stdin, args...)
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("git is not installed: the patches are applied with it")
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", args[0], err, strings.TrimSpace(stderr))
	}
	return stdout, nil
}

// runGit is git for callers to whom a failure has something to say.
func (t Tree) runGit(ctx context.Context, stdin string, args ...string) (stdout, stderr string, err error) {
	// The explicit --git-dir keeps git from looking for a repository above the
	// tree, which would be the user's own.
	fixed := []string{"-C", t.Dir, "--git-dir=.git", "--literal-pathspecs", "-c", "core.autocrlf=false", "-c", "gc.auto=0"}
	cmd := exec.CommandContext(ctx, "git", append(fixed, args...)...)
	cmd.Env = gitEnvironment()
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// exists says whether the tree has been made by Apply.
func (t Tree) exists() bool {
	_, err := os.Stat(filepath.Join(t.Dir, ".git", headMark))
	return err == nil
}

func (t Tree) checkExists() error {
	if !t.exists() {
		return fmt.Errorf("%s is no patched tree: apply the patches first", t.Dir)
	}
	return nil
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

// changed lists the paths that differ from the last commit, untracked ones
// included.
func (t Tree) changed(ctx context.Context) ([]string, error) {
	out, err := t.git(ctx, "", "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
	if err != nil {
		return nil, err
	}
	paths := fields(out)
	for i, p := range paths {
		paths[i] = p[len("XY "):]
	}
	return paths, nil
}

// rebasing says whether a git rebase stopped half-way.
func (t Tree) rebasing() bool {
	for _, state := range []string{"rebase-merge", "rebase-apply"} {
		if _, err := os.Stat(filepath.Join(t.Dir, ".git", state)); err == nil {
			return true
		}
	}
	return false
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
	for _, p := range fields(out) {
		set[p] = true
	}
	return set, nil
}

// create makes an empty repository in place of the tree.
func (t Tree) create(ctx context.Context) error {
	if err := t.remove(); err != nil {
		return err
	}
	if err := os.MkdirAll(t.Dir, 0o755); err != nil {
		return err
	}
	if _, err := t.git(ctx, "", "init", "--quiet", "--template="); err != nil {
		return err
	}
	// The empty mark says that the directory is ours to remove and that
	// upstream's files are not complete.
	if err := t.setMark(sourceMark, ""); err != nil {
		return err
	}
	info := filepath.Join(t.Dir, ".git", "info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(info, "exclude"), []byte(treeExcludes), 0o644)
}

// remove deletes a tree that was made here, and nothing else.
func (t Tree) remove() error {
	entries, err := os.ReadDir(t.Dir)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && len(entries) == 0) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(t.Dir, ".git", sourceMark)); err != nil {
		return fmt.Errorf("%s is no patched tree: choose another directory, or remove it", t.Dir)
	}
	if err := t.unmark(); err != nil {
		return err
	}
	// The mark that says whose directory it is goes last: what is left of a
	// removal that was interrupted can be removed again.
	git := filepath.Join(t.Dir, ".git")
	if err := removeAllBut(t.Dir, ".git"); err != nil {
		return err
	}
	if err := removeAllBut(git, sourceMark); err != nil {
		return err
	}
	return os.RemoveAll(t.Dir)
}

// removeAllBut removes what a directory holds, except for one name.
func removeAllBut(dir, kept string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == kept {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// unmark makes the tree none until its last mark is set again: from here on it
// is half made.
func (t Tree) unmark() error {
	err := os.Remove(filepath.Join(t.Dir, ".git", headMark))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// restoreUpstream brings upstream's files back. Ignored files stay, as they
// take long to build.
func (t Tree) restoreUpstream(ctx context.Context) error {
	if _, err := t.git(ctx, "", "checkout", "--quiet", "--force", "--detach", upstreamRef); err != nil {
		return err
	}
	_, err := t.git(ctx, "", "clean", "--quiet", "-d", "--force")
	return err
}

// commit adds the named files, ignored ones too, and commits and tags them.
func (t Tree) commit(ctx context.Context, message, tag string, paths []string) error {
	if len(paths) > 0 {
		list := strings.Join(paths, "\x00")
		if _, err := t.git(ctx, list, "add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul"); err != nil {
			return err
		}
	}
	if _, err := t.git(ctx, message, "commit", "--quiet", "--no-verify", "--allow-empty", "--cleanup=verbatim", "--file=-"); err != nil {
		return err
	}
	_, err := t.git(ctx, "", "tag", "--force", tag)
	return err
}

// fields splits what git prints with -z.
func fields(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == 0 })
}
