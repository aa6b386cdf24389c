// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package patchset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// readmeFile may have a table of the patches: in each row the number and the
// subject, what it is for, the reason, and when it can go.
const readmeFile = "README.md"

var tableRow = regexp.MustCompile(`^\| \d{4} `)

// checkTable compares the table with the series. A patch set without a README has
// no table.
func (s *Set) checkTable() error {
	text, err := os.ReadFile(filepath.Join(s.Dir, readmeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var listed []string
	for line := range strings.Lines(string(text)) {
		if tableRow.MatchString(line) {
			listed = append(listed, withoutPurpose(line))
		}
	}
	var want []string
	for i, p := range s.Patches {
		t := p.trailers()
		want = append(want, fmt.Sprintf("%04d %s | %s | %s", i+1, p.Subject(), strings.Join(t["Reason"], " "), strings.Join(t["Remove-When"], " ")))
	}
	var errs []error
	for _, row := range want {
		if !slices.Contains(listed, row) {
			errs = append(errs, fmt.Errorf("%s: the table has no row that says %q", readmeFile, row))
		}
	}
	for _, row := range listed {
		if !slices.Contains(want, row) {
			errs = append(errs, fmt.Errorf("%s: the table says %q, which is no patch of the series", readmeFile, row))
		}
	}
	if len(errs) == 0 && !slices.Equal(want, listed) {
		errs = append(errs, fmt.Errorf("%s: the table is in another order than the series, or has a row twice", readmeFile))
	}
	return errors.Join(errs...)
}

// withoutPurpose is a row without its second column, which is free text.
func withoutPurpose(row string) string {
	cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return strings.Join(slices.Delete(cells, 1, min(2, len(cells))), " | ")
}
