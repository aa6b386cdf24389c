// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command proxy measures what proxies in front of Prometheus cost, in processor time
// per request first, beside a bare httputil.ReverseProxy. Each runs as a process of its
// own, as an operator would start it, in front of one server that always gives the same
// small answer. They are measured in turn, and every round is a line in the benchmark
// format of Go, so that benchstat takes the medians.
//
// The requests are small query_range POSTs over keep-alive connections, with another
// time range each, as a dashboard sends them: all with the same query, and each with one
// that was never seen. Processor time and throughput are those of a closed loop; latency
// is taken at a fixed rate, half of what the slowest proxy reached.
package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/proc"
)

func main() {
	os.Exit(cli.Code(os.Stderr, "proxy", execute(os.Args[1:], os.Stdout)))
}

type options struct {
	count, clients, requests int
	proxies                  []string
}

func execute(args []string, stdout io.Writer) error {
	var o options
	app := cli.New("proxy", "Measures what proxies in front of Prometheus cost.", stdout, os.Stderr)
	run := app.Command("run", "Measure.")
	run.Flag("count", "Rounds.").Default("6").IntVar(&o.count)
	run.Flag("clients", "Connections.").Default("8").IntVar(&o.clients)
	run.Flag("requests", "Requests of each measurement.").Default("10000").IntVar(&o.requests)
	run.Flag("proxy", "Proxy to measure; repeat it to compare. {listen} stands for the address to serve on, and {upstream} for that of the server. No argument may contain spaces.").PlaceHolder("NAME=PATH [ARG...]").StringsVar(&o.proxies)
	serve := app.Command("serve", "Be the server, or with --upstream a bare proxy before it.").Hidden()
	listen := serve.Flag("listen", "Address.").Required().String()
	upstream := serve.Flag("upstream", "Address of the server.").URL()
	command, err := cli.Parse(app, args)
	if err != nil {
		return err
	}
	if command == serve.FullCommand() {
		return http.ListenAndServe(*listen, newHandler(*upstream))
	}
	if o.count < 1 || o.clients < 1 || o.requests < 1 {
		return cli.Misuse(errors.New("--count, --clients and --requests must be 1 or more"))
	}
	return measure(o, stdout)
}

func measure(o options, stdout io.Writer) error {
	targets, stop, err := startTargets(o.proxies)
	defer stop()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "goos: %s\ngoarch: %s\npkg: github.com/promguard/promguard/bench/proxy\n", runtime.GOOS, runtime.GOARCH)
	for i := range o.count + 1 {
		for _, queries := range []string{"same", "unique"} {
			to := stdout
			if i == 0 { // Connections, caches, and the first garbage collections.
				to = io.Discard
			}
			if err := round(o, targets, queries, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// result is what a round says of a target.
type result struct {
	took, cpu time.Duration
	p50, p99  time.Duration
}

// round measures every target once: first what it takes and how fast it is, then how
// long requests take at the same rate for all.
func round(o options, targets []*target, queries string, stdout io.Writer) error {
	results := make([]result, len(targets))
	slowest := time.Duration(0)
	for i, t := range targets {
		r, err := closedLoop(t, queries, o)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		results[i], slowest = r, max(slowest, r.took)
	}
	for i, t := range targets {
		r := &results[i]
		if err := atRate(t, queries, o, 2*slowest/time.Duration(o.requests), r); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		n := float64(o.requests)
		fmt.Fprintf(stdout, "BenchmarkQueryRange/queries=%s/proxy=%s %d %.0f cpu-ns/op %.0f ns/op %.0f req/s %d p50-ns %d p99-ns\n",
			queries, t.name, o.requests, float64(r.cpu.Nanoseconds())/n, float64(r.took.Nanoseconds())/n, n/r.took.Seconds(), r.p50.Nanoseconds(), r.p99.Nanoseconds())
	}
	return nil
}

// closedLoop sends requests as fast as they are answered.
func closedLoop(t *target, queries string, o options) (result, error) {
	before, err := proc.CPUTime(t.pid)
	if err != nil {
		return result{}, err
	}
	var sent atomic.Int64
	start := time.Now()
	err = inParallel(o.clients, func(int) error {
		for sent.Add(1) <= int64(o.requests) {
			if err := t.send(queries); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return result{}, err
	}
	took := time.Since(start)
	after, err := proc.CPUTime(t.pid)
	return result{took: took, cpu: after - before}, err
}

// atRate sends requests at a fixed rate and measures how long each takes. A fifth of
// them is enough.
func atRate(t *target, queries string, o options, every time.Duration, r *result) error {
	all := make([]time.Duration, 1+o.requests/5)
	start := time.Now()
	err := inParallel(o.clients, func(client int) error {
		for i := client; i < len(all); i += o.clients {
			time.Sleep(time.Until(start.Add(time.Duration(i) * every)))
			sent := time.Now()
			if err := t.send(queries); err != nil {
				return err
			}
			all[i] = time.Since(sent)
		}
		return nil
	})
	slices.Sort(all)
	r.p50, r.p99 = all[len(all)/2], all[len(all)*99/100]
	return err
}

func inParallel(n int, do func(i int) error) error {
	var all errgroup.Group
	for i := range n {
		all.Go(func() error { return do(i) })
	}
	return all.Wait()
}

var serial atomic.Int64

// send sends one request, with times that no other has, and, of unique queries, a text
// that no other has.
func (t *target) send(queries string) error {
	n := serial.Add(1)
	unique := int64(0)
	if queries == "unique" {
		unique = n
	}
	start := 1_700_000_000 + n
	form := fmt.Sprintf("query=sum+by+%%28job%%29+%%28rate%%28http_requests_total%%7Bjob%%3D%%22api%%22%%2Ccode%%3D~%%225..%%22%%2Cpod%%3D%%22api-%09d%%22%%7D%%5B5m%%5D%%29%%29&start=%d&end=%d&step=15", unique, start, start+3600)
	res, err := t.client.Post(t.url+"/api/v1/query_range", "application/x-www-form-urlencoded", strings.NewReader(form))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	read, err := io.Copy(io.Discard, res.Body)
	if err == nil && (res.StatusCode != http.StatusOK || read != int64(len(answer))) {
		err = fmt.Errorf("answered %s with %d bytes", res.Status, read)
	}
	return err
}
