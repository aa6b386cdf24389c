// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/promguard/promguard/tools/patches/patchset"
)

// bumpOptions are the flags of bump.
type bumpOptions struct {
	to            string
	check, noTest bool
}

// bump takes the series to another version of upstream, or goes on with it. The
// repository is written to at the end, when every patch applies and its tests
// pass.
func (o options) bump(ctx context.Context, set *patchset.Set, tree patchset.Tree) error {
	to, err := set.Resolve(ctx, o.bumped.to)
	if err != nil {
		return err
	}
	if to.Version == set.Upstream.Version {
		if err := set.ClearBump(tree); err != nil {
			return err
		}
		fmt.Printf("the patches are over %s %s already\n", to.Module, to.Version)
		return nil
	}
	if tree.Bumping() != to.Version || o.discard {
		if err := o.startBump(ctx, set, to, tree); err != nil {
			return err
		}
	}
	if err := set.CheckBump(ctx, tree); err != nil {
		return err
	}
	if !o.bumped.noTest {
		if err := set.TestBump(ctx, tree, os.Stdout); err != nil {
			return fmt.Errorf("%w\ncorrect it in %s (git commit --fixup=SHA && git rebase -i --autosquash promguard-newfiles), then run the same again", err, o.tree)
		}
	}
	if o.bumped.check {
		fmt.Printf("%s is %s %s with the patches; nothing else was written\n", o.tree, to.Module, to.Version)
		return nil
	}
	written, err := set.FinishBump(ctx, tree, to)
	for _, path := range written {
		fmt.Println("wrote", path)
	}
	if err != nil {
		return err
	}
	fmt.Printf("the patches are over %s now; what else to change is in docs/upgrading.md\n", to.Version)
	return nil
}

func (o options) startBump(ctx context.Context, set *patchset.Set, to patchset.Target, tree patchset.Tree) error {
	source, err := o.sourceOf(ctx, set)
	if err != nil {
		return err
	}
	fmt.Printf("%s %s to %s (%s, Go %s) in %s\n", to.Module, set.Upstream.Version, to.Version, to.Tag, to.Go, o.tree)
	report, err := set.StartBump(ctx, source, to, tree, o.discard)
	for _, moved := range report {
		fmt.Println(moved)
	}
	if n := conflicts(report); n > 0 {
		fmt.Printf("%d of %d patches conflict\n", n, len(report))
	}
	return err
}

// upstreamCheck says in one line which release of upstream is the newest, which
// one is patched, and how many patches would conflict. Nothing but a temporary
// tree is written.
func (o options) upstreamCheck(ctx context.Context, set *patchset.Set) error {
	newest, err := set.Resolve(ctx, "latest")
	if err != nil {
		return err
	}
	if newest.Version == set.Upstream.Version {
		fmt.Printf("%s (%s) is the newest release of upstream, and the one that is patched\n", newest.Tag, newest.Version)
		return nil
	}
	dir, err := os.MkdirTemp("", "promguard-upstream-check")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	source, err := o.sourceOf(ctx, set)
	if err != nil {
		return err
	}
	report, err := set.StartBump(ctx, source, newest, patchset.Tree{Dir: filepath.Join(dir, "tree")}, false)
	if err != nil {
		return err
	}
	fmt.Printf("%s (%s) is the newest release of upstream, %s (%s) is patched: %d of %d patches would conflict\n",
		newest.Tag, newest.Version, set.Upstream.Tag, set.Upstream.Version, conflicts(report), len(report))
	return nil
}

func conflicts(report []patchset.Moved) int {
	n := 0
	for _, moved := range report {
		if len(moved.Conflicts) > 0 {
			n++
		}
	}
	return n
}
