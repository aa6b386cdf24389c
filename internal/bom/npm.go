// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package bom

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// WebUITag is the build tag of binaries that have Prometheus's web UI in them.
const WebUITag = "builtinassets"

// WebUI returns the npm packages in Prometheus's web UI, if one of the binaries
// has it: as they are listed in source, the tree that it was built into.
func WebUI(source string, binaries ...Binary) ([]Component, error) {
	if !slices.ContainsFunc(binaries, func(b Binary) bool { return b.HasTag(WebUITag) }) {
		return nil, nil
	}
	file := filepath.Join(source, "web/ui/static/mantine-ui/assets/third-party-licenses.txt.gz")
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("the web UI is in the binaries, and its licences are not in the source: %w", err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	text, err := io.ReadAll(plain)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return NPM(string(text))
}

// NPM reads the list of licences that the web UI's bundler writes of the
// packages it took in: blocks of "Key: value" lines, a licence's text between
// lines of === and ---.
func NPM(list string) ([]Component, error) {
	var components []Component
	var current Component
	var text *strings.Builder
	flush := func() error {
		if current.Name == "" || current.Version == "" {
			return fmt.Errorf("a package without a name or a version: %q %q", current.Name, current.Version)
		}
		// The scope is an account; a package without one belongs to its own maintainers.
		scope, _, _ := strings.Cut(current.Name, "/")
		current.Supplier = "npmjs.com/" + scope
		current.PURL = "pkg:npm/" + strings.Replace(current.Name, "@", "%40", 1) + "@" + escape(current.Version)
		if text != nil {
			current.Licences = []Licence{{File: "LICENSE", Text: text.String()}}
		}
		components = append(components, current)
		current, text = Component{}, nil
		return nil
	}
	lines := bufio.NewScanner(strings.NewReader(list))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		key, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "---" && current.Name != "":
			if err := flush(); err != nil {
				return nil, err
			}
		case text != nil:
			text.WriteString(line + "\n")
		case line == "===":
			text = &strings.Builder{}
		case key == "Name":
			current.Name = value
		case key == "Version":
			current.Version = value
		case key == "License":
			current.Declared = expression(value)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if current.Name != "" {
		if err := flush(); err != nil {
			return nil, err
		}
	}
	if len(components) == 0 {
		return nil, errors.New("the list of licences names no package")
	}
	sortComponents(components)
	return components, nil
}

// expression returns what a package.json says of its licence, if it can be an
// SPDX expression.
func expression(s string) string {
	s = strings.TrimSpace(s)
	for _, word := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" ()", r) }) {
		for _, r := range word {
			if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-+", r) {
				return NoAssertion
			}
		}
	}
	if s == "" || strings.EqualFold(s, "unlicensed") || strings.HasPrefix(strings.ToUpper(s), "SEE ") {
		return NoAssertion
	}
	return s
}
