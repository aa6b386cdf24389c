// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// check reports everything that stands in the way of a release. A dry run takes
// what is unreleased for the release: the tag and the section come with it.
func (r release) check(ctx context.Context, dryRun bool, now time.Time) error {
	text, err := os.ReadFile(r.path("CHANGELOG.md"))
	if err != nil {
		return err
	}
	log, err := parseChangelog(string(text))
	errs := []error{err, r.checkClean(ctx)}
	if err == nil {
		errs = append(errs, log.check(now), r.checkSection(log, dryRun))
	}
	if !dryRun {
		errs = append(errs, r.checkTag(ctx))
	}
	return errors.Join(errs...)
}

func (r release) checkSection(log changelog, dryRun bool) error {
	unreleased := log.section(unreleasedName)
	waiting := unreleased != nil && len(unreleased.entries) > 0
	s := log.section(r.version)
	switch {
	case s != nil && log.newest() != s.name:
		return fmt.Errorf("CHANGELOG.md:%d: %s is older than %s: raise the release in prometheus-patches/UPSTREAM", s.line, s.name, log.newest())
	case s != nil && waiting && !dryRun:
		return fmt.Errorf("CHANGELOG.md:%d: %d entries are still unreleased: they are part of this commit", unreleased.line, len(unreleased.entries))
	case s != nil:
		fmt.Printf("CHANGELOG.md: %s of %s, %d entries\n", s.name, s.date, len(s.entries))
		return nil
	case !waiting:
		return fmt.Errorf("CHANGELOG.md: there is no section for %s, and nothing is unreleased", r.version)
	case !dryRun:
		return fmt.Errorf("CHANGELOG.md: there is no section for %s: turn %q into %q", r.version,
			"## "+unreleasedName, "## "+r.version+" / "+time.Now().Format(time.DateOnly))
	}
	fmt.Printf("dry run: %s would have the %d entries that are unreleased\n", r.version, len(unreleased.entries))
	return nil
}

// notes writes the entries of the version, as they stand in the changelog.
func (r release) notes(w io.Writer) error {
	text, err := os.ReadFile(r.path("CHANGELOG.md"))
	if err != nil {
		return err
	}
	log, err := parseChangelog(string(text))
	if err != nil {
		return err
	}
	s := log.section(r.version)
	if s == nil {
		s = log.section(unreleasedName)
	}
	if s == nil {
		return fmt.Errorf("CHANGELOG.md: there is no section for %s, and nothing is unreleased", r.version)
	}
	for _, e := range s.entries {
		if _, err := fmt.Fprintf(w, "* %s\n", e.text); err != nil {
			return err
		}
	}
	return nil
}

// checkClean refuses files that no commit holds: what is packed names a commit
// as its source.
func (r release) checkClean(ctx context.Context) error {
	out, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if out != "" {
		return fmt.Errorf("the working tree differs from its commit:\n%s", out)
	}
	return nil
}

// checkTag wants the tag of this version at the commit.
func (r release) checkTag(ctx context.Context) error {
	out, err := r.git(ctx, "tag", "--points-at", "HEAD")
	if err != nil {
		return err
	}
	if slices.Contains(strings.Fields(out), r.tag()) {
		return nil
	}
	elsewhere, err := r.git(ctx, "tag", "--list", r.tag())
	if err != nil {
		return err
	}
	if elsewhere != "" {
		return fmt.Errorf("the tag %s is another commit's: raise the release in prometheus-patches/UPSTREAM", r.tag())
	}
	return fmt.Errorf("the commit has no tag %s: git tag --annotate %s", r.tag(), r.tag())
}

func (r release) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = r.root
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("git %s: %s", args[0], strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimRight(string(out), "\n"), err
}
