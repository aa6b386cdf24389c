// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package patchset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Export writes a tree back into the patch set: every commit after the new
// files becomes a patch, and every file that upstream does not have goes to the
// overlay or to the shared package it was copied from. It returns the paths it
// wrote or removed, relative to the repository's root.
//
// Changes to upstream's files must be committed first, because Export cannot
// know which patch they belong to; changes to new files need not be.
func (s *Set) Export(ctx context.Context, tree Tree) ([]string, error) {
	if !tree.exists() {
		return nil, fmt.Errorf("%s is no patched tree: apply the patches first", tree.Dir)
	}
	upstream, err := tree.paths(ctx, upstreamRef)
	if err != nil {
		return nil, err
	}
	if err := tree.checkCommitted(ctx, upstream); err != nil {
		return nil, err
	}
	patches, err := tree.readPatches(ctx, upstream)
	if err != nil {
		return nil, err
	}
	written, err := s.writePatches(patches)
	if err != nil {
		return nil, err
	}
	newFiles, err := s.exportNewFiles(ctx, tree, upstream)
	return append(written, newFiles...), err
}

// checkCommitted refuses uncommitted changes to upstream's files.
func (t Tree) checkCommitted(ctx context.Context, upstream map[string]bool) error {
	changed, err := t.changed(ctx)
	if err != nil {
		return err
	}
	var open []string
	for _, line := range changed {
		if path := strings.Trim(line[3:], `"`); upstream[path] {
			open = append(open, path)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return fmt.Errorf("%s: uncommitted changes to upstream's files: %s\n"+
		"for a new patch: git commit; for an existing one: git commit --fixup=SHA && git rebase --autosquash %s",
		t.Dir, strings.Join(open, ", "), newFilesRef)
}

// readPatches turns the commits after the new files into patches that touch
// upstream's files only.
func (t Tree) readPatches(ctx context.Context, upstream map[string]bool) ([]Patch, error) {
	out, err := t.git(ctx, "", "rev-list", "--reverse", "--first-parent", newFilesRef+"..HEAD")
	if err != nil {
		return nil, err
	}
	var patches []Patch
	for _, commit := range strings.Fields(out) {
		message, err := t.git(ctx, "", "log", "-1", "--format=%B", commit)
		if err != nil {
			return nil, err
		}
		diff, err := t.diff(ctx, commit, upstream)
		if err != nil {
			return nil, err
		}
		if diff == "" {
			continue // The commit changed new files alone: they are exported as files.
		}
		p := Patch{Message: strings.TrimSpace(message), Diff: diff}
		p.Name = fileName(len(patches)+1, p.Subject())
		patches = append(patches, p)
	}
	return patches, nil
}

// diff is what a commit changed in upstream's files. diff-tree reads no
// configuration, so the text is the same for everybody.
func (t Tree) diff(ctx context.Context, commit string, upstream map[string]bool) (string, error) {
	out, err := t.git(ctx, "", "diff-tree", "-r", "-z", "--no-renames", "--name-only", "--no-commit-id", commit)
	if err != nil {
		return "", err
	}
	var touched []string
	for path := range strings.SplitSeq(out, "\x00") {
		if upstream[path] {
			touched = append(touched, path)
		}
	}
	if len(touched) == 0 {
		return "", nil
	}
	args := []string{"diff-tree", "-p", "-r", "--no-renames", "--full-index", "--binary", "--no-commit-id", commit, "--"}
	return t.git(ctx, "", append(args, touched...)...)
}

// writePatches replaces the patches and the series file, keeping the comments
// at the head of the latter.
func (s *Set) writePatches(patches []Patch) ([]string, error) {
	var written []string
	series, err := seriesHeader(filepath.Join(s.Dir, seriesFile))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(patches))
	for _, p := range patches {
		names = append(names, p.Name)
		series += p.Name + "\n"
		if written, err = s.writeIfChanged(filepath.Join(s.Dir, p.Name), []byte(p.Format()), written); err != nil {
			return nil, err
		}
	}
	for _, old := range s.Patches {
		if !slices.Contains(names, old.Name) {
			if err := os.Remove(filepath.Join(s.Dir, old.Name)); err != nil {
				return nil, err
			}
			written = append(written, s.rel(filepath.Join(s.Dir, old.Name)))
		}
	}
	return s.writeIfChanged(filepath.Join(s.Dir, seriesFile), []byte(series), written)
}

// seriesHeader returns the comment lines that the series file starts with.
func seriesHeader(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var header strings.Builder
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		header.WriteString(line)
	}
	return header.String(), nil
}

// exportNewFiles copies the tree's new files back to where they came from and
// removes those that are gone from the tree.
func (s *Set) exportNewFiles(ctx context.Context, tree Tree, upstream map[string]bool) ([]string, error) {
	out, err := tree.git(ctx, "", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	var written []string
	kept := map[string]bool{}
	for path := range strings.SplitSeq(out, "\x00") {
		if path == "" || upstream[path] {
			continue
		}
		b, err := os.ReadFile(filepath.Join(tree.Dir, path))
		if errors.Is(err, os.ErrNotExist) {
			continue // Deleted in the working tree.
		}
		if err != nil {
			return nil, err
		}
		home := s.home(path)
		kept[home] = true
		if written, err = s.writeIfChanged(home, b, written); err != nil {
			return nil, err
		}
	}
	for _, from := range s.newFileDirs() {
		err := walkFiles(from.dir, func(rel string) error {
			home := filepath.Join(from.dir, rel)
			if kept[home] {
				return nil
			}
			written = append(written, s.rel(home))
			return os.Remove(home)
		})
		if err != nil {
			return nil, err
		}
	}
	return written, nil
}

// home is where a new file of the tree is kept in the repository.
func (s *Set) home(path string) string {
	for _, c := range s.Upstream.Copy {
		if strings.HasPrefix(path, c+"/") {
			return filepath.Join(s.Root, path)
		}
	}
	return filepath.Join(s.overlay(), path)
}

// writeIfChanged writes a file unless it holds those bytes already, and adds it
// to the list of what was written.
func (s *Set) writeIfChanged(path string, b []byte, written []string) ([]string, error) {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(b) {
		return written, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return append(written, s.rel(path)), os.WriteFile(path, b, 0o644)
}

func (s *Set) rel(path string) string {
	if rel, err := filepath.Rel(s.Root, path); err == nil {
		return rel
	}
	return path
}
