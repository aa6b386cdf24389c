// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/promapi"
	"github.com/promguard/promguard/internal/running"
	"github.com/promguard/promguard/internal/running/remote"
)

// queriesFlags are the flags of queries and of kill.
type queriesFlags struct {
	placeFlags

	filters map[string]*string
	output  *string
}

// declare declares flags that say where, which by some of running.Filters, and how.
func (f *queriesFlags) declare(c *kingpin.CmdClause, filters ...string) {
	f.placeFlags.declare(c)
	f.filters = map[string]*string{}
	for _, name := range filters {
		f.filters[name] = c.Flag(name, "Only those with this "+name+".").String()
	}
	f.output = cli.Output(c)
}

func (f *queriesFlags) chosen() remote.Filters {
	chosen := remote.Filters{}
	for name, value := range f.filters {
		if *value != "" {
			chosen[name] = *value
		}
	}
	return chosen
}

func queriesCommand(app *kingpin.Application, stdout, stderr io.Writer) subcommand {
	c := app.Command("queries", "List the queries that run, those that hold or will take most memory first, and who asked.")
	var f queriesFlags
	var w watchFlags
	f.declare(c, running.Filters()...)
	w.declare(c)
	return subcommand{c, func() error {
		return w.show(stdout, stderr, *f.output, func(out io.Writer) error {
			return f.ask(func(ctx context.Context, s *promapi.Server) error {
				list, err := remote.List(ctx, s, f.chosen())
				if err != nil {
					return err
				}
				return writeQueries(out, *f.output, list)
			})
		})
	}}
}

func killCommand(app *kingpin.Application, stdout io.Writer) subcommand {
	c := app.Command("kill", "End queries that run, and list those that were ended. A patched Prometheus needs --web.enable-lifecycle.")
	var f queriesFlags
	f.declare(c, slices.DeleteFunc(running.Filters(), func(name string) bool { return name == "id" })...) // They are arguments.
	ids := c.Arg("ids", "Those with these ids, as promguard queries lists them.").Strings()
	return subcommand{c, func() error {
		if len(*ids) == 0 && len(f.chosen()) == 0 {
			return cli.Misuse(errors.New("say which: give ids, or a flag such as --dashboard"))
		}
		return f.ask(func(ctx context.Context, s *promapi.Server) error {
			ended, err := remote.End(ctx, s, *ids, f.chosen())
			if len(ended) > 0 || err == nil {
				err = errors.Join(writeQueries(stdout, *f.output, ended), err)
			}
			return err
		})
	}}
}

func writeQueries(w io.Writer, output string, list []running.Query) error {
	if output == cli.JSON {
		return cli.WriteJSON(w, list)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tFOR\tMEMORY\tWHO\tENDPOINT\tFINGERPRINT\tQUERY")
	for i := range list {
		q := &list[i]
		took := secondsText(time.Since(q.Begun).Seconds())
		if !q.Sent {
			took += " (waits)"
		}
		held := bytesText(q.Bytes)
		if q.Allowed > 0 {
			held += " of " + bytesText(q.Allowed)
		}
		who := whoText("tenant", q.Tenant, "alert", q.Alert, "dashboard", q.Dashboard, "panel", q.Panel, "user", q.User, "client", q.Client)
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", q.ID, took, held, who, q.Endpoint, fingerprintText(q.Fingerprint), lineText(q.Text, maxQueryText))
	}
	return t.Flush()
}
