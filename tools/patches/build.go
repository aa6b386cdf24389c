// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// test runs the tests that the patches name, in the tree, in the order of the
// series and each command once. With race they run under the race detector, which
// needs a C compiler.
func (s *set) test(ctx context.Context, t tree, race bool) error {
	if err := t.checkMade(); err != nil {
		return err
	}
	env := []string{goFlags + " -timeout=60m"} // A busy machine may take longer than go test's 10 minutes.
	if race {
		env = []string{"CGO_ENABLED=1", env[0] + " -race"}
	}
	ran := map[string]bool{}
	for _, p := range s.patches {
		for _, command := range p.tests() {
			if ran[command] {
				continue
			}
			ran[command] = true
			fmt.Printf("# %s: %s\n", p.name, command)
			var out bytes.Buffer
			err := t.run(ctx, io.MultiWriter(os.Stdout, &out), env, "sh", "-c", command)
			if err == nil && !ranTests(out.String()) {
				err = errors.New("no test ran: correct the -run of this trailer")
			}
			if err != nil {
				return fmt.Errorf("%s: %s: %w", p.name, command, err)
			}
		}
	}
	return nil
}

// ranTests reports whether a go test that has passed ran a test in any package.
func ranTests(output string) bool {
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "ok ") && !strings.Contains(line, "[no tests to run]") {
			return true
		}
	}
	return false
}

// buildOptions say what is built, and how.
type buildOptions struct {
	out      string // Directory for the binaries.
	tags     string // Build tags, separated by commas.
	platform string // What to build for, such as linux/arm64; "" is this machine's.
	strip    bool   // Leaves out what only debuggers read: traces and profiles keep their names.
}

// ldflags are the linker's flags that set what prometheus/common prints as version.
func ldflags(version, revision, branch, date string) string {
	const variable = "-X github.com/prometheus/common/version."
	return variable + "Version=" + version + " " + variable + "Revision=" + revision + " " + variable + "Branch=" + branch + " " +
		variable + "BuildUser=promguard " + variable + "BuildDate=" + date
}

// stamp are the flags that name this repository's commit, with "-dirty" behind it
// if there are changes that are in none, and its time as Prometheus prints it. Both
// are "unknown" where the source is in no repository, as in an archive.
func (s *set) stamp(ctx context.Context, branch string) (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		// A repository further up is somebody else's.
		cmd.Env = append(os.Environ(), "TZ=UTC", "GIT_CEILING_DIRECTORIES="+filepath.Dir(root))
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	revision, date := "unknown", "unknown"
	if last, err := git("log", "-1", "--format=%H %cd", "--date=format-local:%Y%m%d-%H:%M:%S"); err == nil {
		revision, date, _ = strings.Cut(last, " ")
		if changed, err := git("status", "--porcelain"); err != nil || changed != "" {
			revision += "-dirty"
		}
	}
	return ldflags(s.upstream.productVersion(), revision, branch, date), nil
}

// build compiles the packages that UPSTREAM names and stamps the product's version
// on them, this repository's commit with its time and, behind upstream's tag, the
// tree's. The same commit gives the same bytes: nothing of the machine or the
// directory goes in.
func (s *set) build(ctx context.Context, t tree, o buildOptions) error {
	if err := t.checkMade(); err != nil {
		return err
	}
	g := script{tree: t}
	patched := g.line(ctx, "rev-parse", "HEAD")
	if g.err != nil {
		return g.err
	}
	flags, err := s.stamp(ctx, s.upstream.Tag+"-"+patched[:12])
	if err != nil {
		return err
	}
	return s.compile(ctx, t, flags, o)
}

// buildStock compiles the same packages without our changes: upstream's files,
// version and flags of the compiler, with those patches alone whose Reason is
// environment, which change where it builds and not what it does. They lie in a
// tree of their own.
func (s *set) buildStock(ctx context.Context, t tree, o buildOptions) error {
	stock := *s
	stock.upstream.Copy, stock.overlay = nil, ""
	stock.patches = slices.DeleteFunc(slices.Clone(s.patches), func(p patch) bool {
		return !slices.Equal(p.trailers()["Reason"], []string{"environment"})
	})
	if _, err := stock.apply(ctx, t, true); err != nil {
		return err
	}
	return s.compile(ctx, t, ldflags(s.upstream.stockVersion(), s.upstream.Version, s.upstream.Tag, ""), o)
}

func (s *set) compile(ctx context.Context, t tree, flags string, o buildOptions) error {
	if o.strip {
		flags += " -s -w"
	}
	var env []string
	if o.platform != "" {
		system, arch, ok := strings.Cut(o.platform, "/")
		if !ok {
			return fmt.Errorf("%q is not a platform: it should be like linux/arm64", o.platform)
		}
		env = append(env, "GOOS="+system, "GOARCH="+arch)
	}
	out, err := filepath.Abs(o.out)
	if err != nil {
		return err
	}
	args := []string{"build", "-tags", o.tags, "-ldflags", flags, "-o", out + string(filepath.Separator)}
	return errors.Join(os.MkdirAll(out, 0o755), t.run(ctx, os.Stdout, env, "go", append(args, s.upstream.Build...)...))
}

// goFlags let builds and tests share the compiler's cache.
const goFlags = "GOFLAGS=-trimpath -buildvcs=false"

// run runs a command in the tree as upstream's release builds do: without cgo and
// outside of any workspace.
func (t tree) run(ctx context.Context, stdout io.Writer, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = string(t)
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", goFlags)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = stdout, os.Stderr
	return cmd.Run()
}
