// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli is what the command lines of all programs here have in common: --help
// and --version, errors in one line, and exit codes.
package cli

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/version"

	"github.com/promguard/promguard/internal/didyoumean"
)

const exitCodes = `
Exit codes: 0 if all went well, 1 if it failed or the answer is no, 2 if the
command line is wrong or there is no answer. Errors are one line each.
`

// New returns an application without commands.
func New(name, help string, stdout, stderr io.Writer) *kingpin.Application {
	app := kingpin.New(name, help)
	app.HelpFlag.Short('h')
	app.Version(version.Print(name))
	app.UsageWriter(stdout)
	app.ErrorWriter(stderr)
	app.UsageTemplate(kingpin.DefaultUsageTemplate + exitCodes)
	return app
}

// Parse returns the command that the arguments name. Of a mistyped word the error says
// which was meant.
func Parse(app *kingpin.Application, args []string) (command string, err error) {
	if command, err = app.Parse(args); err == nil {
		return command, nil
	}
	path, known := reached(app.Model(), args)
	return "", Misuse(fmt.Errorf("%w%s (see %s --help)", err, hint(err, known), path))
}

// reached returns the program and the commands that the arguments name, and all flags
// and commands that could come next.
func reached(app *kingpin.ApplicationModel, args []string) (path string, known []string) {
	path = app.Name
	group := app.CmdGroupModel
	flags := app.Flags
	for _, arg := range args {
		for _, c := range group.Commands {
			if c.Name == arg {
				path, group = path+" "+arg, c.CmdGroupModel
				flags = append(slices.Clip(flags), c.Flags...)
				break
			}
		}
	}
	for _, f := range flags {
		if !f.Hidden {
			known = append(known, "--"+f.Name)
		}
	}
	for _, c := range group.Commands {
		known = append(known, c.Name)
	}
	return path, known
}

// unknown finds the word that the parser does not know.
var unknown = regexp.MustCompile(`^(?:unknown long flag '([^']*)'|expected command but got "([^"]*)")`)

func hint(err error, known []string) string {
	m := unknown.FindStringSubmatch(err.Error())
	if m == nil {
		return ""
	}
	return didyoumean.Hint(m[1]+m[2], known)
}

// Exit ends the process with a code after everything has been said.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Misuse marks an error of the command line, or one for which a command that answers
// yes or no has no answer.
func Misuse(err error) error {
	if err == nil {
		return nil
	}
	return misuse{err}
}

type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

// Tail is an error of a process that was started, with the last lines of its log,
// which are told below the one of the error.
type Tail struct {
	Err error
	Log string
}

// NewTail returns err with the last lines of the process's log, one below the other.
func NewTail(err error, log string) error {
	return Tail{err, "  " + strings.ReplaceAll(strings.TrimSpace(log), "\n", "\n  ") + "\n"}
}

func (t Tail) Error() string { return t.Err.Error() + "; its last log lines:\n" + t.Log }

// Unwrap returns the error of the process.
func (t Tail) Unwrap() error { return t.Err }

// Problems are independent errors, each of which is told in a line of its own.
type Problems []error

func (p Problems) Error() string { return errors.Join(p...).Error() }

// Unwrap lets errors.Is and errors.As look at each.
func (p Problems) Unwrap() []error { return p }

// Code tells an error and returns the code to exit with.
func Code(stderr io.Writer, program string, err error) int {
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[Exit](err); ok {
		return int(code)
	}
	all := Problems{err}
	errors.As(err, &all)
	for _, err := range all {
		text := err.Error()
		var log Tail
		if errors.As(err, &log) {
			text = strings.TrimSuffix(text, log.Log)
		}
		fmt.Fprintln(stderr, program+": "+OneLine(text))
		fmt.Fprint(stderr, log.Log)
	}
	if _, ok := errors.AsType[misuse](err); ok {
		return 2
	}
	return 1
}

// OneLine joins the lines of an error, of which that of a YAML parser has many.
func OneLine(text string) string {
	var lines []string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}
