// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// export writes a tree back into the patch set: every commit after the new files
// becomes a patch, and every file that upstream does not have goes to the overlay
// or to the shared package it was copied from. It returns the paths it wrote or
// removed.
//
// Changes to upstream's files must be committed first, because export cannot know
// which patch they belong to; changes to new files need not be. What was changed
// in the repository after apply is never undone: a new file that changed there
// alone is left as it is, and any other such change is refused. A refused export
// has written nothing.
func (s *set) export(ctx context.Context, t tree) ([]string, error) {
	upstream, now, err := t.checkCommitted(ctx)
	if err != nil {
		return nil, err
	}
	if t.state().Patches != s.hash() {
		return nil, fmt.Errorf("the patches in %s changed after they were applied, and exporting would undo that: apply them again;\n"+
			"if %s was edited too, set the change aside (git stash), export, and merge the two", dir, t)
	}
	patches, err := t.readPatches(ctx, newFilesRef, "HEAD", upstream)
	if err != nil {
		return nil, err
	}
	files, err := s.changedNewFiles(ctx, t, upstream, now)
	if err != nil {
		return nil, err
	}
	changed, err := s.changedPatches(patches)
	if err != nil {
		return nil, err
	}
	maps.Copy(files, changed)
	written := slices.Sorted(maps.Keys(files))
	for _, path := range written {
		if files[path] == nil {
			err = os.Remove(path)
		} else {
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, files[path], 0o644))
		}
		if err != nil {
			return nil, err
		}
	}
	return written, nil
}

// checkCommitted refuses a tree whose commits do not hold the whole of the changes
// to upstream's files, in a row. It returns the files of upstream, and a commit
// with all files as they are now but for those that git ignores.
func (t tree) checkCommitted(ctx context.Context) (upstream map[string]bool, now string, err error) {
	if err := t.checkMade(); err != nil {
		return nil, "", err
	}
	if t.rebasing() {
		return nil, "", fmt.Errorf("%s: a rebase stopped half-way: git rebase --continue or --abort", t)
	}
	if upstream, err = t.paths(ctx, upstreamRef); err != nil {
		return nil, "", err
	}
	for _, args := range [][]string{{"read-tree", "HEAD"}, {"add", "--all", "."}} {
		if _, err := (command{index: exportIndex}).run(ctx, t, args...); err != nil {
			return nil, "", err
		}
	}
	if now, err = t.commit(ctx, exportIndex, "now"); err != nil {
		return nil, "", err
	}
	changed, err := t.differ(ctx, "HEAD", now)
	if err != nil {
		return nil, "", err
	}
	maps.DeleteFunc(changed, func(path string, _ bool) bool { return !upstream[path] })
	if len(changed) > 0 {
		return nil, "", fmt.Errorf("%s: uncommitted changes to upstream's files: %s\n"+
			"for a new patch: git commit; for an existing one: git commit --fixup=SHA && git rebase -i --autosquash %s",
			t, strings.Join(slices.Sorted(maps.Keys(changed)), ", "), newFilesRef)
	}
	if _, err := t.git(ctx, "merge-base", "--is-ancestor", newFilesRef, "HEAD"); err != nil {
		return nil, "", fmt.Errorf("%s: HEAD does not descend from %s: check out the commit with your changes, or git rebase --onto %s OLDBASE",
			t, newFilesRef, newFilesRef)
	}
	merges, err := t.git(ctx, "rev-list", "--merges", newFilesRef+"..HEAD")
	if merges != "" {
		return nil, "", fmt.Errorf("%s: a merge is no patch: %s\nmake the commits a row: git rebase %s",
			t, strings.Join(strings.Fields(merges), ", "), newFilesRef)
	}
	return upstream, now, err
}

// readPatches turns commits into patches that touch upstream's files only.
func (t tree) readPatches(ctx context.Context, base, head string, upstream map[string]bool) ([]patch, error) {
	out, err := t.git(ctx, "rev-list", "--reverse", base+".."+head)
	if err != nil {
		return nil, err
	}
	var patches []patch
	for commit := range strings.FieldsSeq(out) {
		touched, err := t.differ(ctx, commit+"^", commit)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(touched, func(path string, _ bool) bool { return !upstream[path] })
		if len(touched) == 0 {
			continue // The commit changed new files alone: they are exported as files.
		}
		message, err := t.git(ctx, "log", "-1", "--format=%B", commit)
		if err != nil {
			return nil, err
		}
		// diff-tree reads no configuration, so the text is the same for everybody.
		args := []string{"diff-tree", "-p", "-r", "--no-renames", "--full-index", "--binary", "--no-commit-id", commit, "--"}
		diff, err := t.git(ctx, append(args, slices.Sorted(maps.Keys(touched))...)...)
		if err != nil {
			return nil, err
		}
		p := patch{message: strings.TrimSpace(message), diff: diff}
		p.name = fileName(len(patches)+1, p.subject())
		if back, err := parsePatch(p.name, p.format()); err != nil || back != p {
			return nil, fmt.Errorf("%s: commit %s: the message is empty, or a line of it starts with \"diff --git\": reword it", t, commit)
		}
		patches = append(patches, p)
	}
	return patches, nil
}

// changedPatches are the patch files and the series file as they are to become,
// nil where one is to go, without those that are so already. The comments at the
// head of the series stay.
func (s *set) changedPatches(patches []patch) (map[string][]byte, error) {
	old, err := os.ReadFile(seriesFile)
	if err != nil {
		return nil, err
	}
	var series []byte
	for line := range strings.Lines(string(old)) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		series = append(series, line...)
	}
	files := map[string][]byte{}
	for _, p := range s.patches {
		files[filepath.Join(dir, p.name)] = nil
	}
	for _, p := range patches {
		series = append(series, p.name+"\n"...)
		files[filepath.Join(dir, p.name)] = []byte(p.format())
	}
	files[seriesFile] = series
	maps.DeleteFunc(files, func(path string, text []byte) bool {
		b, err := os.ReadFile(path)
		return err == nil && text != nil && bytes.Equal(b, text)
	})
	return files, nil
}

// changedNewFiles compares the new files as they are in the tree, as they were
// applied and as they are in the repository, and returns what is to change there.
func (s *set) changedNewFiles(ctx context.Context, t tree, upstream map[string]bool, now string) (map[string][]byte, error) {
	if _, err := (command{index: exportIndex}).run(ctx, t, "read-tree", upstreamRef); err != nil {
		return nil, err
	}
	kept, err := s.commitNewFiles(ctx, t, exportIndex, upstreamRef)
	if err != nil {
		return nil, err
	}
	edited, err1 := t.differ(ctx, newFilesRef, now)
	moved, err2 := t.differ(ctx, newFilesRef, kept)
	differ, err3 := t.differ(ctx, kept, now)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	var both []string
	for _, path := range slices.Sorted(maps.Keys(edited)) {
		switch {
		case upstream[path] || !differ[path]:
		case moved[path]:
			both = append(both, s.home(path))
		default:
			if files[s.home(path)], err = readNewFile(t.path(path)); err != nil {
				return nil, err
			}
		}
	}
	if len(both) > 0 {
		return nil, fmt.Errorf("changed in the repository and, differently, in %s: %s: make each the same in both places, then export",
			t, strings.Join(both, ", "))
	}
	return files, nil
}

// readNewFile reads a regular file; nil is that there is none.
func readNewFile(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file: a new file must be one", path)
	}
	return os.ReadFile(path) // Not nil if it is empty.
}

// home is where a new file of the tree is kept in the repository.
func (s *set) home(path string) string {
	for _, c := range s.upstream.Copy {
		if strings.HasPrefix(path, c+"/") {
			return path
		}
	}
	return filepath.Join(s.overlay, path)
}
