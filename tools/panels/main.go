// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command panels makes pictures of the dashboards: it writes the series of a cluster
// that does not exist, starts the patched Prometheus on them and the guard in front,
// asks what every panel asks, and has Grafana's own components draw the answers. It
// fails if a panel is refused, warned about or empty.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/promguard/promguard/tools/panels/sample"
)

type options struct {
	root, bin, work, out string
	reuse, check         bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "root of the repository")
	flag.StringVar(&o.bin, "bin", "bin", "directory with prometheus and promguard")
	flag.StringVar(&o.work, "work", "build/panels", "directory for data, packages and logs, below which all is made anew")
	flag.StringVar(&o.out, "out", "docs/pictures", "where the pictures go")
	flag.BoolVar(&o.reuse, "reuse", false, "take the data that an earlier call left")
	flag.BoolVar(&o.check, "check", false, "ask and check, but draw nothing: needs no Node.js")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "panels:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	var d drawer
	if !o.check {
		if d, err = newDrawer(o); err != nil {
			return err
		}
	}
	data := filepath.Join(o.work, "data")
	fmt.Println("making the series of a cluster ...")
	if err := writeData(ctx, data, filepath.Join(o.root, rules), sample.Large, o.reuse); err != nil {
		return err
	}
	s, err := startServers(ctx, o.bin, data, o.work, filepath.Join(o.root, policy))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	pages, err := askAll(ctx, s.guard, filepath.Join(o.root, dashboards))
	if err != nil {
		return err
	}
	if err := check(pages); err != nil {
		return err
	}
	fmt.Println(summary(pages))
	if o.check {
		return nil
	}
	guarded, err := askGuarded(ctx, s)
	if err != nil {
		return err
	}
	return d.draw(ctx, append(pages, guarded))
}

// rules are those that record what dashboards read.
const rules = "deploy/grafana/rules/promguard.yaml"

// writeData writes the series of a cluster into dir, and what the rules record of
// them. A directory that is there is complete.
func writeData(ctx context.Context, dir, rules string, size sample.Size, reuse bool) error {
	if _, err := os.Stat(dir); err == nil && reuse {
		return nil
	}
	unfinished := dir + ".unfinished"
	if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(unfinished), os.MkdirAll(unfinished, 0o755)); err != nil {
		return err
	}
	if err := sample.WriteBlock(ctx, unfinished, size); err != nil {
		return err
	}
	if err := sample.Record(ctx, unfinished, rules); err != nil {
		return err
	}
	return os.Rename(unfinished, dir)
}
