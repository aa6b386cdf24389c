// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/promapi"
	"github.com/promguard/promguard/internal/running/remote"
)

type topFlags struct {
	placeFlags
	watchFlags

	window, by string
	limit      int
	output     *string
}

func topCommand(app *kingpin.Application, stdout, stderr io.Writer) subcommand {
	var f topFlags
	c := app.Command("top", "Show which queries cost the server most.")
	f.placeFlags.declare(c)
	f.watchFlags.declare(c)
	c.Flag("window", "How far back: 5m or 1h.").Default("5m").EnumVar(&f.window, "5m", "1h")
	c.Flag("by", "What to rank by: time at the server, or bytes of answers.").Default("time").EnumVar(&f.by, "time", "bytes")
	c.Flag("limit", "How many queries.").Default("20").IntVar(&f.limit)
	f.output = cli.Output(c)
	return subcommand{c, func() error {
		return f.show(stdout, stderr, *f.output, func(out io.Writer) error {
			return f.ask(func(ctx context.Context, s *promapi.Server) error { return f.write(ctx, s, out) })
		})
	}}
}

func (f *topFlags) write(ctx context.Context, s *promapi.Server, w io.Writer) error {
	report, err := remote.Top(ctx, s, f.window, f.by, f.limit)
	if err != nil {
		return err
	}
	if *f.output == cli.JSON {
		return cli.WriteJSON(w, report)
	}
	total := report.Total
	fmt.Fprintf(w, "since %s: %d requests, %s at the server, %s\n", report.From.Format(time.DateTime), total.Requests, secondsText(total.Seconds), bytesText(total.Bytes))
	if len(report.Queries) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nTIME\tSHARE\tREQUESTS\tFAILED\tLONGEST\tBYTES\tWHO\tENDPOINT\tFINGERPRINT\tQUERY")
	for i := range report.Queries {
		q := &report.Queries[i]
		share, of := q.Seconds, total.Seconds
		if f.by != "time" {
			share, of = float64(q.Bytes), float64(total.Bytes)
		}
		alert := q.AlertRule
		if q.Alert && alert == "" {
			alert = "?"
		}
		who := whoText("tenant", q.Tenant, "alert", alert, "dashboard", q.Dashboard, "panel", q.Panel, "user", q.User, "client", q.Client)
		fmt.Fprintf(t, "%s\t%.0f %%\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", secondsText(q.Seconds), 100*share/max(of, 1e-9), q.Requests, q.Failed,
			secondsText(q.Longest), bytesText(q.Bytes), who, q.Endpoint, fingerprintText(q.Fingerprint), lineText(q.Text, maxQueryText))
	}
	return t.Flush()
}

// whoText names who asked, by names and values of which some are empty, as closely as it
// is known.
func whoText(pairs ...string) string {
	var parts []string
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			parts = append(parts, pair[0]+"="+lineText(pair[1], maxNameText))
		}
	}
	return cmp.Or(strings.Join(parts, " "), "-")
}

// fingerprintText is that of the first selector of a request, and how many more there
// are.
func fingerprintText(s string) string {
	first, rest, more := strings.Cut(s, ",")
	if !more {
		return cmp.Or(s, "-")
	}
	return first + "+" + strconv.Itoa(1+strings.Count(rest, ","))
}

// How many characters a line of the table has of a query, and of a name.
const (
	maxQueryText = 120
	maxNameText  = 36 // That of a UUID.
)

// lineText keeps a text of others from moving the cursor and filling the screen.
func lineText(s string, most int) string {
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + "..."
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

func secondsText(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	default:
		d = d.Round(10 * time.Microsecond)
	}
	return d.String()
}

func bytesText(n int64) string {
	switch {
	case n >= 10<<20:
		return strconv.FormatInt(n>>20, 10) + " MiB"
	case n >= 10<<10:
		return strconv.FormatInt(n>>10, 10) + " KiB"
	}
	return strconv.FormatInt(n, 10) + " B"
}
