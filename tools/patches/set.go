// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// dir is the patch set, relative to the repository's root, where this is run: an
// UPSTREAM file (what is patched), a series file (which patches, in which order),
// the patches, an overlay of new files, and ports (what those change for a later
// version).
const (
	dir          = "prometheus-patches"
	upstreamFile = dir + "/UPSTREAM"
	seriesFile   = dir + "/series"
	overlayDir   = dir + "/overlay"
)

// upstream says what is patched and how the result is called.
type upstream struct {
	Module  string // Go module path.
	Version string // Module version, such as v0.316.0.
	Tag     string // Upstream's release tag, such as v3.16.0.
	Release string // What is appended to the version, such as promguard.1.
	// Copy lists directories of this repository that are copied into the tree at
	// the same path, Build the packages of the tree that are built.
	Copy, Build []string
}

// productVersion is upstream's version with the release as build metadata:
// 3.16.0+promguard.1.
func (u upstream) productVersion() string { return u.stockVersion() + "+" + u.Release }

// stockVersion is the version of upstream's release without our patches: 3.16.0.
func (u upstream) stockVersion() string { return strings.TrimPrefix(u.Tag, "v") }

// set is a patch set as it stands on disk.
type set struct {
	upstream upstream
	patches  []patch // In the order of the series file.
	overlay  string  // Directory of new files; "" is none.
	unpacked string  // Upstream's source; "" is the module that go.mod pins.
}

func load(unpacked string) (*set, error) {
	u, err := loadUpstream(upstreamFile)
	if err != nil {
		return nil, err
	}
	for _, c := range u.Copy {
		if info, err := os.Stat(c); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("%s: copy %s: there is no such directory in the repository", upstreamFile, c)
		}
		if _, err := os.Stat(filepath.Join(overlayDir, c)); err == nil {
			return nil, fmt.Errorf("%s and %s both become %s: remove one", filepath.Join(overlayDir, c), c, c)
		}
	}
	names, err := lines(seriesFile)
	if err != nil {
		return nil, err
	}
	s := &set{upstream: u, overlay: overlayDir, unpacked: unpacked}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("%s names a patch that cannot be read: %w", seriesFile, err)
		}
		p, err := parsePatch(name, string(text))
		if err != nil {
			return nil, err
		}
		s.patches = append(s.patches, p)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	for _, f := range found {
		if !slices.Contains(names, filepath.Base(f)) {
			return nil, fmt.Errorf("%s is not named in %s: add it there or remove it", filepath.Base(f), seriesFile)
		}
	}
	return s, err
}

// lines returns the lines of a file that are neither empty nor a comment.
func lines(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	var out []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out, err
}

func loadUpstream(path string) (u upstream, err error) {
	declared, err := lines(path)
	if err != nil {
		return u, err
	}
	values := map[string]*string{"module": &u.Module, "version": &u.Version, "tag": &u.Tag, "release": &u.Release}
	lists := map[string]*[]string{"copy": &u.Copy, "build": &u.Build}
	for _, line := range declared {
		words := strings.Fields(line)
		if list := lists[words[0]]; list != nil {
			*list = append(*list, words[1:]...)
		} else if value := values[words[0]]; value != nil && *value == "" && len(words) == 2 {
			*value = words[1]
		} else {
			return u, fmt.Errorf("%s: %q: it should be one each of module, version, tag, release with a value, or copy or build", path, line)
		}
	}
	if u.Module == "" || u.Version == "" || u.Tag == "" || u.Release == "" || len(u.Build) == 0 {
		return u, fmt.Errorf("%s: one of module, version, tag, release, build is missing", path)
	}
	return u, nil
}

// hash identifies the patches.
func (s *set) hash() string {
	h := sha256.New()
	for _, p := range s.patches {
		fmt.Fprintf(h, "%s\n%s\n", p.name, p.format())
	}
	return hex.EncodeToString(h.Sum(nil))
}

// source returns the directory of the pinned module in the module cache,
// downloading it first if need be. The repository's own go.mod must pin the same
// version, so that both are built against one upstream.
func (s *set) source(ctx context.Context) (string, error) {
	if s.unpacked != "" {
		return filepath.Abs(s.unpacked)
	}
	var required struct{ Version string }
	if err := goJSON(ctx, &required, "list", "-m", "-json", s.upstream.Module); err != nil {
		return "", err
	}
	if required.Version != s.upstream.Version {
		return "", fmt.Errorf("go.mod requires %s %s and %s names %s: make them the same",
			s.upstream.Module, required.Version, upstreamFile, s.upstream.Version)
	}
	_, source, err := s.download(ctx, s.upstream.Version)
	return source, err
}

// download returns the version of upstream that a query finds, and its directory
// in the module cache.
func (s *set) download(ctx context.Context, query string) (version, source string, err error) {
	var downloaded struct{ Version, Dir, Error string }
	err = goJSON(ctx, &downloaded, "mod", "download", "-json", s.upstream.Module+"@"+query)
	if err == nil && downloaded.Error != "" {
		err = errors.New(downloaded.Error)
	}
	return downloaded.Version, downloaded.Dir, err
}

func goJSON(ctx context.Context, into any, args ...string) error {
	out, err := exec.CommandContext(ctx, "go", args...).Output()
	if len(out) > 0 { // A failed download is told in the output.
		return json.Unmarshal(out, into)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
}
