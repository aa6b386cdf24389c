// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command walreplay makes and records write-ahead logs, measures how fast
// Prometheus binaries replay them, and proves that they replay the same.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted; what it had written was removed")
	}
	os.Exit(cli.Code(os.Stderr, "walreplay", err))
}

// command runs one command after its flags are parsed. Results go to stdout,
// all else to stderr.
type command func(ctx context.Context, stdout, stderr io.Writer) error

// execute runs one command.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	app := cli.New("walreplay", "Make and record write-ahead logs, measure how fast Prometheus binaries replay them, and prove that they replay the same.", stdout, stderr)
	commands := map[string]command{}
	for _, add := range []func(*kingpin.Application) (*kingpin.CmdClause, command){
		addGenerate, addRecord, addRun, addFloor, addVerify,
	} {
		clause, run := add(app)
		commands[clause.FullCommand()] = run
	}
	name, err := cli.Parse(app, args)
	if err != nil {
		return err
	}
	return commands[name](ctx, stdout, stderr)
}
