// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package patchset

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// Moved says how a patch fares over another version of upstream.
type Moved struct {
	Patch string // Its file name.
	// Upstreamed is set where upstream has all of it already.
	Upstreamed bool
	// Conflicts are by file; without any, the patch applies.
	Conflicts []Conflict
}

// Conflict is what cannot be merged in one file.
type Conflict struct {
	File string
	// Kind is git's word for it where the file as a whole is concerned, as when
	// upstream deleted it.
	Kind string
	// Hunks are the places in the file; none where Kind says all.
	Hunks []Hunk
}

// Hunk is a place where upstream and the patch changed the same lines.
type Hunk struct {
	// Line is where it begins in the file with the conflict's marks, from 1.
	Line int
	// Upstream and Patch are how many lines each side has there.
	Upstream, Patch int
}

// String is a line for a report.
func (m Moved) String() string {
	switch {
	case m.Upstreamed:
		return m.Patch + ": upstream has it already"
	case len(m.Conflicts) == 0:
		return m.Patch + ": applies"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s: conflicts", m.Patch)
	for _, c := range m.Conflicts {
		fmt.Fprintf(&out, "\n  %s", c.File)
		if c.Kind != "" {
			fmt.Fprintf(&out, ": %s", c.Kind)
		}
		for _, h := range c.Hunks {
			fmt.Fprintf(&out, "\n    line %d: %d of upstream's lines against %d of the patch's", h.Line, h.Upstream, h.Patch)
		}
	}
	return out.String()
}

// survey merges the commits between base and head, one after the other, over
// the tree's new files, and reports on each patch. Where one conflicts, the next
// goes on from the merge with its marks, so that every patch is tried.
func (t Tree) survey(ctx context.Context, base, head string, patches []Patch) ([]Moved, error) {
	out, err := t.git(ctx, "", "rev-list", "--reverse", base+".."+head)
	if err != nil {
		return nil, err
	}
	commits := strings.Fields(out)
	if len(commits) != len(patches) {
		return nil, fmt.Errorf("%s has %d commits for %d patches", t.Dir, len(commits), len(patches))
	}
	onto, err := t.treeOf(ctx, newFilesRef)
	if err != nil {
		return nil, err
	}
	var report []Moved
	for i, commit := range commits {
		merged, moved, err := t.merge(ctx, commit, onto)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", patches[i].Name, err)
		}
		moved.Patch = patches[i].Name
		moved.Upstreamed = merged == onto
		report = append(report, moved)
		onto = merged
	}
	return report, nil
}

func (t Tree) treeOf(ctx context.Context, ref string) (string, error) {
	out, err := t.git(ctx, "", "rev-parse", ref+"^{tree}")
	return strings.TrimSpace(out), err
}

// merge merges what a commit changed into a tree and returns the result, with
// marks where it conflicts.
func (t Tree) merge(ctx context.Context, commit, onto string) (merged string, m Moved, err error) {
	// git finds the merge's base by ancestry: the commit's parent becomes that
	// of the tree, too.
	ours, err := t.git(ctx, "onto\n", "commit-tree", onto, "-p", commit+"^", "-F", "-")
	if err != nil {
		return "", m, err
	}
	out, stderr, err := t.runGit(ctx, "", "merge-tree", "--write-tree", "--name-only", "--messages", "-z", strings.TrimSpace(ours), commit)
	exit, isExit := errors.AsType[*exec.ExitError](err)
	if err != nil && (!isExit || exit.ExitCode() != 1) {
		return "", m, fmt.Errorf("git merge-tree (it needs git 2.38): %w\n%s", err, strings.TrimSpace(stderr))
	}
	merged, files, kinds := parseMerge(out)
	for _, file := range files {
		c := Conflict{File: file, Kind: kinds[file]}
		text, err := t.git(ctx, "", "cat-file", "blob", merged+":"+file)
		if err == nil {
			c.Hunks = hunks(text)
		}
		m.Conflicts = append(m.Conflicts, c)
	}
	return merged, m, nil
}

// parseMerge reads what git merge-tree -z prints: the tree, the files that
// conflict, an empty field, and messages of a count, so many paths, a kind and
// a text each.
func parseMerge(out string) (tree string, files []string, kinds map[string]string) {
	words := strings.Split(out, "\x00")
	tree, words = words[0], words[1:]
	end := slices.Index(words, "")
	if end < 0 {
		end = len(words)
	}
	files = words[:end]
	kinds = map[string]string{}
	for rest := words[min(end+1, len(words)):]; len(rest) > 0; {
		var count int
		if _, err := fmt.Sscan(rest[0], &count); err != nil || count < 0 || len(rest) < count+3 {
			break
		}
		kind := rest[1+count]
		// Lines that both changed are told hunk by hunk.
		if strings.HasPrefix(kind, "CONFLICT") && kind != "CONFLICT (contents)" {
			for _, path := range rest[1 : 1+count] {
				kinds[path] = strings.TrimSpace(rest[2+count])
			}
		}
		rest = rest[3+count:]
	}
	return tree, files, kinds
}

// hunks finds the marks of conflicts in a text.
func hunks(text string) []Hunk {
	var found []Hunk
	side := ""
	n := 0
	for line := range strings.Lines(text) {
		n++
		switch {
		case strings.HasPrefix(line, "<<<<<<< "):
			found = append(found, Hunk{Line: n})
			side = "upstream"
		case side != "" && strings.HasPrefix(line, "||||||| "):
			side = "base"
		case side != "" && strings.TrimSpace(line) == "=======":
			side = "patch"
		case side != "" && strings.HasPrefix(line, ">>>>>>> "):
			side = ""
		case side == "upstream":
			found[len(found)-1].Upstream++
		case side == "patch":
			found[len(found)-1].Patch++
		}
	}
	return found
}
