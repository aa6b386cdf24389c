// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

const unreleasedName = "Unreleased"

// changelog is CHANGELOG.md: sections, the newest first.
type changelog []section

// section is what one version brings.
type section struct {
	name    string // The version, or Unreleased.
	date    string // As written; "" for Unreleased.
	line    int
	entries []entry
}

type entry struct {
	text string
	line int
}

// section returns the section of a version, or nil.
func (c changelog) section(name string) *section {
	i := slices.IndexFunc(c, func(s section) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return &c[i]
}

// newest is the version of the first section but for what is unreleased; "" is none.
func (c changelog) newest() string {
	for _, s := range c {
		if s.name != unreleasedName {
			return s.name
		}
	}
	return ""
}

// parseChangelog reads sections and entries. An entry is one line that starts
// with an asterisk; what is neither heading nor entry nor empty is an error.
func parseChangelog(text string) (changelog, error) {
	var log changelog
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, " \t\r\n")
		heading, isHeading := strings.CutPrefix(line, "## ")
		switch {
		case n == 1:
			if line != "# Changelog" {
				return nil, fmt.Errorf("CHANGELOG.md:1: %q is not \"# Changelog\"", line)
			}
		case line == "":
		case isHeading:
			name, date, _ := strings.Cut(heading, " / ")
			log = append(log, section{name: name, date: date, line: n})
		case strings.HasPrefix(line, "* ") && len(log) > 0:
			last := &log[len(log)-1]
			last.entries = append(last.entries, entry{strings.TrimPrefix(line, "* "), n})
		default:
			return nil, fmt.Errorf("CHANGELOG.md:%d: neither a heading nor an entry: %q", n, line)
		}
	}
	if len(log) == 0 {
		return nil, errors.New("CHANGELOG.md: there is no section")
	}
	return log, nil
}

var (
	entryForm   = regexp.MustCompile(`^\[(SECURITY|CHANGE|FEATURE|ENHANCEMENT|PERF|BUGFIX)\] [^:]+: .*\.$`)
	versionForm = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+\+promguard\.[0-9]+$`)
)

// check reports every mistake in the changelog: names, dates, their order, and
// the form of the entries.
func (c changelog) check(now time.Time) error {
	var errs []error
	complain := func(line int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("CHANGELOG.md:%d: "+format, append([]any{line}, args...)...))
	}
	seen := map[string]bool{}
	newer := time.Time{}
	for i, s := range c {
		if seen[s.name] {
			complain(s.line, "%s is there twice", s.name)
		}
		seen[s.name] = true
		for _, e := range s.entries {
			if !entryForm.MatchString(e.text) {
				complain(e.line, "an entry is like \"[FEATURE] promguard: what is new.\"")
			}
		}
		if s.name == unreleasedName {
			if i != 0 || s.date != "" {
				complain(s.line, "%s comes first and has no date", unreleasedName)
			}
			continue
		}
		if !versionForm.MatchString(s.name) {
			complain(s.line, "%q is no version like 3.16.0+promguard.1", s.name)
		}
		if len(s.entries) == 0 {
			complain(s.line, "%s has no entry", s.name)
		}
		date, err := time.Parse(time.DateOnly, s.date)
		switch {
		case err != nil:
			complain(s.line, "%q is no date like 2026-01-31", s.date)
		case date.After(now):
			complain(s.line, "%s is in the future", s.date)
		case !newer.IsZero() && date.After(newer):
			complain(s.line, "%s is later than that of the version above", s.date)
		default:
			newer = date
		}
	}
	return errors.Join(errs...)
}
