// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command promguard is a reverse proxy that keeps expensive reads away from a
// Prometheus server. This package holds flags and wiring, no decisions.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	promslogflag "github.com/prometheus/common/promslog/flag"
	"github.com/prometheus/common/version"
)

// subcommand pairs a command of the command line with what it does.
type subcommand struct {
	clause *kingpin.CmdClause
	run    func() error
}

func main() {
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute is main without the process: it returns the exit code. Whatever goes wrong
// is told in one line without usage or stack.
func execute(args []string, stdout, stderr io.Writer) int {
	app := kingpin.New("promguard", "Keeps expensive reads away from a Prometheus server.")
	app.HelpFlag.Short('h')
	app.Version(version.Print("promguard"))
	app.UsageWriter(stdout)
	app.ErrorWriter(stderr)

	logConfig := &promslog.Config{Writer: stderr}
	promslogflag.AddFlags(app, logConfig)

	commands := []subcommand{serveCommand(app, logConfig)}
	commands = append(commands, checkCommands(app, stdout)...)
	commands = append(commands, rulesCommands(app, stdout)...)

	name, err := app.Parse(args)
	if err != nil {
		return fail(stderr, fmt.Errorf("%w (see promguard --help)", err))
	}
	for _, c := range commands {
		if c.clause.FullCommand() == name {
			if err := c.run(); err != nil {
				return fail(stderr, err)
			}
			return 0
		}
	}
	return fail(stderr, fmt.Errorf("command %q has no implementation", name))
}

func fail(w io.Writer, err error) int {
	fmt.Fprintln(w, "promguard: "+strings.TrimSpace(err.Error()))
	return 1
}
