// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/proxy/topqueries"
	"github.com/promguard/promguard/internal/running"
)

type queriesFlags struct {
	address string
	stop    bool
	which   map[string]*string
}

func queriesCommand(app *kingpin.Application, stdout io.Writer) subcommand {
	c := app.Command("queries", "List the queries that run, or stop them.")
	f := queriesFlags{which: map[string]*string{}}
	c.Flag("web.telemetry-address", "Telemetry address of the promguard to ask.").Default("127.0.0.1:9092").StringVar(&f.address)
	for _, name := range running.Filters() {
		f.which[name] = c.Flag(name, "Only those with this "+name+".").String()
	}
	c.Flag("stop", "Stop them. It takes one of the flags that say which.").BoolVar(&f.stop)
	return subcommand{c, func() error { return f.run(stdout) }}
}

func (f *queriesFlags) run(w io.Writer) error {
	if err := checkTelemetryAddress(f.address); err != nil {
		return err
	}
	params, method := url.Values{}, http.MethodGet
	for name, value := range f.which {
		if *value != "" {
			params.Set(name, *value)
		}
	}
	if f.stop {
		method = http.MethodDelete
	}
	if f.stop && len(params) == 0 {
		return cli.Misuse(errors.New("--stop: say which, as with --id or --dashboard"))
	}
	var list []running.Query
	if err := askTelemetry(f.address, method, "queries", params, &list); err != nil {
		return fmt.Errorf("--web.telemetry-address %s: %w", f.address, err)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tFOR\tMEMORY\tWHO\tENDPOINT\tFINGERPRINT\tQUERY")
	for i := range list {
		q := &list[i]
		who := topqueries.Key{Tenant: q.Tenant, Dashboard: q.Dashboard, Panel: q.Panel, AlertRule: q.Alert}
		took := secondsText(time.Since(q.Begun).Seconds())
		if !q.Sent {
			took += " (waits)"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", q.ID, took, bytesText(q.Bytes), whoText(&who), q.Endpoint, fingerprintText(q.Fingerprint), lineText(q.Text, maxQueryText))
	}
	return t.Flush()
}
