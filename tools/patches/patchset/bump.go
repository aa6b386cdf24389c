// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package patchset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ErrConflicts is returned while patches of a bump wait for a human.
var ErrConflicts = errors.New("patches conflict with upstream")

// Target is another version of upstream, and where its source lies.
type Target struct {
	Upstream
	Source string
}

// Resolve downloads a version of upstream, or what a query such as latest finds,
// and reads from it what UPSTREAM will say. The go command refuses one that needs
// a later Go release than it may use.
func (s *Set) Resolve(ctx context.Context, to string) (Target, error) {
	version, dir, err := s.download(ctx, to)
	if err != nil {
		if major, _, _ := strings.Cut(s.Upstream.Version, "."); !strings.HasPrefix(to, major+".") {
			err = fmt.Errorf("%w\nthe release %s is %s of the Go module: name such a version; go list -m -versions %s lists them",
				err, s.Upstream.Tag, s.Upstream.Version, s.Upstream.Module)
		}
		return Target{}, err
	}
	t := Target{Upstream: s.Upstream, Source: dir}
	t.Version, t.Tag = version, version
	// A module's version need not be its release's: Prometheus's v0.316.0 is v3.16.0.
	if text, err := os.ReadFile(filepath.Join(dir, "VERSION")); err == nil {
		t.Tag = "v" + strings.TrimSpace(string(text))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return Target{}, err
	}
	if t.Go, err = goDirective(filepath.Join(dir, "go.mod")); err != nil {
		return Target{}, err
	}
	// The first release of ours over it.
	t.Release = regexp.MustCompile(`[0-9]+$`).ReplaceAllString(t.Release, "1")
	return t, nil
}

// goDirective is the Go release that a go.mod asks for.
func goDirective(path string) (string, error) {
	declared, err := lines(path)
	if err != nil {
		return "", err
	}
	for _, line := range declared {
		if v, ok := strings.CutPrefix(line, "go "); ok {
			return strings.TrimSpace(v), nil
		}
	}
	return "", fmt.Errorf("%s names no Go release", path)
}

// StartBump makes the tree from source, the version that is pinned, and takes
// every patch to another version of upstream with a merge of three sides: the
// pinned version, the new one, and the patch. The tree is then a git repository
// in the midst of a rebase if a patch conflicts, and else a patched tree over
// the new version. It reports on every patch, in the order of the series.
//
// The patch set is not touched. A bump that is killed before this returns leaves
// no tree, and the next one starts afresh.
func (s *Set) StartBump(ctx context.Context, source string, to Target, tree Tree, discard bool) ([]Moved, error) {
	if err := tree.checkMayGo(ctx, discard); err != nil {
		return nil, err
	}
	if err := tree.remove(); err != nil {
		return nil, err
	}
	if _, err := s.Apply(ctx, source, tree, false); err != nil {
		return nil, err
	}
	before, err := tree.Revision(ctx)
	if err != nil {
		return nil, err
	}
	base, err := tree.git(ctx, "", "rev-parse", newFilesRef)
	if err != nil {
		return nil, err
	}
	base = strings.TrimSpace(base)
	head := tree.mark(headMark)
	if err := tree.unmark(); err != nil {
		return nil, err
	}
	if err := s.replaceUpstream(ctx, tree, to); err != nil {
		return nil, err
	}
	report, err := tree.survey(ctx, base, before, s.Patches)
	if err != nil {
		return nil, err
	}
	onto, err := s.commitPort(ctx, tree, to)
	if err != nil {
		return report, err
	}
	_, stderr, err := tree.runGit(ctx, "", "-c", "merge.conflictStyle=zdiff3", "rebase", "--quiet", "--empty=drop",
		"--onto", onto, base, before)
	if ctx.Err() != nil {
		return report, ctx.Err() // git was stopped anywhere.
	}
	if err != nil && !tree.rebasing() {
		return report, fmt.Errorf("git rebase: %w\n%s", err, strings.TrimSpace(stderr))
	}
	return report, errors.Join(tree.setMark(bumpMark, to.Version), tree.setMark(headMark, head))
}

// commitPort commits what the new files change for this version, if that is
// known already, and returns the commit that the patches go onto. It changes new
// files alone, so that Export takes them from the tree.
func (s *Set) commitPort(ctx context.Context, tree Tree, to Target) (onto string, err error) {
	port := s.port(to.Version)
	text, err := os.ReadFile(port)
	if errors.Is(err, fs.ErrNotExist) {
		return newFilesRef, nil
	}
	if err != nil {
		return "", err
	}
	if _, err := tree.git(ctx, string(text), "apply", "--index", "--whitespace=nowarn", "-"); err != nil {
		return "", fmt.Errorf("%s does not apply to the new files any more: correct it, or remove it and change them in %s: %w", s.rel(port), tree.Dir, err)
	}
	if _, err := tree.git(ctx, "", "commit", "--quiet", "--no-verify", "--message=New files for "+to.Version); err != nil {
		return "", err
	}
	return tree.Revision(ctx)
}

// port is the file with what the new files change for a version of upstream.
func (s *Set) port(version string) string {
	return filepath.Join(s.Dir, portsDir, version+".diff")
}

// checkMayGo refuses a tree with work in it, unless that may be discarded.
func (t Tree) checkMayGo(ctx context.Context, discard bool) error {
	if discard || !t.exists() {
		return nil
	}
	if to := t.Bumping(); to != "" {
		return fmt.Errorf("%w: %s is a bump to %s that was begun: finish it, or discard it with --discard", ErrEdited, t.Dir, to)
	}
	edited, err := t.edited(ctx)
	if err != nil {
		return err
	}
	if edited != "" {
		return fmt.Errorf("%w: %s has %s that are in no patch: export them, or choose another tree", ErrEdited, t.Dir, edited)
	}
	return nil
}

// replaceUpstream commits the files of another version in place of upstream's,
// and the new files over them.
func (s *Set) replaceUpstream(ctx context.Context, tree Tree, to Target) error {
	if _, err := tree.git(ctx, "", "checkout", "--quiet", "--force", "--detach", upstreamRef); err != nil {
		return err
	}
	if _, err := tree.git(ctx, "", "rm", "-r", "--quiet", "--", "."); err != nil {
		return err
	}
	if err := tree.commitSource(ctx, to.Source, to.Upstream); err != nil {
		return err
	}
	if err := tree.setMark(sourceMark, to.Source); err != nil {
		return err
	}
	return s.addNewFiles(ctx, tree)
}

// Bumping is the version that a bump in the tree is to; "" is none.
func (t Tree) Bumping() string {
	if !t.exists() {
		return ""
	}
	return t.mark(bumpMark)
}

// CheckBump says what is still open in a bump: patches that conflict, a rebase
// that was aborted, or work that is in no commit.
//
// It refuses patches on disk that are not those the bump began with, before the
// tests are run for nothing: they changed, or a bump was killed while it wrote.
func (s *Set) CheckBump(ctx context.Context, tree Tree) error {
	if err := tree.checkExists(); err != nil {
		return err
	}
	if tree.rebasing() {
		return tree.openConflict(ctx)
	}
	upstream, err := tree.paths(ctx, upstreamRef)
	if err != nil {
		return err
	}
	if err := tree.checkCommitted(ctx, upstream); err != nil {
		return fmt.Errorf("%w\nor begin anew with --discard", err)
	}
	if tree.mark(patchesMark) != s.patchesHash() {
		return fmt.Errorf("the patches in %s are not those that the bump in %s began with: take the change back (git stash, or git restore if a bump was killed while it wrote), "+
			"then run the same again; or begin anew with --discard", s.Dir, tree.Dir)
	}
	return nil
}

// openConflict names the patch at which the rebase stands, and its files.
func (t Tree) openConflict(ctx context.Context) error {
	subject, _, err := t.runGit(ctx, "", "log", "-1", "--format=%s", "REBASE_HEAD")
	if err != nil { // Killed between two patches.
		return fmt.Errorf("%w: the rebase in %s was interrupted\nin %s: GIT_EDITOR=true git rebase --continue; then run the same again", ErrConflicts, t.Dir, t.Dir)
	}
	files, err := t.git(ctx, "", "diff", "--name-only", "--diff-filter=U", "-z")
	if err != nil {
		return err
	}
	left := "nothing is left to resolve"
	if open := fields(files); len(open) > 0 {
		left = "to resolve: " + strings.Join(open, ", ")
	}
	return fmt.Errorf("%w: %s stands at %q; %s\n"+
		"edit, then in %s: git add --all && GIT_EDITOR=true git rebase --continue (or --skip, if upstream has it now); then run the same again",
		ErrConflicts, t.Dir, strings.TrimSpace(subject), left, t.Dir)
}

// TestBump builds what UPSTREAM names from the tree and runs the tests that the
// patches name there, as they are now.
func (s *Set) TestBump(ctx context.Context, tree Tree, stdout io.Writer) error {
	args := append([]string{"list", "-deps"}, s.Upstream.Build...)
	if err := tree.goCommand(ctx, io.Discard, nil, "go", args...); err != nil {
		return fmt.Errorf("the patches apply, and what the result imports cannot be had: %w", err)
	}
	upstream, err := tree.paths(ctx, upstreamRef)
	if err != nil {
		return err
	}
	packages, err := s.newPackages(ctx, tree, upstream)
	if err != nil {
		return err
	}
	// The new files' tests too, all at once: their turn among the tests may come
	// after an hour.
	args = slices.Concat([]string{"vet"}, s.Upstream.Build, packages)
	if err := tree.goCommand(ctx, stdout, nil, "go", args...); err != nil {
		return fmt.Errorf("the patches apply, and the result does not compile: %w", err)
	}
	now := *s
	if now.Patches, err = tree.readPatches(ctx, upstream); err != nil {
		return err
	}
	return now.Test(ctx, tree, false, stdout)
}

// newPackages are the packages of the tree that new files belong to.
func (s *Set) newPackages(ctx context.Context, tree Tree, upstream map[string]bool) ([]string, error) {
	paths, err := s.newFiles(ctx, tree, upstream)
	if err != nil {
		return nil, err
	}
	var packages []string
	for _, path := range paths {
		if filepath.Ext(path) != ".go" || strings.Contains(path, "testdata/") {
			continue
		}
		if file, err := readContent(filepath.Join(tree.Dir, path)); err != nil {
			return nil, err
		} else if file.exists {
			packages = append(packages, "./"+filepath.Dir(path))
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages), nil
}

// FinishBump writes the patches, the new files, UPSTREAM and the repository's
// go.mod for the version that the tree was taken to. It returns the paths it
// wrote, relative to the root.
func (s *Set) FinishBump(ctx context.Context, tree Tree, to Target) ([]string, error) {
	if tree.Bumping() != to.Version {
		return nil, fmt.Errorf("%s is no bump to %s", tree.Dir, to.Version)
	}
	if err := s.CheckBump(ctx, tree); err != nil {
		return nil, err
	}
	// Before anything is written, as it may fail for want of a network.
	get := exec.CommandContext(ctx, "go", "get", to.Module+"@"+to.Version)
	get.Dir = s.Root
	if out, err := get.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go get %s@%s: %w\n%s", to.Module, to.Version, err, strings.TrimSpace(string(out)))
	}
	written, err := s.Export(ctx, tree)
	if err != nil {
		return written, err
	}
	if err := os.Remove(s.port(to.Version)); err == nil { // The new files have it now.
		written = append(written, s.rel(s.port(to.Version)))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return written, err
	}
	path := filepath.Join(s.Dir, upstreamFile)
	if err := to.writeTo(path); err != nil { // Last: it says that all is written.
		return written, err
	}
	return append(written, s.rel(path), "go.mod", "go.sum"), tree.remove()
}

// ClearBump removes the tree of a bump that wrote everything and was killed
// before it could.
func (s *Set) ClearBump(tree Tree) error {
	if tree.Bumping() != s.Upstream.Version {
		return nil
	}
	return tree.remove()
}

// writeTo changes the values in an UPSTREAM file, and nothing else in it.
func (u Upstream) writeTo(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	out := string(text)
	for key, value := range map[string]string{"version": u.Version, "tag": u.Tag, "go": u.Go, "release": u.Release} {
		line := regexp.MustCompile(`(?m)^(` + key + `[ \t]+)\S+`)
		out = line.ReplaceAllString(out, "${1}"+value)
	}
	return os.WriteFile(path, []byte(out), 0o644)
}
