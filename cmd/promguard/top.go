// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/proxy/topqueries"
)

const topQueriesHelp = "How many queries to keep of each minute and of each ten minutes, for /api/v1/promguard/top on the telemetry address; 0 means none."

// newTop returns nil for size 0.
func newTop(size int) (*topqueries.Tracker, error) {
	switch {
	case size < 0 || size > topqueries.MaxSize:
		return nil, fmt.Errorf("--top-queries.size is %d: use 0 to %d", size, topqueries.MaxSize)
	case size == 0:
		return nil, nil
	}
	return topqueries.New(size), nil
}

type topFlags struct {
	address, window, by string
	limit               int
}

func topCommand(app *kingpin.Application, stdout io.Writer) subcommand {
	var f topFlags
	c := app.Command("top", "Show which queries cost the server most.")
	c.Flag("web.telemetry-address", "Telemetry address of the promguard to ask.").Default("127.0.0.1:9092").StringVar(&f.address)
	c.Flag("window", "How far back: 5m or 1h.").Default("5m").StringVar(&f.window)
	c.Flag("by", "What to rank by: time at the server, or bytes of answers.").Default("time").StringVar(&f.by)
	c.Flag("limit", "How many queries.").Default("20").IntVar(&f.limit)
	return subcommand{c, func() error { return f.run(stdout) }}
}

func (f *topFlags) run(w io.Writer) error {
	if err := checkTelemetryAddress(f.address); err != nil {
		return err
	}
	report, err := f.ask()
	if err != nil {
		return fmt.Errorf("--web.telemetry-address %s: %w", f.address, err)
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
		fmt.Fprintf(t, "%s\t%.0f %%\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", secondsText(q.Seconds), 100*share/max(of, 1e-9), q.Requests, q.Failed,
			secondsText(q.Longest), bytesText(q.Bytes), whoText(&q.Key), q.Endpoint, fingerprintText(q.Fingerprint), lineText(q.Text, maxQueryText))
	}
	return t.Flush()
}

func checkTelemetryAddress(address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return cli.Misuse(fmt.Errorf("--web.telemetry-address %s: use one such as 127.0.0.1:9092", address))
	}
	return nil
}

func (f *topFlags) ask() (report *topqueries.Report, err error) {
	err = askTelemetry(f.address, http.MethodGet, "top", url.Values{"window": {f.window}, "by": {f.by}, "limit": {strconv.Itoa(f.limit)}}, &report)
	return report, err
}

// askTelemetry asks a promguard for something of its own, and decodes the data.
func askTelemetry(address, method, path string, params url.Values, data any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+"/api/v1/promguard/"+path+"?"+params.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Status == "" {
		return fmt.Errorf("the answer (%s) is not that of promguard: use its --web.telemetry-address", res.Status)
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return nil
}

// whoText names who asked, as closely as it is known.
func whoText(k *topqueries.Key) string {
	var parts []string
	for _, part := range []struct{ name, value string }{
		{"tenant", k.Tenant}, {"alert", k.AlertRule}, {"dashboard", k.Dashboard}, {"panel", k.Panel},
	} {
		if part.value != "" {
			parts = append(parts, part.name+"="+lineText(part.value, maxNameText))
		}
	}
	if k.Alert && k.AlertRule == "" {
		parts = append(parts, "alert")
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
