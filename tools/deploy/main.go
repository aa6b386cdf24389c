// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command deploy formats the jsonnet below deploy and writes what the mixin renders
// into, all in the repository whose root is its argument.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-jsonnet/formatter"

	"github.com/promguard/promguard/tools/deploy/mixin"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: deploy ROOT")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "deploy:", err)
		os.Exit(1)
	}
}

func write(root string) error {
	if err := format(filepath.Join(root, "deploy")); err != nil {
		return err
	}
	files, err := mixin.Render(root)
	if err != nil {
		return err
	}
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func format(dir string) error {
	return filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "sonnet") {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		formatted, err := formatter.Format(name, string(text), formatter.DefaultOptions())
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return os.WriteFile(name, []byte(formatted), 0o644)
	})
}
