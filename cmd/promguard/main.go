// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command promguard is a reverse proxy that keeps expensive reads away from a
// Prometheus server. This package holds flags and wiring, no decisions.
package main

import (
	"io"
	"os"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	promslogflag "github.com/prometheus/common/promslog/flag"

	"github.com/promguard/promguard/bench/rehearse"
	"github.com/promguard/promguard/internal/cli"
)

// subcommand pairs a command of the command line with what it does.
type subcommand struct {
	clause *kingpin.CmdClause
	run    func() error
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == rehearse.ClientsWord { // A rehearsal starts it as the clients of a storm.
		os.Exit(cli.Code(os.Stderr, "promguard", rehearse.RunClients(os.Stdin, os.Stdout)))
	}
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute is main without the process: it returns the exit code. Each thing that
// goes wrong is told in one line without usage or stack.
func execute(args []string, stdout, stderr io.Writer) int {
	app := cli.New("promguard", "Keeps expensive reads away from a Prometheus server.", stdout, stderr)
	logConfig := &promslog.Config{Writer: stderr}
	promslogflag.AddFlags(app, logConfig)

	commands := []subcommand{serveCommand(app, logConfig), startupProbeCommand(app, logConfig)}
	commands = append(commands, checkCommands(app, stdout)...)
	commands = append(commands, policyCommands(app, stdout, stderr)...)
	commands = append(commands, topCommand(app, stdout, stderr), queriesCommand(app, stdout, stderr), killCommand(app, stdout), sizeCommand(app, stdout, stderr), rehearseCommand(app, stdout, stderr))
	commands = append(commands, rulesCommands(app, stdout, stderr)...)

	name, err := cli.Parse(app, args)
	for _, c := range commands {
		if err == nil && c.clause.FullCommand() == name {
			err = c.run()
			break
		}
	}
	return cli.Code(stderr, "promguard", err)
}
