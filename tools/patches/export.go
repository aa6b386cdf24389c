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
	g := &script{tree: t}
	patches := g.readPatches(ctx, newFilesRef, "HEAD", upstream)
	if g.err != nil {
		return nil, g.err
	}
	files, err := s.changedNewFiles(ctx, g, upstream, now)
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
	g := &script{tree: t}
	upstream = g.paths(ctx, upstreamRef)
	g.run(ctx, command{index: exportIndex}, "read-tree", "HEAD")
	g.run(ctx, command{index: exportIndex}, "add", "--all", ".")
	now = g.commit(ctx, exportIndex, "now")
	changed := g.differ(ctx, "HEAD", now)
	maps.DeleteFunc(changed, func(path string, _ bool) bool { return !upstream[path] })
	missing := g.git(ctx, "rev-list", "HEAD.."+newFilesRef)
	merges := g.git(ctx, "rev-list", "--merges", newFilesRef+"..HEAD")
	switch {
	case g.err != nil:
		err = g.err
	case len(changed) > 0:
		err = fmt.Errorf("%s: uncommitted changes to upstream's files: %s\n"+
			"for a new patch: git commit; for an existing one: git commit --fixup=SHA && git rebase -i --autosquash %s",
			t, strings.Join(slices.Sorted(maps.Keys(changed)), ", "), newFilesRef)
	case missing != "":
		err = fmt.Errorf("%s: HEAD does not descend from %s: check out the commit with your changes, or git rebase --onto %s OLDBASE",
			t, newFilesRef, newFilesRef)
	case merges != "":
		err = fmt.Errorf("%s: a merge is not a patch: %s\nmake the commits a row: git rebase %s",
			t, strings.Join(strings.Fields(merges), ", "), newFilesRef)
	}
	return upstream, now, err
}

// readPatches turns commits into patches that touch upstream's files only.
func (g *script) readPatches(ctx context.Context, base, head string, upstream map[string]bool) []patch {
	var patches []patch
	for commit := range strings.FieldsSeq(g.git(ctx, "rev-list", "--reverse", base+".."+head)) {
		touched := g.differ(ctx, commit+"^", commit)
		maps.DeleteFunc(touched, func(path string, _ bool) bool { return !upstream[path] })
		if len(touched) == 0 {
			continue // The commit changed new files alone: they are exported as files.
		}
		// diff-tree reads no configuration, so the text is the same for everybody.
		args := []string{"diff-tree", "-p", "-r", "--no-renames", "--full-index", "--binary", "--no-commit-id", commit, "--"}
		p := patch{message: g.line(ctx, "log", "-1", "--format=%B", commit), diff: g.git(ctx, append(args, slices.Sorted(maps.Keys(touched))...)...)}
		p.name = fileName(len(patches)+1, p.subject())
		if back, err := parsePatch(p.name, p.format()); g.err == nil && (err != nil || back != p) {
			g.err = fmt.Errorf("%s: commit %s: the message is empty, or a line of it starts with \"diff --git\": reword it", g.tree, commit)
		}
		patches = append(patches, p)
	}
	return patches
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
func (s *set) changedNewFiles(ctx context.Context, g *script, upstream map[string]bool, now string) (map[string][]byte, error) {
	g.run(ctx, command{index: exportIndex}, "read-tree", upstreamRef)
	kept := s.commitNewFiles(ctx, g, exportIndex, upstreamRef)
	edited, moved, differ := g.differ(ctx, newFilesRef, now), g.differ(ctx, newFilesRef, kept), g.differ(ctx, kept, now)
	if g.err != nil {
		return nil, g.err
	}
	files := map[string][]byte{}
	var both []string
	for _, path := range slices.Sorted(maps.Keys(edited)) {
		switch {
		case upstream[path] || !differ[path]:
		case moved[path]:
			both = append(both, s.home(path))
		default:
			text, err := readNewFile(g.tree.path(path))
			if err != nil {
				return nil, err
			}
			files[s.home(path)] = text
		}
	}
	if len(both) > 0 {
		return nil, fmt.Errorf("changed in the repository and, differently, in %s: %s: make each the same in both places, then export",
			g.tree, strings.Join(both, ", "))
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
		return nil, fmt.Errorf("%s is not a regular file: a new file must be one", path)
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
