// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package bom writes bills of materials: what Go binaries are made of, which are
// the modules that the linker put in, each with its licences; as text for people,
// and as an SPDX document for tools.
//
// It reads the binaries themselves and the module cache, and asks no network
// for what is there.
package bom

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// Component is a part that comes from somebody: a module, the standard
// library, or an npm package.
type Component struct {
	Name, Version string
	// PURL is the package URL.
	PURL string
	// Supplier is under whose name it is published: an account, a host or an organization.
	Supplier string
	// Sum is the module's checksum as in go.sum; empty for others.
	Sum string
	// Declared is the SPDX expression of the licence, or NoAssertion.
	Declared string
	// Licences are the files with licences and notices, in the order of their names.
	Licences []Licence
}

// Licence is one file's text.
type Licence struct{ File, Text string }

// Binary is what a binary says about itself.
type Binary struct {
	Path string
	info *buildinfo.BuildInfo
}

// Read reads what the Go linker wrote into a binary.
func Read(path string) (Binary, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return Binary{}, fmt.Errorf("%s: %w", path, err)
	}
	return Binary{Path: path, info: info}, nil
}

// Platform is what the binary was built for, such as linux/arm64.
func (b Binary) Platform() string { return b.setting("GOOS") + "/" + b.setting("GOARCH") }

// Go is the Go release that built it, such as 1.26.0.
func (b Binary) Go() string { return strings.TrimPrefix(b.info.GoVersion, "go") }

// HasTag says whether the binary was built with a build tag.
func (b Binary) HasTag(tag string) bool {
	return slices.Contains(strings.Split(b.setting("-tags"), ","), tag)
}

func (b Binary) setting(key string) string {
	i := slices.IndexFunc(b.info.Settings, func(s debug.BuildSetting) bool { return s.Key == key })
	if i < 0 {
		return ""
	}
	return b.info.Settings[i].Value
}

// modules returns the binary's modules but for its own.
func (b Binary) modules() []*debug.Module {
	deps := slices.Clone(b.info.Deps)
	for i, m := range deps {
		if m.Replace != nil {
			deps[i] = m.Replace
		}
	}
	return deps
}

// Of returns the components of the binaries, sorted by name and version and
// each once, with their licences; the binaries' own module is not among them.
// The go command runs in dir, the root of the module that they were built
// from. A component without a licence is an error: it may not be handed on.
func Of(ctx context.Context, dir string, binaries ...Binary) ([]Component, error) {
	sums := map[string]string{}
	for _, b := range binaries {
		for _, m := range b.modules() {
			if !strings.HasPrefix(m.Version, "v") {
				return nil, fmt.Errorf("%s: %s is of no version (%s): its licence cannot be found", b.Path, m.Path, m.Version)
			}
			sums[m.Path+"@"+m.Version] = m.Sum
		}
	}
	dirs, err := moduleDirs(ctx, dir, sums)
	if err != nil {
		return nil, err
	}
	library, err := standardLibrary(ctx, dir, binaries)
	if err != nil {
		return nil, err
	}
	components := []Component{library}
	var errs []error
	for key, sum := range sums {
		path, version, _ := strings.Cut(key, "@")
		c, err := module(path, version, sum, dirs[key])
		components = append(components, c)
		errs = append(errs, err)
	}
	sortComponents(components)
	return components, errors.Join(errs...)
}

// Pinned returns the component of a module that the go.mod in dir requires, for
// what is taken out of a module otherwise than by the linker.
func Pinned(ctx context.Context, dir, path string) (Component, error) {
	out, err := goCommand(ctx, dir, "list", "-m", "-json", path)
	if err != nil {
		return Component{}, err
	}
	var m struct{ Version, Dir, Sum string }
	if err := json.Unmarshal(out, &m); err != nil {
		return Component{}, err
	}
	return module(path, m.Version, m.Sum, m.Dir)
}

// module is the component of a module that lies in dir.
func module(path, version, sum, dir string) (Component, error) {
	licences, err := licencesIn(dir)
	if err == nil && !isLicensed(licences) {
		err = errors.New("no licence is in the module")
	}
	if err != nil {
		return Component{}, fmt.Errorf("%s@%s: %w", path, version, err)
	}
	return Component{
		Name: path, Version: version, PURL: "pkg:golang/" + path + "@" + escape(version),
		Supplier: publisher(path), Sum: sum, Declared: declared(licences), Licences: licences,
	}, nil
}

// publisher is the part of a module's path that names whose it is: the account
// on hosts that have accounts, and else the host.
func publisher(path string) string {
	host, rest, _ := strings.Cut(path, "/")
	account, _, _ := strings.Cut(rest, "/")
	if account != "" && slices.Contains([]string{"github.com", "gitlab.com", "bitbucket.org", "codeberg.org"}, host) {
		return host + "/" + account
	}
	return host
}

func sortComponents(cs []Component) {
	slices.SortFunc(cs, func(a, b Component) int {
		return strings.Compare(a.Name+"@"+a.Version, b.Name+"@"+b.Version)
	})
}

// Merge joins lists of components, those of several platforms say, each
// component once.
func Merge(lists ...[]Component) []Component {
	all := slices.Concat(lists...)
	sortComponents(all)
	return slices.CompactFunc(all, func(a, b Component) bool { return a.PURL == b.PURL })
}

// escape makes a version part of a package URL.
func escape(version string) string { return strings.ReplaceAll(version, "+", "%2B") }

// moduleDirs finds the directories of modules in the module cache.
func moduleDirs(ctx context.Context, dir string, modules map[string]string) (map[string]string, error) {
	if len(modules) == 0 {
		return nil, nil
	}
	args := []string{"mod", "download", "-json"}
	for key := range modules {
		args = append(args, key)
	}
	slices.Sort(args[3:])
	out, err := goCommand(ctx, dir, args...)
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Version, Dir, Error string }
		switch err := decoder.Decode(&m); {
		case errors.Is(err, io.EOF):
			return dirs, nil
		case err != nil:
			return nil, err
		case m.Error != "":
			return nil, errors.New(m.Error)
		}
		dirs[m.Path+"@"+m.Version] = m.Dir
	}
}

// standardLibrary is Go's own part in the binaries. Its licence lies in the
// tree of the Go release, which must be the one that built them.
func standardLibrary(ctx context.Context, dir string, binaries []Binary) (Component, error) {
	out, err := goCommand(ctx, dir, "env", "GOROOT", "GOVERSION")
	if err != nil {
		return Component{}, err
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	for _, b := range binaries {
		if b.info.GoVersion != version {
			return Component{}, fmt.Errorf("%s was built by %s, and the go command here is %s: build it anew", b.Path, b.info.GoVersion, version)
		}
	}
	var licences []Licence
	for _, file := range []string{"LICENSE", "PATENTS"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if errors.Is(err, os.ErrNotExist) {
			// Debian keeps Go's tree without them, and the text elsewhere.
			continue
		}
		if err != nil {
			return Component{}, err
		}
		licences = append(licences, Licence{File: file, Text: string(text)})
	}
	if !isLicensed(licences) {
		return Component{}, fmt.Errorf("%s has no file LICENSE: Go's own licence must go along with the binaries", root)
	}
	bare, _, _ := strings.Cut(strings.TrimPrefix(version, "go"), " ")
	return Component{
		Name: "stdlib", Version: bare, PURL: "pkg:golang/stdlib@" + bare, Supplier: "The Go Authors",
		Declared: declared(licences), Licences: licences,
	}, nil
}

func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(out) == 0 {
		return nil, fmt.Errorf("go %s %s: %s", args[0], args[1], bytes.TrimSpace(exit.Stderr))
	}
	if err != nil && len(out) == 0 {
		return nil, err
	}
	// go mod download prints what went wrong into its output, too.
	return out, nil
}
