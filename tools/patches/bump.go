// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

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

// target is another version of upstream, and where its source lies.
type target struct {
	upstream
	source string
}

// resolve downloads a version of upstream, or what a query such as latest finds,
// and reads from it what UPSTREAM will say. The go command refuses one that needs
// a later Go release than it may use.
func (s *set) resolve(ctx context.Context, to string) (target, error) {
	version, source, err := s.download(ctx, to)
	if err != nil {
		if major, _, _ := strings.Cut(s.upstream.Version, "."); !strings.HasPrefix(to, major+".") {
			err = fmt.Errorf("%w\nthe release %s is %s of the Go module: name such a version; go list -m -versions %s lists them",
				err, s.upstream.Tag, s.upstream.Version, s.upstream.Module)
		}
		return target{}, err
	}
	t := target{upstream: s.upstream, source: source}
	t.Version, t.Tag = version, version
	// A module's version need not be its release's: Prometheus's v0.316.0 is v3.16.0.
	if text, err := os.ReadFile(filepath.Join(source, "VERSION")); err == nil {
		t.Tag = "v" + strings.TrimSpace(string(text))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return target{}, err
	}
	// The first release of ours over it.
	t.Release = regexp.MustCompile(`[0-9]+$`).ReplaceAllString(t.Release, "1")
	return t, nil
}

// move is the patch set over two versions of upstream, as commits, and how each
// patch fares.
type move struct {
	before, head   string // The new files over the pinned version, and the patches.
	upstream, onto string // The other version, and the new files over it.
	report         []string
	conflicts      int // Patches that conflict.
}

// survey makes the commits and merges every patch, one after the other. It leaves
// the files of the tree alone.
func (s *set) survey(ctx context.Context, to target, t tree) (m move, err error) {
	if err := t.open(ctx); err != nil {
		return m, err
	}
	g := &script{tree: t}
	_, m.before = s.commitPinned(ctx, g)
	m.head = s.commitPatches(ctx, g, m.before)
	m.upstream, m.onto = s.commitBase(ctx, g, to.source, to.upstream)
	onto := m.onto
	for i, commit := range strings.Fields(g.git(ctx, "rev-list", "--reverse", m.before+".."+m.head)) {
		merged, conflicts := g.merge(ctx, commit, onto)
		line := s.patches[i].name + ": applies"
		if len(conflicts) > 0 {
			m.conflicts++
			line = s.patches[i].name + ": conflicts\n  " + strings.Join(conflicts, "\n  ")
		} else if len(g.differ(ctx, onto, merged)) == 0 {
			line = s.patches[i].name + ": upstream has it already"
		}
		m.report = append(m.report, line)
		onto = merged
	}
	return m, g.err
}

// conflict is what git leaves in a file where both sides changed the same lines.
var conflict = regexp.MustCompile(`(?m)^<<<<<<< (?s:.*?)\n>>>>>>> `)

// merge merges what a commit changed into another one. The result has git's marks
// where that conflicts, so that every patch can be tried.
func (g *script) merge(ctx context.Context, commit, onto string) (merged string, conflicts []string) {
	// git finds the merge's base by ancestry: the commit's parent becomes that of
	// the other one, too.
	ours := g.line(ctx, "commit-tree", onto+"^{tree}", "-p", commit+"^", "-m", "onto")
	if g.err != nil {
		return "", nil
	}
	out, err := command{}.run(ctx, g.tree, "merge-tree", "--write-tree", "--name-only", ours, commit)
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) { // 1 is conflicts.
		g.err = fmt.Errorf("%w (it needs git 2.38)", err)
		return "", nil
	}
	// The tree, the files that conflict, an empty line, and what git says.
	result, messages, _ := strings.Cut(out, "\n\n")
	files := strings.Split(strings.TrimSpace(result), "\n")
	for line := range strings.Lines(messages) {
		// Lines that both changed are told one by one.
		if strings.HasPrefix(line, "CONFLICT") && !strings.HasPrefix(line, "CONFLICT (content)") {
			conflicts = append(conflicts, strings.TrimSpace(line))
		}
	}
	merged = g.line(ctx, "commit-tree", files[0], "-m", "merged")
	there := g.paths(ctx, files[0])
	for _, file := range files[1:] {
		if !there[file] {
			continue // git has said so.
		}
		text := g.git(ctx, "cat-file", "blob", files[0]+":"+file)
		for _, at := range conflict.FindAllStringIndex(text, -1) {
			first := 1 + strings.Count(text[:at[0]], "\n")
			conflicts = append(conflicts, fmt.Sprintf("%s: lines %d to %d", file, first, first+strings.Count(text[at[0]:at[1]], "\n")))
		}
	}
	return merged, conflicts
}

// startBump makes the tree and takes every patch to another version of upstream
// with a merge of three sides: the pinned version, the new one, and the patch. The
// tree is then a git repository in the midst of a rebase if a patch conflicts, and
// else a patched tree over the new version.
//
// The patch set is not touched. A bump that is killed before this returns leaves a
// half made tree, and the next one starts afresh.
func (s *set) startBump(ctx context.Context, to target, t tree, discard bool) error {
	if err := s.checkMayGo(ctx, t, discard); err != nil {
		return err
	}
	fmt.Printf("%s %s to %s (%s) in %s\n", to.Module, s.upstream.Version, to.Version, to.Tag, t)
	m, err := s.survey(ctx, to, t)
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(m.report, "\n"))
	fmt.Printf("%d of %d patches conflict\n", m.conflicts, len(m.report))
	// What the new files change for this version, if that is known already. It changes
	// new files alone, so that export takes them from the tree.
	g, onto := &script{tree: t}, m.onto
	if exists(port(to.Version)) {
		g.applyPort(ctx, port(to.Version))
		onto = g.commit(ctx, applyIndex, "New files for "+to.Version, onto)
	}
	if g.err != nil {
		return g.err
	}
	if err := t.place(ctx, m.upstream, m.onto, onto); err != nil {
		return err
	}
	g.git(ctx, "rebase", "--quiet", "--empty=drop", "--onto", onto, m.before, m.head)
	if g.err != nil && (ctx.Err() != nil || !t.rebasing()) {
		return g.err // git was stopped anywhere.
	}
	return t.setState(state{Patches: s.hash(), Bump: to.Version})
}

// port is the file with what the new files change for a version of upstream.
func port(version string) string { return filepath.Join(dir, "ports", version+".diff") }

// applyPort applies a port to the new files, which the index holds.
func (g *script) applyPort(ctx context.Context, port string, flags ...string) {
	text, err := os.ReadFile(port)
	if err != nil || g.err != nil {
		g.err = errors.Join(g.err, err)
		return
	}
	g.run(ctx, command{index: applyIndex, stdin: string(text)}, append([]string{"apply", "--cached", "--whitespace=nowarn"}, flags...)...)
	if g.err != nil {
		g.err = fmt.Errorf("%s does not apply to the new files any more: correct it, or remove it and change them in the tree of the bump: %w", port, g.err)
	}
}

// checkBump says what is still open in a bump: patches that conflict, a rebase
// that was aborted, or work that is in no commit.
//
// It refuses patches on disk that are not those the bump began with, before the
// tests are run for nothing: they changed, or a bump was killed while it wrote.
func (s *set) checkBump(ctx context.Context, t tree) error {
	if t.rebasing() {
		g := script{tree: t}
		status := g.git(ctx, "status", "--untracked-files=no")
		return errors.Join(g.err, fmt.Errorf("patches conflict with upstream: in %s, edit, git add --all && GIT_EDITOR=true git rebase --continue "+
			"(or --skip, if upstream has it now); then run the same again. git status says:\n%s", t, status))
	}
	if _, _, err := t.checkCommitted(ctx); err != nil {
		return fmt.Errorf("%w\nor begin anew with --discard", err)
	}
	if t.state().Patches != s.hash() {
		return fmt.Errorf("the patches in %s are not those that the bump in %s began with: take the change back (git stash, or git restore if a bump was killed while it wrote), "+
			"then run the same again; or begin anew with --discard", dir, t)
	}
	return nil
}

// testBump builds what UPSTREAM names from the tree and runs the tests that the
// patches name there, as they are now.
func (s *set) testBump(ctx context.Context, t tree) error {
	upstream, files, err := t.checkCommitted(ctx)
	if err != nil {
		return err
	}
	if err := t.run(ctx, io.Discard, nil, "go", append([]string{"list", "-deps"}, s.upstream.Build...)...); err != nil {
		return fmt.Errorf("the patches apply, and what the result imports cannot be had: %w", err)
	}
	// The new files' tests too, all at once: their turn among the tests may come
	// after an hour.
	g := &script{tree: t}
	now, moved := g.paths(ctx, files), *s
	moved.patches = g.readPatches(ctx, newFilesRef, "HEAD", upstream)
	if g.err != nil {
		return g.err
	}
	packages := slices.Clone(s.upstream.Build)
	for path := range now {
		if !upstream[path] && filepath.Ext(path) == ".go" && !strings.Contains(path, "testdata/") {
			packages = append(packages, "./"+filepath.Dir(path))
		}
	}
	slices.Sort(packages)
	if err := t.run(ctx, os.Stdout, nil, "go", append([]string{"vet"}, slices.Compact(packages)...)...); err != nil {
		return fmt.Errorf("the patches apply, and the result does not compile: %w", err)
	}
	return moved.test(ctx, t, false)
}

// finishBump writes the patches, the new files, go.mod and UPSTREAM for the version
// that the tree was taken to, and makes the tree anew from them. It returns the
// paths it wrote.
func (s *set) finishBump(ctx context.Context, t tree, to target) ([]string, error) {
	// Before anything is written, as it may fail for want of a network.
	get := exec.CommandContext(ctx, "go", "get", to.Module+"@"+to.Version)
	if out, err := get.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go get %s@%s: %w\n%s", to.Module, to.Version, err, strings.TrimSpace(string(out)))
	}
	written, err := s.export(ctx, t)
	if err != nil {
		return written, err
	}
	if err := os.Remove(port(to.Version)); err == nil { // The new files have it now.
		written = append(written, port(to.Version))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return written, err
	}
	text, err := os.ReadFile(upstreamFile)
	if err != nil {
		return written, err
	}
	for key, value := range map[string]string{"version": to.Version, "tag": to.Tag, "release": to.Release} {
		text = regexp.MustCompile(`(?m)^(`+key+`\s+)\S+`).ReplaceAll(text, []byte("${1}"+value))
	}
	if err := os.WriteFile(upstreamFile, text, 0o644); err != nil { // Last: it says that all is written.
		return written, err
	}
	now, err := load(to.source)
	if err == nil {
		_, err = now.apply(ctx, t, true)
	}
	return append(written, upstreamFile, "go.mod", "go.sum"), err
}
