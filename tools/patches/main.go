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
	"path/filepath"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/tools/patches/patchset"
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
	root, dir, tree, source string
	discard, stock, race    bool
	build                   patchset.BuildOptions
	bumped                  bumpOptions
}

func run(ctx context.Context, args []string) error {
	var o options
	app := kingpin.New("patches", "Patches over a pinned Go module: apply, export, verify, test, build, bump.")
	app.Flag("root", "Root of the repository.").Default(".").StringVar(&o.root)
	app.Flag("dir", "Directory of the patch set. Relative to the root.").Default("prometheus-patches").StringVar(&o.dir)
	app.Flag("tree", "Patched tree. Relative to the root.").Default("build/prometheus").StringVar(&o.tree)
	app.Flag("source", "Upstream's unpacked source, which must not change afterwards. Empty: the module that go.mod pins.").StringVar(&o.source)

	apply := app.Command("apply", "Make the patched tree, or bring it up to date.")
	apply.Flag("discard", "Discard edits in the tree that were not exported.").BoolVar(&o.discard)
	app.Command("export", "Write the tree's commits and new files back into the patch set.")
	app.Command("verify", "Check every patch's message, and that apply and export give the same files.")
	test := app.Command("test", "Run the tests that the patches name, in the tree.")
	test.Flag("race", "Under the race detector, which needs a C compiler.").BoolVar(&o.race)
	build := app.Command("build", "Build the tree's binaries.")
	build.Flag("out", "Directory for the binaries. Relative to the root.").Default("bin").StringVar(&o.build.Out)
	build.Flag("tags", "Build tags.").Default("netgo").StringVar(&o.build.Tags)
	build.Flag("platform", "What to build for, such as linux/arm64. Empty: this machine.").StringVar(&o.build.Platform)
	build.Flag("strip", "Leave out the symbols that only debuggers read.").BoolVar(&o.build.Strip)
	build.Flag("stock", "Build upstream's binaries instead, without our changes, from a tree of their own beside this one.").BoolVar(&o.stock)
	bump := app.Command("bump", "Take the series to another version of upstream, or go on with it after conflicts. Choose a tree of its own.")
	bump.Arg("version", "Version of the Go module, such as v0.316.0.").Required().StringVar(&o.bumped.to)
	bump.Flag("check", "Report and test; write nothing but the tree.").BoolVar(&o.bumped.check)
	bump.Flag("no-test", "Do not build and test the result.").BoolVar(&o.bumped.noTest)
	bump.Flag("discard", "Discard a bump that was begun in the tree.").BoolVar(&o.discard)
	app.Command("upstream-check", "Say which release of upstream is the newest, and how many patches would conflict with it.")
	app.Command("version", "Print the version that builds are stamped with.")
	app.Command("ldflags", "Print the linker's flags that stamp this repository's own binaries.")

	command, err := app.Parse(args)
	if err != nil {
		return err
	}
	return o.run(ctx, command)
}

func (o options) run(ctx context.Context, command string) error {
	set, err := patchset.Load(o.root, o.path(o.dir))
	if err != nil {
		return err
	}
	tree := patchset.Tree{Dir: o.path(o.tree)}
	switch command {
	case "apply":
		return o.apply(ctx, set, tree)
	case "export":
		return o.export(ctx, set, tree)
	case "verify":
		source, err := o.sourceOf(ctx, set)
		if err != nil {
			return err
		}
		if err := set.Verify(ctx, source); err != nil {
			return err
		}
		fmt.Printf("%d patches apply to %s %s and export to the same files\n", len(set.Patches), set.Upstream.Module, set.Upstream.Version)
		return nil
	case "test":
		return set.Test(ctx, tree, o.race, os.Stdout)
	case "bump":
		return o.bump(ctx, set, tree)
	case "ldflags":
		fmt.Println(set.LinkerFlags(ctx))
		return nil
	case "upstream-check":
		return o.upstreamCheck(ctx, set)
	case "build":
		return o.compile(ctx, set, tree)
	default:
		fmt.Println(set.Upstream.ProductVersion())
		return nil
	}
}

// path resolves a flag's path against the root.
func (o options) path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(o.root, p)
}

func (o options) sourceOf(ctx context.Context, set *patchset.Set) (string, error) {
	if o.source != "" {
		return filepath.Abs(o.source)
	}
	return set.Source(ctx)
}

func (o options) apply(ctx context.Context, set *patchset.Set, tree patchset.Tree) error {
	source, err := o.sourceOf(ctx, set)
	if err != nil {
		return err
	}
	applied, err := set.Apply(ctx, source, tree, o.discard)
	if err != nil {
		return err
	}
	if applied {
		fmt.Printf("%s: %s with %d patches\n", o.tree, set.Upstream.Tag, len(set.Patches))
	}
	return nil
}

// export writes the tree back and makes it anew from what was written, so that
// the next apply finds no work in it that is in no patch.
func (o options) export(ctx context.Context, set *patchset.Set, tree patchset.Tree) error {
	written, err := set.Export(ctx, tree)
	for _, path := range written {
		fmt.Println("exported", path)
	}
	if err != nil {
		return err
	}
	set, err = patchset.Load(set.Root, set.Dir)
	if err != nil {
		return err
	}
	o.discard = true
	return o.apply(ctx, set, tree)
}

func (o options) compile(ctx context.Context, set *patchset.Set, tree patchset.Tree) error {
	out := o.build.Out
	o.build.Out = o.path(out)
	version, build := set.Upstream.ProductVersion(), func() error {
		return set.Build(ctx, tree, o.build, os.Stdout)
	}
	if o.stock {
		source, err := o.sourceOf(ctx, set)
		if err != nil {
			return err
		}
		version, build = set.Upstream.StockVersion(), func() error {
			return set.BuildStock(ctx, source, patchset.Tree{Dir: tree.Dir + "-stock"}, o.build, os.Stdout)
		}
	}
	fmt.Printf("building %s %s into %s (the first build takes some minutes, later ones seconds)\n", set.Upstream.Module, version, out)
	start := time.Now()
	if err := build(); err != nil {
		return fmt.Errorf("building %s: %w", version, err)
	}
	fmt.Printf("built in %s\n", time.Since(start).Round(time.Second))
	return nil
}
