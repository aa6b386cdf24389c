// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package patchset

import (
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

// Export writes a tree back into the patch set: every commit after the new
// files becomes a patch, and every file that upstream does not have goes to the
// overlay or to the shared package it was copied from. It returns the paths it
// wrote or removed, relative to the repository's root.
//
// Changes to upstream's files must be committed first, because Export cannot
// know which patch they belong to; changes to new files need not be. What was
// changed in the repository after Apply is never undone: a new file that
// changed there alone is left as it is, and any other such change is refused.
// A refused export has written nothing.
func (s *Set) Export(ctx context.Context, tree Tree) ([]string, error) {
	if err := tree.checkExists(); err != nil {
		return nil, err
	}
	upstream, err := tree.paths(ctx, upstreamRef)
	if err != nil {
		return nil, err
	}
	if err := tree.checkCommitted(ctx, upstream); err != nil {
		return nil, err
	}
	if tree.mark(patchesMark) != s.patchesHash() {
		return nil, fmt.Errorf("the patches in %s changed after they were applied, and exporting would undo that: apply them again;\n"+
			"if %s was edited too, set the change aside (git stash), export, and merge the two", s.Dir, tree.Dir)
	}
	patches, err := tree.readPatches(ctx, upstream)
	if err != nil {
		return nil, err
	}
	changes, err := s.newFileChanges(ctx, tree, upstream)
	if err != nil {
		return nil, err
	}
	written, err := s.writePatches(patches)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		if err := c.write(); err != nil {
			return nil, err
		}
		written = append(written, s.rel(c.path))
	}
	return written, nil
}

// checkCommitted refuses a tree whose commits do not hold the whole of the
// changes to upstream's files, in a row.
func (t Tree) checkCommitted(ctx context.Context, upstream map[string]bool) error {
	if t.rebasing() {
		return fmt.Errorf("%s: a rebase stopped half-way: git rebase --continue or --abort", t.Dir)
	}
	changed, err := t.changed(ctx)
	if err != nil {
		return err
	}
	open := slices.DeleteFunc(changed, func(path string) bool { return !upstream[path] })
	if len(open) > 0 {
		return fmt.Errorf("%s: uncommitted changes to upstream's files: %s\n"+
			"for a new patch: git commit; for an existing one: git commit --fixup=SHA && git rebase -i --autosquash %s",
			t.Dir, strings.Join(open, ", "), newFilesRef)
	}
	missing, err := t.git(ctx, "", "rev-list", "HEAD.."+newFilesRef)
	if err != nil {
		return err
	}
	if missing != "" {
		return fmt.Errorf("%s: HEAD does not descend from %s: check out the commit with your changes, or git rebase --onto %s OLDBASE",
			t.Dir, newFilesRef, newFilesRef)
	}
	merges, err := t.git(ctx, "", "rev-list", "--merges", newFilesRef+"..HEAD")
	if err != nil {
		return err
	}
	if merges != "" {
		return fmt.Errorf("%s: a merge is no patch: %s\nmake the commits a row: git rebase %s",
			t.Dir, strings.Join(strings.Fields(merges), ", "), newFilesRef)
	}
	return nil
}

// readPatches turns the commits after the new files into patches that touch
// upstream's files only.
func (t Tree) readPatches(ctx context.Context, upstream map[string]bool) ([]Patch, error) {
	out, err := t.git(ctx, "", "rev-list", "--reverse", newFilesRef+"..HEAD")
	if err != nil {
		return nil, err
	}
	var patches []Patch
	for commit := range strings.FieldsSeq(out) {
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
		if back, err := ParsePatch(p.Name, p.Format()); err != nil || back != p {
			return nil, fmt.Errorf("%s: commit %s: the message is empty, or a line of it starts with \"diff --git\": reword it", t.Dir, commit)
		}
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
	for _, path := range fields(out) {
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
	series, err := seriesHeader(filepath.Join(s.Dir, seriesFile))
	if err != nil {
		return nil, err
	}
	files := map[string]content{}
	for _, old := range s.Patches {
		files[old.Name] = content{}
	}
	for _, p := range patches {
		files[p.Name] = content{text: p.Format(), exists: true}
		series += p.Name + "\n"
	}
	files[seriesFile] = content{text: series, exists: true}

	var written []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		c := change{path: filepath.Join(s.Dir, name), to: files[name]}
		old, err := readContent(c.path)
		if err != nil {
			return nil, err
		}
		if old == c.to {
			continue
		}
		if err := c.write(); err != nil {
			return nil, err
		}
		written = append(written, s.rel(c.path))
	}
	return written, nil
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

// content is what a file holds, or that there is no file.
type content struct {
	text   string
	exists bool
}

// change is a file to write, or to remove.
type change struct {
	path string
	to   content
}

// newFileChanges compares each new file as it is in the tree, as it is in the
// repository and as it was applied, and returns what is to change in the
// repository.
func (s *Set) newFileChanges(ctx context.Context, tree Tree, upstream map[string]bool) ([]change, error) {
	paths, err := s.newFiles(ctx, tree, upstream)
	if err != nil {
		return nil, err
	}
	wasApplied, err := tree.paths(ctx, newFilesRef)
	if err != nil {
		return nil, err
	}
	var changes []change
	var conflicts []string
	for _, path := range paths {
		home := s.home(path)
		edited, err := readContent(filepath.Join(tree.Dir, path))
		if err != nil {
			return nil, err
		}
		kept, err := readContent(home)
		if err != nil {
			return nil, err
		}
		applied := content{exists: wasApplied[path]}
		if applied.exists {
			if applied.text, err = tree.git(ctx, "", "cat-file", "blob", newFilesRef+":"+path); err != nil {
				return nil, err
			}
		}
		switch {
		case edited == kept || edited == applied:
			// The repository has it already, or changed it alone.
		case kept == applied:
			changes = append(changes, change{home, edited})
		default:
			conflicts = append(conflicts, s.rel(home))
		}
	}
	if len(conflicts) > 0 {
		return nil, fmt.Errorf("changed in the repository and, differently, in %s: %s: make each the same in both places, then export",
			tree.Dir, strings.Join(conflicts, ", "))
	}
	return changes, nil
}

// newFiles lists the tree's paths of the new files, those in the tree and those
// in the repository.
func (s *Set) newFiles(ctx context.Context, tree Tree, upstream map[string]bool) ([]string, error) {
	out, err := tree.git(ctx, "", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	paths := fields(out)
	for _, d := range s.newFileDirs() {
		err := walkFiles(d.dir, func(rel string) error {
			paths = append(paths, filepath.Join(d.at, rel))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { return upstream[path] })
	slices.Sort(paths)
	return slices.Compact(paths), nil
}

// readContent reads a regular file, or finds that there is none.
func readContent(path string) (content, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return content{}, nil
	}
	if err != nil {
		return content{}, err
	}
	if !info.Mode().IsRegular() {
		return content{}, fmt.Errorf("%s is no regular file: a new file must be one", path)
	}
	b, err := os.ReadFile(path)
	return content{text: string(b), exists: true}, err
}

// write makes the file hold what it is to hold.
func (c change) write() error {
	if !c.to.exists {
		return os.Remove(c.path)
	}
	if err := os.MkdirAll(filepath.Dir(c.path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(c.path, []byte(c.to.text), 0o644)
}

// home is where a new file of the tree is kept in the repository.
func (s *Set) home(path string) string {
	for _, c := range s.Upstream.Copy {
		if strings.HasPrefix(path, c+"/") {
			return filepath.Join(s.Root, path)
		}
	}
	return filepath.Join(s.overlay, path)
}

func (s *Set) rel(path string) string {
	if rel, err := filepath.Rel(s.Root, path); err == nil {
		return rel
	}
	return path
}
