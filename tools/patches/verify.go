// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// verify proves that the patch set is whole: every message is complete, the table
// in the README names every patch and no other, the patches apply and
// leave all as gofmt wants it, and exporting the result gives the very same files. It
// works in a directory of its own and changes nothing.
func (s *set) verify(ctx context.Context) error {
	var errs []error
	for _, p := range s.patches {
		errs = append(errs, p.check())
	}
	if err := errors.Join(append(errs, s.checkTable())...); err != nil {
		return err
	}
	return withScratch(func(t tree) error { return s.verifyIn(ctx, t) })
}

// withScratch calls f with a tree that is gone afterwards.
func withScratch(f func(tree) error) error {
	scratch, err := os.MkdirTemp("", "patches-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	return f(tree(filepath.Join(scratch, "tree")))
}

func (s *set) verifyIn(ctx context.Context, t tree) error {
	if err := t.open(ctx); err != nil {
		return err
	}
	g := &script{tree: t}
	upstream, newFiles := s.commitPinned(ctx, g)
	ports, err := filepath.Glob(port("*"))
	for _, port := range ports {
		g.applyPort(ctx, port, "--check")
	}
	head := s.commitPatches(ctx, g, newFiles)
	g.checkFormat(ctx, upstream, head)
	patches := g.readPatches(ctx, newFiles, head, g.paths(ctx, upstream))
	if g.err != nil || err != nil {
		return errors.Join(g.err, err)
	}
	drift, err := s.changedPatches(patches)
	if err != nil {
		return err
	}
	if len(drift) > 0 {
		return fmt.Errorf("applying and exporting again changes %s: run make patches-export and commit the result", strings.Join(slices.Sorted(maps.Keys(drift)), ", "))
	}
	return nil
}

// checkFormat checks that gofmt finds nothing in the Go files that differ from
// upstream's, but for those in which it did before.
func (g *script) checkFormat(ctx context.Context, upstream, head string) {
	theirs := g.paths(ctx, upstream)
	formatted := func(commit, path string) bool {
		text := g.git(ctx, "cat-file", "blob", commit+":"+path)
		want, err := format.Source([]byte(text))
		return err == nil && string(want) == text
	}
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(g.differ(ctx, upstream, head, "--diff-filter=d"))) {
		if filepath.Ext(path) == ".go" && !strings.Contains(path, "testdata/") && !formatted(head, path) && (!theirs[path] || formatted(upstream, path)) {
			errs = append(errs, fmt.Errorf("%s is not as gofmt writes it: format it in the tree, in the commit that changes it", path))
		}
	}
	g.err = errors.Join(append(errs, g.err)...)
}

// tableRow is a row of the README's table: number and subject, what it is for, and
// the reason and when it can go.
var tableRow = regexp.MustCompile(`(?m)^\| (\d{4} .*?) \|.*?\| (.*) \|$`)

// checkTable compares the table with the series. A patch set without a README has
// none.
func (s *set) checkTable() error {
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var listed, want []string
	for _, row := range tableRow.FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, row[1]+" | "+row[2])
	}
	for i, p := range s.patches {
		t := p.trailers()
		want = append(want, fmt.Sprintf("%04d %s | %s | %s", i+1, p.subject(), strings.Join(t["Reason"], " "), strings.Join(t["Remove-When"], " ")))
	}
	var errs []error
	for _, row := range want {
		if !slices.Contains(listed, row) {
			errs = append(errs, fmt.Errorf("README.md: the table has no row that says %q", row))
		}
	}
	for _, row := range listed {
		if !slices.Contains(want, row) {
			errs = append(errs, fmt.Errorf("README.md: the table says %q, which is not a patch of the series", row))
		}
	}
	if len(errs) == 0 && !slices.Equal(want, listed) {
		return errors.New("README.md: the table is in another order than the series, or has a row twice")
	}
	return errors.Join(errs...)
}
