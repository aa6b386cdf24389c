// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command patches makes, exports, checks, tests and builds the patched tree.
// It is called by the Makefile.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "patches:", err)
		os.Exit(1)
	}
}

// options are the flags of all subcommands.
type options struct {
	tree, source, to                          string
	discard, stock, race, check, withoutTests bool
	build                                     buildOptions
}

func run(ctx context.Context, args []string) error {
	var o options
	app := kingpin.New("patches", "Patches over a pinned Go module: apply, export, verify, test, build, bump.")
	app.Flag("tree", "Patched tree.").Default("build/prometheus").StringVar(&o.tree)
	app.Flag("source", "Upstream's unpacked source. Empty: the module that go.mod pins.").StringVar(&o.source)

	apply := app.Command("apply", "Make the patched tree, or bring it up to date.")
	apply.Flag("discard", "Discard edits in the tree that were not exported.").BoolVar(&o.discard)
	app.Command("export", "Write the tree's commits and new files back into the patch set.")
	app.Command("verify", "Check every patch's message, and that apply and export give the same files.")
	test := app.Command("test", "Run the tests that the patches name, in the tree.")
	test.Flag("race", "Under the race detector, which needs a C compiler.").BoolVar(&o.race)
	build := app.Command("build", "Build the tree's binaries.")
	build.Flag("out", "Directory for the binaries.").Default("bin").StringVar(&o.build.out)
	build.Flag("tags", "Build tags.").Default("netgo").StringVar(&o.build.tags)
	build.Flag("platform", "What to build for, such as linux/arm64. Empty: this machine.").StringVar(&o.build.platform)
	build.Flag("strip", "Leave out the symbols that only debuggers read.").BoolVar(&o.build.strip)
	build.Flag("stock", "Build upstream's binaries instead, without our changes, from a tree of their own beside this one.").BoolVar(&o.stock)
	bump := app.Command("bump", "Take the series to another version of upstream, or go on with it after conflicts. Choose a tree of its own.")
	bump.Arg("version", "Version of the Go module, such as v0.316.0.").Required().StringVar(&o.to)
	bump.Flag("check", "Report and test; write nothing but the tree.").BoolVar(&o.check)
	bump.Flag("no-test", "Do not build and test the result.").BoolVar(&o.withoutTests)
	bump.Flag("discard", "Discard a bump that was begun in the tree.").BoolVar(&o.discard)
	app.Command("upstream-check", "Say which release of upstream is the newest, and how many patches would conflict with it.")
	app.Command("version", "Print the version that builds are stamped with.")
	app.Command("ldflags", "Print the linker's flags that stamp this repository's own binaries.")

	command, err := app.Parse(args)
	if err != nil {
		return err
	}
	s, err := load(o.source)
	if err != nil {
		return err
	}
	return o.run(ctx, command, s)
}

func (o options) run(ctx context.Context, command string, s *set) error {
	switch t := tree(o.tree); command {
	case "apply":
		return apply(ctx, s, t, o.discard)
	case "export":
		written, err := s.export(ctx, t)
		for _, path := range written {
			fmt.Println("exported", path)
		}
		if err != nil {
			return err
		}
		// The tree is made anew from what was written, so that the next apply finds no
		// work in it that is in no patch.
		if s, err = load(o.source); err != nil {
			return err
		}
		return apply(ctx, s, t, true)
	case "verify":
		if err := s.verify(ctx); err != nil {
			return err
		}
		fmt.Printf("%d patches apply to %s %s and export to the same files\n", len(s.patches), s.upstream.Module, s.upstream.Version)
	case "test":
		return s.test(ctx, t, o.race)
	case "build":
		return o.compile(ctx, s)
	case "bump":
		return o.bump(ctx, s, t)
	case "upstream-check":
		return upstreamCheck(ctx, s)
	case "version":
		fmt.Println(s.upstream.productVersion())
	case "ldflags":
		flags, err := s.stamp(ctx, s.upstream.Tag)
		fmt.Println(flags)
		return err
	}
	return nil
}

func apply(ctx context.Context, s *set, t tree, discard bool) error {
	applied, err := s.apply(ctx, t, discard)
	if applied {
		fmt.Printf("%s: %s with %d patches\n", t, s.upstream.Tag, len(s.patches))
	}
	return err
}

func (o options) compile(ctx context.Context, s *set) error {
	version := s.upstream.productVersion()
	build := func() error { return s.build(ctx, tree(o.tree), o.build) }
	if o.stock {
		version = s.upstream.stockVersion()
		build = func() error { return s.buildStock(ctx, tree(o.tree+"-stock"), o.build) }
	}
	fmt.Printf("building %s %s into %s (the first build takes some minutes, later ones seconds)\n", s.upstream.Module, version, o.build.out)
	start := time.Now()
	if err := build(); err != nil {
		return fmt.Errorf("building %s: %w", version, err)
	}
	fmt.Printf("built in %s\n", time.Since(start).Round(time.Second))
	return nil
}

// bump takes the series to another version of upstream, or goes on with it. The
// repository is written to at the end, when every patch applies and its tests
// pass.
func (o options) bump(ctx context.Context, s *set, t tree) error {
	to, err := s.resolve(ctx, o.to)
	if err != nil {
		return err
	}
	if to.Version == s.upstream.Version {
		fmt.Printf("the patches are over %s %s already\n", to.Module, to.Version)
		return nil
	}
	if t.state().Bump != to.Version || o.discard {
		if err := s.startBump(ctx, to, t, o.discard); err != nil {
			return err
		}
	}
	if err := s.checkBump(ctx, t); err != nil {
		return err
	}
	if !o.withoutTests {
		if err := s.testBump(ctx, t); err != nil {
			return fmt.Errorf("%w\ncorrect it in %s (git commit --fixup=SHA && git rebase -i --autosquash %s), then run the same again", err, t, newFilesRef)
		}
	}
	if o.check {
		fmt.Printf("%s is %s %s with the patches; nothing else was written\n", t, to.Module, to.Version)
		return nil
	}
	written, err := s.finishBump(ctx, t, to)
	for _, path := range written {
		fmt.Println("wrote", path)
	}
	if err != nil {
		return err
	}
	fmt.Printf("the patches are over %s now; what else to change is in docs/upgrading.md\n", to.Version)
	return nil
}

// upstreamCheck says in one line which release of upstream is the newest, which
// one is patched, and how many patches would conflict.
func upstreamCheck(ctx context.Context, s *set) error {
	newest, err := s.resolve(ctx, "latest")
	if err != nil {
		return err
	}
	if newest.Version == s.upstream.Version {
		fmt.Printf("%s (%s) is the newest release of upstream, and the one that is patched\n", newest.Tag, newest.Version)
		return nil
	}
	return withScratch(func(t tree) error {
		m, err := s.survey(ctx, newest, t)
		if err != nil {
			return err
		}
		fmt.Printf("%s (%s) is the newest release of upstream, %s (%s) is patched: %d of %d patches would conflict\n",
			newest.Tag, newest.Version, s.upstream.Tag, s.upstream.Version, m.conflicts, len(m.report))
		return nil
	})
}
