// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command proxy measures what a proxy in front of Prometheus costs: promguard
// with every limit on, a bare httputil.ReverseProxy, and prom-label-proxy if it
// is given. Each runs as a process of its own, in front of one server that always
// gives the same small answer. The targets are measured in turn, and every round
// is a line in the benchmark format of Go, so that benchstat takes the medians.
//
// The requests are small query_range POSTs over keep-alive connections, with the
// same query and another time range each, as a dashboard sends them. Throughput
// is that of a closed loop; latency is taken at a fixed rate, half of what the
// slowest target reached.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/promguard/promguard/internal/cli"
)

func main() {
	os.Exit(cli.Code(os.Stderr, "proxy", execute(os.Args[1:], os.Stdout)))
}

type options struct {
	count, clients int
	duration       time.Duration
	labelProxy     string
	kind, upstream string
}

func execute(args []string, stdout io.Writer) error {
	var o options
	app := cli.New("proxy", "Measures what a proxy in front of Prometheus costs.", stdout, os.Stderr)
	run := app.Command("run", "Measure.")
	run.Flag("count", "Rounds.").Default("6").IntVar(&o.count)
	run.Flag("clients", "Connections.").Default("8").IntVar(&o.clients)
	run.Flag("duration", "Length of each measurement.").Default("1s").DurationVar(&o.duration)
	run.Flag("prom-label-proxy", "Binary to compare with.").StringVar(&o.labelProxy)
	serve := app.Command("serve", "Be a target, until standard input ends.").Hidden()
	serve.Flag("kind", "server, bare or promguard.").Required().EnumVar(&o.kind, "server", "bare", "promguard")
	serve.Flag("upstream.url", "URL of the upstream server.").StringVar(&o.upstream)
	command, err := cli.Parse(app, args)
	if err != nil {
		return err
	}
	if command == serve.FullCommand() {
		return serveTarget(o.kind, o.upstream)
	}
	return measure(o, stdout)
}

func measure(o options, stdout io.Writer) error {
	targets, stop, err := startTargets(o.labelProxy)
	if err != nil {
		return err
	}
	defer stop()
	for _, t := range targets { // Connections, caches, and the first garbage collections.
		if _, err := closedLoop(t, o.clients, o.duration/2); err != nil {
			return err
		}
	}
	writeHeader(stdout)
	for range o.count {
		if err := round(o, targets, stdout); err != nil {
			return err
		}
	}
	return nil
}

func writeHeader(w io.Writer) {
	fmt.Fprintf(w, "goos: %s\ngoarch: %s\npkg: github.com/promguard/promguard/bench/proxy\n", goos, goarch)
}

// result is what a round says of a target.
type result struct {
	requests int
	took     time.Duration
	mallocs  uint64
	bytes    uint64
	cpu      time.Duration
	p50, p99 time.Duration
}

// round measures every target once: first how fast it is, then how long requests
// take at the same rate for all.
func round(o options, targets []*target, stdout io.Writer) error {
	results := make([]result, len(targets))
	slowest := 0.0
	for i, t := range targets {
		r, err := closedLoop(t, o.clients, o.duration)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if rate := float64(r.requests) / r.took.Seconds(); slowest == 0 || rate < slowest {
			slowest = rate
		}
		results[i] = r
	}
	for i, t := range targets {
		if err := atRate(t, o.clients, slowest/2, o.duration, &results[i]); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		writeLine(stdout, t, &results[i])
	}
	return nil
}

func writeLine(w io.Writer, t *target, r *result) {
	n := float64(r.requests)
	fmt.Fprintf(w, "BenchmarkQueryRange/proxy=%s %d %.0f ns/op %.0f req/s %d p50-ns %d p99-ns",
		t.name, r.requests, float64(r.took.Nanoseconds())/n, n/r.took.Seconds(), r.p50.Nanoseconds(), r.p99.Nanoseconds())
	if r.mallocs > 0 {
		fmt.Fprintf(w, " %.0f B/op %.1f allocs/op %.0f cpu-ns/op", float64(r.bytes)/n, float64(r.mallocs)/n, float64(r.cpu.Nanoseconds())/n)
	}
	fmt.Fprintln(w)
}

// closedLoop sends as many requests as it can.
func closedLoop(t *target, clients int, length time.Duration) (result, error) {
	before, err := t.usage()
	if err != nil {
		return result{}, err
	}
	var sent atomic.Int64
	start := time.Now()
	err = inParallel(clients, func(int) error {
		for time.Since(start) < length {
			if err := t.send(); err != nil {
				return err
			}
			sent.Add(1)
		}
		return nil
	})
	if err != nil {
		return result{}, err
	}
	r := result{requests: int(sent.Load()), took: time.Since(start)}
	after, err := t.usage()
	r.mallocs, r.bytes, r.cpu = after.Mallocs-before.Mallocs, after.Bytes-before.Bytes, after.CPU-before.CPU
	return r, err
}

// atRate sends requests at a fixed rate and measures how long each takes.
func atRate(t *target, clients int, rate float64, length time.Duration, r *result) error {
	every := time.Duration(float64(clients) / rate * float64(time.Second))
	var (
		mu  sync.Mutex
		all []time.Duration
	)
	start := time.Now()
	err := inParallel(clients, func(i int) error {
		var own []time.Duration
		next := start.Add(every * time.Duration(i) / time.Duration(clients))
		for ; next.Sub(start) < length; next = next.Add(every) {
			time.Sleep(time.Until(next))
			sent := time.Now()
			if err := t.send(); err != nil {
				return err
			}
			own = append(own, time.Since(sent))
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, own...)
		return nil
	})
	if err != nil || len(all) == 0 {
		return err
	}
	slices.Sort(all)
	r.p50, r.p99 = all[len(all)/2], all[len(all)*99/100]
	return nil
}

func inParallel(n int, do func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- do(i) }()
	}
	var first error
	for range n {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// usage is what a target's process has used since it began.
type usage struct {
	Mallocs, Bytes uint64
	CPU            time.Duration
}

func (t *target) usage() (u usage, err error) {
	if t.stats == "" {
		return u, nil
	}
	res, err := t.client.Get(t.stats)
	if err != nil {
		return u, err
	}
	defer res.Body.Close()
	return u, json.NewDecoder(res.Body).Decode(&u)
}

var serial atomic.Int64

// send sends one request, with times that no other has.
func (t *target) send() error {
	start := 1_700_000_000 + serial.Add(1)
	form := fmt.Sprintf("query=sum+by+%%28job%%29+%%28rate%%28http_requests_total%%7Bjob%%3D%%22api%%22%%2Ccode%%3D~%%225..%%22%%7D%%5B5m%%5D%%29%%29&start=%d&end=%d&step=15", start, start+3600)
	res, err := t.client.Post(t.url+"/api/v1/query_range", "application/x-www-form-urlencoded", strings.NewReader(form))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err == nil && (res.StatusCode != http.StatusOK || n != int64(len(answer))) {
		err = fmt.Errorf("answered %s with %d bytes", res.Status, n)
	}
	return err
}
