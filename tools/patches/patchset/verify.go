// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package patchset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Verify proves that the patch set is whole: every message is complete, the table
// in the README names every patch and no other, the patches apply to source, and
// exporting the result gives the very same files.
// It works in a directory of its own and changes nothing.
func (s *Set) Verify(ctx context.Context, source string) error {
	var errs []error
	for _, p := range s.Patches {
		errs = append(errs, p.Check())
	}
	errs = append(errs, s.checkGo(source), s.checkTable())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "patchset-verify-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)

	copied, err := s.copyTo(filepath.Join(scratch, "repository"))
	if err != nil {
		return err
	}
	tree := Tree{Dir: filepath.Join(scratch, "tree")}
	if _, err := copied.Apply(ctx, source, tree, false); err != nil {
		return err
	}
	if err := copied.checkPorts(ctx, tree); err != nil {
		return err
	}
	drift, err := copied.Export(ctx, tree)
	if err != nil {
		return err
	}
	if len(drift) > 0 {
		return fmt.Errorf("applying and exporting again changes %s: run make patches-export and commit the result", strings.Join(drift, ", "))
	}
	return nil
}

// checkPorts checks that what new files change for later versions of upstream
// still applies to them as they are.
func (s *Set) checkPorts(ctx context.Context, tree Tree) error {
	ports, err := filepath.Glob(s.port("*"))
	if err != nil {
		return err
	}
	for _, port := range ports {
		text, err := os.ReadFile(port)
		if err != nil {
			return err
		}
		if _, err := tree.git(ctx, string(text), "apply", "--check", "-"); err != nil {
			return fmt.Errorf("%s does not apply to the new files any more: correct it, or remove it: %w", s.rel(port), err)
		}
	}
	return nil
}

// checkGo compares the Go release that UPSTREAM names with upstream's go.mod.
func (s *Set) checkGo(source string) error {
	declared, err := lines(filepath.Join(source, "go.mod"))
	if err != nil {
		return err
	}
	if !slices.Contains(declared, "go "+s.Upstream.Go) {
		return fmt.Errorf("%s names go %s, which is not what upstream's go.mod says", filepath.Join(s.Dir, upstreamFile), s.Upstream.Go)
	}
	return nil
}

// copyTo copies everything that belongs to the set into a repository at root,
// to the same relative paths.
func (s *Set) copyTo(root string) (*Set, error) {
	rel := s.rel(s.Dir)
	if !filepath.IsLocal(rel) {
		return nil, fmt.Errorf("%s is not below the repository's root %s", s.Dir, s.Root)
	}
	dir := filepath.Join(root, rel)
	if err := copyDir(s.Dir, dir); err != nil {
		return nil, err
	}
	for _, c := range s.Upstream.Copy {
		if err := copyDir(filepath.Join(s.Root, c), filepath.Join(root, c)); err != nil {
			return nil, err
		}
	}
	return Load(root, dir)
}

// Test runs the tests that the patches name, in the tree, in the order of the
// series and each command once. With race they run under the race detector, which
// needs a C compiler.
func (s *Set) Test(ctx context.Context, tree Tree, race bool, stdout io.Writer) error {
	if err := tree.checkExists(); err != nil {
		return err
	}
	var env []string
	if race {
		env = []string{"CGO_ENABLED=1", goFlags + " -race"}
	}
	ran := map[string]bool{}
	for _, p := range s.Patches {
		for _, command := range p.Tests() {
			if ran[command] {
				continue
			}
			ran[command] = true
			fmt.Fprintf(stdout, "# %s: %s\n", p.Name, command)
			if err := tree.goCommand(ctx, stdout, env, "sh", "-c", command); err != nil {
				return fmt.Errorf("%s: %s: %w", p.Name, command, err)
			}
		}
	}
	return nil
}

// BuildOptions say what is built, and how.
type BuildOptions struct {
	// Out is the directory for the binaries.
	Out string
	// Tags are build tags, separated by commas.
	Tags string
	// Platform is what to build for, such as linux/arm64; "" is this machine's.
	Platform string
	// Strip leaves out the symbols that only debuggers read. Stack traces and
	// profiles keep their names.
	Strip bool
}

// stamp is what a build says of itself.
type stamp struct{ version, revision, branch, date string }

// flags are the linker's flags that set what prometheus/common prints as version.
func (s stamp) flags() string {
	var flags []string
	for _, variable := range [][2]string{
		{"Version", s.version}, {"Revision", s.revision}, {"Branch", s.branch}, {"BuildUser", "promguard"}, {"BuildDate", s.date},
	} {
		flags = append(flags, "-X github.com/prometheus/common/version."+variable[0]+"="+variable[1])
	}
	return strings.Join(flags, " ")
}

// LinkerFlags stamp this repository's own binaries as Build does those of the tree.
func (s *Set) LinkerFlags(ctx context.Context) string {
	own := stamp{version: s.Upstream.ProductVersion(), branch: s.Upstream.Tag}
	own.revision, own.date = s.commit(ctx)
	return own.flags()
}

// Build compiles the packages that UPSTREAM names and stamps the product's
// version on them, the commit of the repository that owns the patch set with its
// time, and, behind upstream's tag, that of the tree. The same commit gives the
// same bytes: nothing of the machine or the directory goes in.
func (s *Set) Build(ctx context.Context, tree Tree, o BuildOptions, stdout io.Writer) error {
	if err := tree.checkExists(); err != nil {
		return err
	}
	patched, err := tree.Revision(ctx)
	if err != nil {
		return err
	}
	stamp := stamp{version: s.Upstream.ProductVersion(), branch: s.Upstream.Tag + "-" + patched[:12]}
	stamp.revision, stamp.date = s.commit(ctx)
	return s.build(ctx, tree, stamp, o, stdout)
}

// commit is the commit of the repository that owns the patch set, "-dirty" with
// changes that are in none, and its time as Prometheus prints it. Both are
// "unknown" where the source is in no repository, as in an archive.
func (s *Set) commit(ctx context.Context) (revision, date string) {
	const unknown = "unknown"
	root, err := filepath.Abs(s.Root)
	if err != nil {
		return unknown, unknown
	}
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = root
		// A repository further up is somebody else's.
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(root))
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	last, err := git("log", "-1", "--format=%H %ct")
	if err != nil {
		return unknown, unknown
	}
	revision, seconds, _ := strings.Cut(last, " ")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return unknown, unknown
	}
	if changed, err := git("status", "--porcelain"); err != nil || changed != "" {
		revision += "-dirty"
	}
	return revision, time.Unix(at, 0).UTC().Format("20060102-15:04:05")
}

// BuildStock compiles the same packages without our changes: upstream's files,
// version and flags of the compiler, with those patches alone that make it build
// where this is built. They lie in a tree of their own.
func (s *Set) BuildStock(ctx context.Context, source string, tree Tree, o BuildOptions, stdout io.Writer) error {
	if _, err := s.stock().Apply(ctx, source, tree, true); err != nil {
		return err
	}
	return s.build(ctx, tree, stamp{s.Upstream.StockVersion(), s.Upstream.Version, s.Upstream.Tag, ""}, o, stdout)
}

// stock is the part of the set that changes where upstream builds and not what
// it does: the patches whose Reason is environment.
func (s *Set) stock() *Set {
	stock := *s
	stock.Upstream.Copy, stock.overlay = nil, ""
	stock.Patches = nil
	for _, p := range s.Patches {
		if slices.Equal(p.trailers()["Reason"], []string{"environment"}) {
			stock.Patches = append(stock.Patches, p)
		}
	}
	return &stock
}

func (s *Set) build(ctx context.Context, tree Tree, stamp stamp, o BuildOptions, stdout io.Writer) error {
	ldflags := []string{stamp.flags()}
	if o.Strip {
		ldflags = append(ldflags, "-s", "-w")
	}
	var env []string
	if o.Platform != "" {
		system, arch, ok := strings.Cut(o.Platform, "/")
		if !ok {
			return fmt.Errorf("%q is no platform: it should be like linux/arm64", o.Platform)
		}
		env = append(env, "GOOS="+system, "GOARCH="+arch)
	}
	out, err := filepath.Abs(o.Out)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	args := []string{"build", "-tags", o.Tags, "-ldflags", strings.Join(ldflags, " "), "-o", out + string(filepath.Separator)}
	return tree.goCommand(ctx, stdout, env, "go", append(args, s.Upstream.Build...)...)
}

// goFlags let builds and tests share the compiler's cache.
const goFlags = "GOFLAGS=-trimpath -buildvcs=false"

// goCommand runs a command in the tree as upstream's release builds do: without
// cgo and outside of any workspace.
func (t Tree) goCommand(ctx context.Context, stdout io.Writer, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = t.Dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", goFlags)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = stdout, os.Stderr
	return cmd.Run()
}
