// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package replay starts a Prometheus binary on a data directory, waits until
// the write-ahead log is replayed, and measures what that took.
package replay

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

// Binary is a Prometheus to measure.
type Binary struct {
	Name    string // in the results; lower case
	Path    string
	Args    []string // besides those that a replay needs
	Version string   // the first line of --version
}

// reserved are the flags that Run sets itself, or whose default it relies on.
var reserved = []string{"--config.file", "--storage.tsdb.path", "--web.listen-address", "--log.level", "--log.format"}

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

// ParseBinary parses "[NAME=]PATH [ARG...]", separated by spaces. The name is
// the path's last element if none is given.
func ParseBinary(spec string) (Binary, error) {
	fields := strings.Fields(spec)
	if len(fields) == 0 {
		return Binary{}, errors.New("empty: give [NAME=]PATH [ARG...]")
	}
	b := Binary{Path: fields[0], Args: fields[1:]}
	if name, path, ok := strings.Cut(fields[0], "="); ok {
		b.Name, b.Path = name, path
	} else {
		b.Name = strings.ToLower(filepath.Base(b.Path))
	}
	if !nameRE.MatchString(b.Name) {
		return Binary{}, fmt.Errorf("%q: the name %q must be of lower-case letters, digits, '.', '_' and '-'; give another one as NAME=PATH", spec, b.Name)
	}
	for _, arg := range b.Args {
		flag, _, _ := strings.Cut(arg, "=")
		if slices.Contains(reserved, flag) {
			return Binary{}, fmt.Errorf("%q: %s is set by walreplay", spec, flag)
		}
	}
	return b, nil
}

// Check finds the binary, and learns its version by running it.
func (b *Binary) Check(ctx context.Context) error {
	info, err := os.Stat(b.Path)
	switch {
	case err != nil:
		return fmt.Errorf("binary %s: %w", b.Name, err)
	case info.IsDir():
		return fmt.Errorf("binary %s: %s is a directory", b.Name, b.Path)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("binary %s: %s is not executable", b.Name, b.Path)
	}
	// A path without a slash would be looked up in PATH.
	if b.Path, err = filepath.Abs(b.Path); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, b.Path, "--version").CombinedOutput()
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		return fmt.Errorf("binary %s: %s --version: %w: %s", b.Name, b.Path, err, first)
	}
	if !strings.HasPrefix(first, "prometheus, version ") {
		return fmt.Errorf("binary %s: %s is no Prometheus; --version says %q", b.Name, b.Path, first)
	}
	b.Version = first
	return nil
}

// Accepts says whether the binary knows a flag, by running it.
func (b *Binary) Accepts(ctx context.Context, flag string) bool {
	return exec.CommandContext(ctx, b.Path, flag, "--version").Run() == nil
}
