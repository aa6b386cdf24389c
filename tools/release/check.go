// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// check reports everything that stands in the way of a release.
func (r release) check(ctx context.Context, dryRun bool) error {
	_, err := r.entries(dryRun)
	errs := []error{err, r.checkDeploy()}
	status, err := r.git(ctx, "status", "--porcelain")
	if status != "" {
		err = fmt.Errorf("the working tree differs from its commit:\n%s", status)
	}
	errs = append(errs, err)
	if !dryRun {
		tags, err := r.git(ctx, "tag", "--points-at", "HEAD")
		if err == nil && !slices.Contains(strings.Fields(tags), r.tag()) {
			err = fmt.Errorf("the commit has no tag %s: git tag --annotate %s, or raise the release in prometheus-patches/UPSTREAM", r.tag(), r.tag())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// entries returns the changelog's first section, which must be that of the version, or,
// in a dry run, may be what is unreleased. A test checks the form of the whole file.
func (r release) entries(dryRun bool) (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(string(text), "\n## ")
	heading, rest, _ := strings.Cut(rest, "\n")
	entries, _, _ := strings.Cut(rest, "\n## ")
	entries = strings.TrimSpace(entries)
	if !strings.HasPrefix(heading, r.version+" / ") && (!dryRun || heading != "Unreleased") {
		return "", fmt.Errorf("CHANGELOG.md: the first section is %q, not %q with the date", heading, r.version+" / ")
	}
	if entries == "" {
		return "", fmt.Errorf("CHANGELOG.md: %q has no entry", heading)
	}
	return entries, nil
}

var imageTag = regexp.MustCompile(`v[0-9]+\.[0-9]+\.[0-9]+-promguard\.[0-9]+`)

// checkDeploy refuses manifests and a chart that name images of another version.
func (r release) checkDeploy() error {
	chart, manifests, err := r.deployFiles()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range append(chart, manifests...) {
		text, err := os.ReadFile(f.source)
		if err != nil {
			return err
		}
		for _, tag := range imageTag.FindAllString(string(text), -1) {
			if tag != r.tag() {
				errs = append(errs, fmt.Errorf("%s names %s, not %s", f.source, tag, r.tag()))
			}
		}
	}
	return errors.Join(errs...)
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
