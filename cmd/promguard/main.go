// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command promguard is a reverse proxy that keeps expensive reads away from a
// Prometheus server. This package holds flags and wiring, no decisions.
package main

import (
	"errors"
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

// execute is main without the process: it returns the exit code. Each thing that
// goes wrong is told in one line without usage or stack.
func execute(args []string, stdout, stderr io.Writer) int {
	app := kingpin.New("promguard", "Keeps expensive reads away from a Prometheus server.")
	app.HelpFlag.Short('h')
	app.Version(version.Print("promguard"))
	app.UsageWriter(stdout)
	app.ErrorWriter(stderr)

	logConfig := &promslog.Config{Writer: stderr}
	promslogflag.AddFlags(app, logConfig)

	commands := []subcommand{serveCommand(app, logConfig), startupProbeCommand(app, logConfig)}
	commands = append(commands, checkCommands(app, stdout)...)
	commands = append(commands, policyCommands(app, stdout, stderr)...)
	commands = append(commands, topCommand(app, stdout))
	commands = append(commands, rulesCommands(app, stdout, stderr)...)

	name, err := app.Parse(args)
	if err != nil {
		return usageCode(args, fail(stderr, fmt.Errorf("%w (see promguard --help)", err)))
	}
	for _, c := range commands {
		if c.clause.FullCommand() == name {
			if err := c.run(); err != nil {
				return exitCode(stderr, err)
			}
			return 0
		}
	}
	return fail(stderr, fmt.Errorf("command %q has no implementation", name))
}

// problems are independent errors, each of which is told in a line of its own.
type problems []error

func (p problems) Error() string { return errors.Join(p...).Error() }

func fail(w io.Writer, err error) int {
	all := problems{err}
	errors.As(err, &all)
	for _, err := range all {
		fmt.Fprintln(w, "promguard: "+oneLine(err.Error()))
	}
	return 1
}

// oneLine joins the lines of an error, of which that of a YAML parser has many.
func oneLine(text string) string {
	var lines []string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}
