// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package patchset keeps a series of patches over one pinned Go module.
//
// A patch set is a directory with an UPSTREAM file (what is patched), a
// series file (which patches, in which order), the patches, and an overlay of
// new Go files. Apply turns the module's source into a git repository with one
// commit for upstream, one for the new files and one for each patch; Export
// writes that repository back into the directory; Verify proves that the two
// are the same thing.
//
// The package knows nothing about Prometheus. It runs the go and git commands
// and needs nothing else.
package patchset

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Names inside a patch set's directory.
const (
	upstreamFile = "UPSTREAM"
	seriesFile   = "series"
	overlayDir   = "overlay"
	portsDir     = "ports" // What new files change for a later version, as VERSION.diff.
)

// Upstream says what is patched and how the result is called.
type Upstream struct {
	Module  string // Go module path.
	Version string // Module version, such as v0.316.0.
	Tag     string // Upstream's release tag, such as v3.16.0.
	Go      string // Oldest Go release that builds it.
	Release string // What is appended to the version, such as promguard.1.
	// Copy lists directories of this repository that are copied into the tree
	// at the same relative path.
	Copy []string
	// Build lists the packages of the tree that are built, such as ./cmd/prometheus.
	Build []string
}

// ProductVersion is upstream's version with the release as build metadata:
// 3.16.0+promguard.1.
func (u Upstream) ProductVersion() string {
	return u.StockVersion() + "+" + u.Release
}

// StockVersion is the version of upstream's release without our patches: 3.16.0.
func (u Upstream) StockVersion() string { return strings.TrimPrefix(u.Tag, "v") }

// Set is a patch set as it stands on disk.
type Set struct {
	Root     string // Root of the repository that owns the patch set.
	Dir      string // Directory of the patch set.
	Upstream Upstream
	Patches  []Patch // In the order of the series file.

	overlay string // Directory of new files; "" is none.
}

// Load reads the patch set in dir, which belongs to the repository at root.
// The series file and the patches on disk must name the same files.
func Load(root, dir string) (*Set, error) {
	u, err := loadUpstream(filepath.Join(dir, upstreamFile))
	if err != nil {
		return nil, err
	}
	s := &Set{Root: root, Dir: dir, Upstream: u, overlay: filepath.Join(dir, overlayDir)}
	for _, c := range u.Copy {
		if info, err := os.Stat(filepath.Join(root, c)); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("%s: copy %s: there is no such directory in the repository", filepath.Join(dir, upstreamFile), c)
		}
	}
	names, err := loadSeries(filepath.Join(dir, seriesFile))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("%s names a patch that cannot be read: %w", seriesFile, err)
		}
		p, err := ParsePatch(name, string(text))
		if err != nil {
			return nil, err
		}
		s.Patches = append(s.Patches, p)
	}
	if err := s.checkNoStrayPatch(names); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Set) checkNoStrayPatch(names []string) error {
	found, err := filepath.Glob(filepath.Join(s.Dir, "*.patch"))
	if err != nil {
		return err
	}
	for _, f := range found {
		if !slices.Contains(names, filepath.Base(f)) {
			return fmt.Errorf("%s is not named in %s: add it there or remove it", filepath.Base(f), filepath.Join(s.Dir, seriesFile))
		}
	}
	return nil
}

// lines returns the lines of a file that are neither empty nor a comment.
func lines(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []string
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		line := strings.TrimSpace(sc.Text())
		if line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out, sc.Err()
}

func loadSeries(path string) ([]string, error) {
	names, err := lines(path)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] {
			return nil, fmt.Errorf("%s: %s is named twice", path, n)
		}
		if n != filepath.Base(n) || !strings.HasSuffix(n, ".patch") {
			return nil, fmt.Errorf("%s: %q is not the name of a .patch file in the same directory", path, n)
		}
		seen[n] = true
	}
	return names, nil
}

func loadUpstream(path string) (Upstream, error) {
	ls, err := lines(path)
	if err != nil {
		return Upstream{}, err
	}
	var u Upstream
	values := map[string][]string{}
	for _, line := range ls {
		words := strings.Fields(line)
		values[words[0]] = append(values[words[0]], words[1:]...)
	}
	var errs []error
	for _, single := range []struct {
		key   string
		field *string
	}{
		{"module", &u.Module}, {"version", &u.Version}, {"tag", &u.Tag}, {"go", &u.Go}, {"release", &u.Release},
	} {
		if n := len(values[single.key]); n != 1 {
			errs = append(errs, fmt.Errorf("%s: %s must have one value and has %d", path, single.key, n))
		} else {
			*single.field = values[single.key][0]
		}
		delete(values, single.key)
	}
	u.Build = values["build"]
	if len(u.Build) == 0 {
		errs = append(errs, fmt.Errorf("%s: build names no package", path))
	}
	for _, dir := range values["copy"] {
		if !filepath.IsLocal(dir) {
			errs = append(errs, fmt.Errorf("%s: copy %s: must be a path below the repository's root", path, dir))
		}
		u.Copy = append(u.Copy, filepath.Clean(dir))
	}
	delete(values, "build")
	delete(values, "copy")
	for _, key := range slices.Sorted(maps.Keys(values)) {
		errs = append(errs, fmt.Errorf("%s: unknown key %q: allowed are module, version, tag, go, release, copy, build", path, key))
	}
	return u, errors.Join(errs...)
}
