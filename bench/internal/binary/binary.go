// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package binary is what benchmarks know of the Prometheus binaries that they
// compare.
package binary

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Binary is a Prometheus to measure.
type Binary struct {
	Name    string   `json:"name"` // in the results; lower case
	Path    string   `json:"path"`
	Args    []string `json:"args,omitempty"` // besides those that are always given
	Version string   `json:"version"`        // the first line of --version
}

// reserved are the flags that benchmarks set themselves, or whose default they
// rely on.
var reserved = []string{"--config.file", "--storage.tsdb.path", "--web.listen-address", "--web.external-url", "--web.route-prefix", "--log.level", "--log.format"}

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

// ParseAll parses the values of the flag --binary, which is repeated for each.
func ParseAll(specs []string) (binaries []Binary, err error) {
	names := map[string]bool{}
	for _, spec := range specs {
		b, err := Parse(spec)
		if err != nil {
			return nil, fmt.Errorf("--binary: %w", err)
		}
		if names[b.Name] {
			return nil, fmt.Errorf("--binary: two binaries are named %q; name them as NAME=PATH", b.Name)
		}
		names[b.Name] = true
		binaries = append(binaries, b)
	}
	return binaries, nil
}

// Parse parses "[NAME=]PATH [ARG...]", separated by spaces. The name is the
// path's last element if none is given.
func Parse(spec string) (Binary, error) {
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
			return Binary{}, fmt.Errorf("%q: %s is set by the benchmark", spec, flag)
		}
	}
	return b, nil
}

// Check finds the binary, and learns its version by running it.
func (b *Binary) Check(ctx context.Context) error {
	path, err := exec.LookPath(b.Path)
	if errors.Is(err, exec.ErrNotFound) {
		err = fmt.Errorf("%s is not in PATH; a path has a slash, as in ./%s", b.Path, b.Path)
	}
	if err != nil {
		return fmt.Errorf("binary %s: %w", b.Name, err)
	}
	if b.Path, err = filepath.Abs(path); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, b.Path, "--version").CombinedOutput()
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		return fmt.Errorf("binary %s: %s --version: %w: %s", b.Name, b.Path, err, first)
	}
	if !strings.HasPrefix(first, "prometheus, version ") {
		return fmt.Errorf("binary %s: %s is not Prometheus; --version says %q", b.Name, b.Path, first)
	}
	b.Version = first
	return nil
}

// Accepts says whether the binary knows a flag, by running it.
func (b *Binary) Accepts(ctx context.Context, flag string) bool {
	return exec.CommandContext(ctx, b.Path, flag, "--version").Run() == nil
}
