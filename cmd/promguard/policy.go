// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/policy/dryrun"
	"github.com/promguard/promguard/internal/proxy/config"
	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
)

type explainFlags struct {
	query, config    string
	upstream, http   string
	start, end, step string
	who              querylimit.Subject
	output           *string
}

func policyCommands(app *kingpin.Application, stdout, stderr io.Writer) []subcommand {
	var f explainFlags
	explain := app.Command("explain", "Say what each limit thinks of a query.")
	explain.Arg("query", "PromQL expression.").Required().StringVar(&f.query)
	explain.Flag("upstream.url", "Server before which the query would be asked: its series and its memory decide what it costs.").StringVar(&f.upstream)
	explain.Flag("upstream.http-config.file", "File with TLS and credentials for it, in the format of Prometheus's HTTP clients.").PlaceHolder("FILE").StringVar(&f.http)
	f.output = cli.Output(explain)
	explain.Flag("config.file", "Policy file; without it every limit has its default.").StringVar(&f.config)
	explain.Flag("start", "First moment of a range query: Unix time, RFC 3339, or a duration before now such as 6h.").StringVar(&f.start)
	explain.Flag("end", "Last moment, or that of an instant query; now by default.").StringVar(&f.end)
	explain.Flag("step", "Step of a range query, such as 15s.").Default("1m").StringVar(&f.step)
	explain.Flag("tenant", "Tenant who asks.").StringVar(&f.who.Tenant)
	explain.Flag("dashboard", "UID of the dashboard that asks.").StringVar(&f.who.Dashboard)
	explain.Flag("panel", "Panel that asks.").StringVar(&f.who.Panel)
	explain.Flag("user", "User who asks.").StringVar(&f.who.User)
	explain.Flag("user-agent", "User agent that asks.").StringVar(&f.who.UserAgent)
	explain.Flag("alert", "An alert rule asks.").BoolVar(&f.who.Alert)

	policy := app.Command("policy", "Try policies before they are used.")
	test := policy.Command("test", "Replay a query log of promguard or of Prometheus against a policy, and say who would be refused.")
	file := test.Flag("config.file", "Policy file.").Required().String()
	logs := test.Flag("query-log", "Query log; --query-log=- is standard input. May be repeated.").Required().Strings()
	output := cli.Output(test)
	return []subcommand{
		{explain, func() error { return f.run(stdout, time.Now()) }},
		{test, func() error { return testPolicy(*file, *logs, *output, stdout, stderr) }},
		suggestCommand(policy, stdout, stderr),
	}
}

// run prints the verdict on a query, as it would be given now.
func (f *explainFlags) run(w io.Writer, now time.Time) error {
	c, err := config.Load(f.config)
	if err != nil {
		return cli.Misuse(err)
	}
	req, err := f.request(now)
	if err != nil {
		return cli.Misuse(err)
	}
	if err := f.ask(req); err != nil {
		return err
	}
	e, err := c.Rules.Explain(querylimit.NewAnalyzer(1<<20), req, now)
	if err != nil {
		return cli.Misuse(err)
	}
	verdict, status := "passes", error(nil)
	if !e.Passes {
		verdict, status = "is refused", cli.Exit(1)
	}
	if *f.output == cli.JSON {
		return cmp.Or(cli.WriteJSON(w, e), status)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, fingerprint := range e.Fingerprints {
		fmt.Fprintf(w, "%s, fingerprint %s\n", e.Endpoint, fingerprint)
		fmt.Fprintln(t, "LIMIT\tMODE\tSEEN\tALLOWED\t")
		for _, finding := range e.Limits {
			mark := ""
			if finding.Exceeded {
				mark = "exceeded"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", finding.Limit, finding.Mode, finding.Seen, finding.Allowed, mark)
		}
	}
	_ = t.Flush() // Printing fails in no way that matters.
	for _, rule := range e.Rules {
		fmt.Fprintf(w, "rule %s matches\n", rule)
	}
	for _, refusal := range e.Refusals {
		fmt.Fprintf(w, "%s: %s\n", refusal.Mode, refusal)
	}
	if e.Bytes > 0 {
		fmt.Fprintf(w, "It is expected to take %.1f MiB of the server.\n", float64(e.Bytes)/(1<<20))
	}
	if e.Older {
		fmt.Fprintln(w, "It reads from before the head of the server: series that only blocks have are not counted.")
	}
	fmt.Fprintf(w, "The query %s; its deadline is %s.\n", verdict, e.Deadline)
	return status
}

// ask asks the server, if one is given, what it has.
func (f *explainFlags) ask(req *querylimit.Request) error {
	if f.upstream == "" {
		return nil
	}
	flags := upstreamFlags{urls: []string{f.upstream}, kind: string(upstream.KindPrometheus), probe: string(upstream.ProbeWarn), httpConfig: f.http}
	o, err := flags.parse()
	if err != nil {
		return err
	}
	o.Registerer, o.Logger = prometheus.NewRegistry(), promslog.NewNopLogger()
	p := upstream.NewPool(o)
	if err := p.Check(context.Background()); err != nil {
		return fmt.Errorf("--upstream.url: %w", err)
	}
	if req.Head = p.Head(); req.Head == nil {
		return fmt.Errorf("--upstream.url: %s does not tell its series: is it a Prometheus, and does it want credentials (--upstream.http-config.file)?", f.upstream)
	}
	assumed := p.Assumed()
	req.Lookback, req.SubqueryStep, req.UnknownPromQL = assumed.Lookback, assumed.SubqueryStep, assumed.UnknownPromQL
	return nil
}

func (f *explainFlags) request(now time.Time) (*querylimit.Request, error) {
	req := &querylimit.Request{Endpoint: querylimit.FindEndpoint("query"), Who: f.who, Texts: []string{f.query}, Given: true, Limit: -1}
	var err error
	if req.End, err = moment("--end", f.end, now); err != nil {
		return nil, err
	}
	req.Start = req.End
	if f.start == "" {
		return req, nil
	}
	req.Endpoint = querylimit.FindEndpoint("query_range")
	if req.Start, err = moment("--start", f.start, now); err != nil {
		return nil, err
	}
	step, err := model.ParseDuration(f.step)
	if err != nil || step == 0 {
		return nil, fmt.Errorf("--step: %q is not a duration: use one such as 15s", f.step)
	}
	if req.Step = time.Duration(step); req.End.Before(req.Start) {
		return nil, fmt.Errorf("--end %s is before --start %s", req.End, req.Start)
	}
	return req, nil
}

func moment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return now, nil
	}
	if d, err := model.ParseDuration(text); err == nil {
		return now.Add(-time.Duration(d)), nil
	}
	if s, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Unix(s, 0), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, fmt.Errorf("%s: %q is not a time: use Unix time, RFC 3339, or a duration before now such as 6h", flag, text)
	}
	return t, nil
}

// testedLog is the JSON of what a policy does with a log.
type testedLog struct {
	QueryLog string `json:"query_log"`
	*dryrun.Report
}

func testPolicy(policy string, logs []string, output string, stdout, stderr io.Writer) error {
	c, err := config.Load(policy)
	if err != nil {
		return err
	}
	var tested []testedLog
	for _, path := range logs {
		r, err := testLog(c.Rules, path, stderr)
		if r != nil && output == cli.Text {
			if len(logs) > 1 {
				fmt.Fprintf(stdout, "%s:\n", path)
			}
			r.Write(stdout)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		tested = append(tested, testedLog{path, r})
	}
	if output == cli.JSON {
		return cli.WriteJSON(stdout, tested)
	}
	return nil
}

// testLog returns what a policy does with a log. It may also be an error.
func testLog(rules *querylimit.Ruleset, path string, stderr io.Writer) (*dryrun.Report, error) {
	log := os.Stdin
	if path != "-" {
		var err error
		if log, err = os.Open(path); err != nil {
			return nil, err
		}
		defer log.Close()
	}
	progress := cli.NewProgress(stderr)
	defer progress.End()
	progress.Step("replaying %s", path)
	report, err := dryrun.Run(rules, readLog(log, progress))
	if err == nil && report.Judged == 0 { // A wrong file must not read as "nobody would be refused".
		err = errors.New("no request of it was judged: give the query log of promguard (query_log.file) or of Prometheus (global.query_log_file)")
	}
	return report, err
}

// readLog counts what is read of a log.
func readLog(log *os.File, progress *cli.Progress) io.Reader {
	info, err := log.Stat()
	if err != nil {
		return log
	}
	return progress.Reader(log, info.Size()) // 0 of a pipe.
}
