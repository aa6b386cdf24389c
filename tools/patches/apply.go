// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// apply makes the tree: upstream's files, the new files, then every patch, one
// commit each. A tree that is up to date is left alone, and then applied is false. A
// tree that was edited is refused unless discard is set.
func (s *set) apply(ctx context.Context, t tree, discard bool) (applied bool, err error) {
	if err := s.checkMayGo(ctx, t, discard); err != nil {
		return false, err
	}
	if err := t.open(ctx); err != nil {
		return false, err
	}
	g := &script{tree: t}
	upstream, newFiles := s.commitPinned(ctx, g)
	if made := t.state(); g.err != nil || (!discard && made == state{Head: made.Head, NewFiles: newFiles, Patches: s.hash()}) {
		return false, g.err
	}
	head := s.commitPatches(ctx, g, newFiles)
	if err := t.place(ctx, upstream, newFiles, head); err != nil {
		return false, errors.Join(g.err, err)
	}
	if g.err != nil {
		return false, fmt.Errorf("%w\n%s stands at the commit before it: correct the patch, apply again, then export", g.err, t)
	}
	return true, t.setState(state{Head: head, NewFiles: newFiles, Patches: s.hash()})
}

// checkMayGo refuses a tree with work in it, unless that may be discarded.
func (s *set) checkMayGo(ctx context.Context, t tree, discard bool) error {
	made := t.state()
	// Of a bump to the version that is patched, all is written.
	if discard || made == (state{}) || made.Bump == s.upstream.Version {
		return nil
	}
	if made.Bump != "" {
		return fmt.Errorf("the tree was edited: %s is a bump to %s that was begun: finish it, or discard it with --discard", t, made.Bump)
	}
	g := script{tree: t}
	head, changed := g.line(ctx, "rev-parse", "HEAD"), g.git(ctx, "status", "--porcelain", "--untracked-files=all")
	switch {
	case head != made.Head:
		changed = "commits"
	case changed != "":
		changed = "uncommitted changes"
	}
	if g.err != nil || changed == "" {
		return g.err
	}
	return fmt.Errorf("the tree was edited: %s has %s that are in no patch: export them, or discard them with --discard", t, changed)
}

// commitPinned is commitBase for the version that is patched.
func (s *set) commitPinned(ctx context.Context, g *script) (upstream, newFiles string) {
	source, err := s.source(ctx)
	if err != nil {
		g.err = err
	}
	return s.commitBase(ctx, g, source, s.upstream)
}

// commitBase commits upstream's files and, over them, the new files. Like
// commitPatches it leaves the files of the tree alone.
func (s *set) commitBase(ctx context.Context, g *script, source string, u upstream) (upstream, newFiles string) {
	if entries, err := os.ReadDir(source); g.err == nil && (err != nil || len(entries) == 0) {
		g.err = fmt.Errorf("%s has no files: it is not a module's source", source)
	}
	g.run(ctx, command{index: applyIndex, files: source}, "add", "--all", "--force", ".")
	// The module's own workspace names modules that are not in its archive.
	g.run(ctx, command{index: applyIndex}, "rm", "--quiet", "--cached", "--ignore-unmatch", "go.work")
	upstream = g.commit(ctx, applyIndex, u.Module+" "+u.Version)
	return upstream, s.commitNewFiles(ctx, g, applyIndex, upstream)
}

// commitNewFiles commits the overlay and the shared packages over upstream's
// files, which the index holds.
func (s *set) commitNewFiles(ctx context.Context, g *script, index, upstream string) string {
	if exists(s.overlay) {
		g.run(ctx, command{index: index, files: s.overlay}, "add", "--force", "--no-all", ".")
	}
	for _, c := range s.upstream.Copy {
		g.run(ctx, command{index: index, files: "."}, "add", "--force", "--no-all", "--", c)
	}
	newFiles := g.commit(ctx, index, "New files", upstream)
	for path := range g.differ(ctx, upstream, newFiles, "--diff-filter=a") {
		g.err = fmt.Errorf("%s: %s is a file of upstream: change it with a patch, or choose another name", s.home(path), path)
	}
	return newFiles
}

// commitPatches commits each patch. Where one does not apply, it returns the
// commit before it.
func (s *set) commitPatches(ctx context.Context, g *script, onto string) (head string) {
	for _, p := range s.patches {
		if g.err != nil {
			break
		}
		g.run(ctx, command{index: applyIndex, stdin: p.diff}, "apply", "--cached", "--whitespace=nowarn", "-")
		if g.err != nil {
			g.err = fmt.Errorf("%s does not apply: %w", p.name, g.err)
			break
		}
		onto = g.commit(ctx, applyIndex, p.message, onto)
	}
	return onto
}
