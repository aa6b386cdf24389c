// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	upstream, newFiles, err := s.commitPinned(ctx, t)
	if err != nil {
		return false, err
	}
	made := t.state()
	if want := (state{Head: made.Head, NewFiles: newFiles, Patches: s.hash()}); made == want && !discard {
		return false, nil
	}
	head, failed := s.commitPatches(ctx, t, newFiles)
	if err := t.place(ctx, upstream, newFiles, head); err != nil {
		return false, errors.Join(failed, err)
	}
	if failed != nil {
		return false, fmt.Errorf("%w\n%s stands at the commit before it: correct the patch, apply again, then export", failed, t)
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
	head, err := t.revision(ctx)
	if err != nil {
		return err
	}
	changed, err := t.git(ctx, "status", "--porcelain", "--untracked-files=all")
	switch {
	case err != nil:
		return err
	case head != made.Head:
		changed = "commits"
	case changed != "":
		changed = "uncommitted changes"
	default:
		return nil
	}
	return fmt.Errorf("the tree was edited: %s has %s that are in no patch: export them, or discard them with --discard", t, changed)
}

// commitPinned is commitBase for the version that is patched.
func (s *set) commitPinned(ctx context.Context, t tree) (upstream, newFiles string, err error) {
	source, err := s.source(ctx)
	if err != nil {
		return "", "", err
	}
	return s.commitBase(ctx, t, source, s.upstream)
}

// commitBase commits upstream's files and, over them, the new files. Like
// commitPatches it leaves the files of the tree alone.
func (s *set) commitBase(ctx context.Context, t tree, source string, u upstream) (upstream, newFiles string, err error) {
	if entries, err := os.ReadDir(source); err != nil || len(entries) == 0 {
		return "", "", fmt.Errorf("%s has no files: it is no module's source", source)
	}
	if _, err := (command{index: applyIndex, files: source}).run(ctx, t, "add", "--all", "--force", "."); err != nil {
		return "", "", err
	}
	// The module's own workspace names modules that are not in its archive.
	if _, err := (command{index: applyIndex}).run(ctx, t, "rm", "--quiet", "--cached", "--ignore-unmatch", "go.work"); err != nil {
		return "", "", err
	}
	if upstream, err = t.commit(ctx, applyIndex, u.Module+" "+u.Version); err != nil {
		return "", "", err
	}
	newFiles, err = s.commitNewFiles(ctx, t, applyIndex, upstream)
	return upstream, newFiles, err
}

// commitNewFiles commits the overlay and the shared packages over upstream's
// files, which the index holds.
func (s *set) commitNewFiles(ctx context.Context, t tree, index, upstream string) (string, error) {
	if s.overlay != "" {
		_, err := command{index: index, files: s.overlay}.run(ctx, t, "add", "--force", "--no-all", ".")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	for _, c := range s.upstream.Copy {
		if _, err := (command{index: index, files: "."}).run(ctx, t, "add", "--force", "--no-all", "--", c); err != nil {
			return "", err
		}
	}
	newFiles, err := t.commit(ctx, index, "New files", upstream)
	if err != nil {
		return "", err
	}
	taken, err := t.differ(ctx, upstream, newFiles, "--diff-filter=a")
	for path := range taken {
		return "", fmt.Errorf("%s: %s is a file of upstream: change it with a patch, or choose another name", s.home(path), path)
	}
	return newFiles, err
}

// commitPatches commits each patch. Where one does not apply, it returns the
// commit before it, too.
func (s *set) commitPatches(ctx context.Context, t tree, onto string) (head string, err error) {
	for _, p := range s.patches {
		if _, err := (command{index: applyIndex, stdin: p.diff}).run(ctx, t, "apply", "--cached", "--whitespace=nowarn", "-"); err != nil {
			return onto, fmt.Errorf("%s does not apply: %w", p.name, err)
		}
		if onto, err = t.commit(ctx, applyIndex, p.message, onto); err != nil {
			return "", err
		}
	}
	return onto, nil
}
