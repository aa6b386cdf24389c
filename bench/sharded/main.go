// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command sharded starts what docs/sharded.md describes on this machine, out of the
// real binaries and with the arguments of the manifests: to try it, and to measure what
// each part costs a cluster of a few thousandths of the full size.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/proc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := execute(ctx, os.Args[1:], os.Stdout)
	stop()
	os.Exit(cli.Code(os.Stderr, "sharded", err))
}

func execute(ctx context.Context, args []string, out io.Writer) error {
	app := cli.New("sharded", "Start shards of Prometheus, Thanos over them, and promguard in front, on this machine.", out, os.Stderr)
	o := options{shards: 3, replicas: 2, queries: 2, block: 2 * time.Hour}
	app.Flag("bin", "Directory of the binaries prometheus, promguard and peers/thanos.").Default("bin").StringVar(&o.bin)
	app.Flag("manifests", "Directory of the manifests, whose arguments the processes get.").Default("deploy/kubernetes").StringVar(&o.manifests)
	try := app.Command("run", "Start all, print where it is, and stop all at Ctrl-C.")
	try.Flag("data", "Directory for databases, bucket, configuration and logs.").Default("data/sharded").StringVar(&o.data)
	try.Flag("port", "First of the ports.").Default("9400").IntVar(&o.port)
	try.Flag("series", "Series of the modelled cluster.").Default("20000").IntVar(&o.series)
	try.Flag("scrape-interval", "How often everything is scraped.").Default("10s").DurationVar(&o.interval)
	try.Flag("block", "Length of blocks, which are uploaded when half of another one is full: short ones show it soon.").Default("10m").DurationVar(&o.block)
	measure := app.Command("bench", "Measure what each part takes, for clusters of some thousandths of 7,500 nodes.")
	thousandths := measure.Flag("thousandths", "A size to measure; repeat it.").Default("1", "2", "4", "8").Ints()
	expressions := measure.Flag("expressions", "What is asked: a list of objects with expr, in YAML or JSON.").Default("bench/oomstorm/internal/scenario/expressions.yaml").String()
	rounds := measure.Flag("rounds", "How often every expression is asked.").Default("5").Int()
	window := measure.Flag("window", "How long to measure each at rest, and what queries look back.").Default("2m").Duration()
	command, err := cli.Parse(app, args)
	if err != nil {
		return err
	}
	if !proc.Supported {
		return errors.New("it starts processes that end with it, which it can on Linux only")
	}
	if command == measure.FullCommand() {
		if *rounds < 1 || *window < 2*benchScrape {
			return cli.Misuse(fmt.Errorf("--rounds must be 1 or more, and --window %s or more", 2*benchScrape))
		}
		return bench(ctx, o, *thousandths, *window, *rounds, *expressions, out)
	}
	return run(ctx, o, out)
}

// restartAfter is how long what has ended stays away, so that it is missed.
const restartAfter = 20 * time.Second

// run starts a chain and keeps it until ctx ends. What ends by itself, or is killed to
// see what happens, starts again, once all have been up.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begun := time.Now()
	if o.data, err = filepath.Abs(o.data); err != nil {
		return err
	}
	died, again := make(chan *part), make(chan *part)
	var up atomic.Bool
	c, err := newChain(o, func(p *part, err error) {
		if !up.Load() {
			cancel(err)
			return
		}
		send(ctx, died, p)
	})
	if err != nil {
		return err
	}
	defer c.close()
	fmt.Fprintf(out, "starting %d processes, logs in %s\n", len(c.parts), o.data)
	if err = c.start(ctx); err == nil {
		up.Store(true)
		err = c.tour(out, time.Since(begun))
	}
	for err == nil {
		select {
		case p := <-died:
			fmt.Fprintf(out, "%s has ended and starts again in %s\n", p.name, restartAfter)
			time.AfterFunc(restartAfter, func() { send(ctx, again, p) })
		case p := <-again:
			err = p.start(c.ended)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	fmt.Fprintln(out, "stopping all")
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func send(ctx context.Context, to chan<- *part, p *part) {
	select {
	case to <- p:
	case <-ctx.Done():
	}
}

// tour prints what there is, and what to do with it.
func (c *chain) tour(out io.Writer, took time.Duration) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var rss int64
	fmt.Fprintln(table, "\nPROCESS\tADDRESS\tPID\tRSS")
	for _, p := range c.parts {
		m, err := proc.ReadMemory(p.PID())
		if err != nil {
			return err
		}
		rss += m.RSS
		fmt.Fprintf(table, "%s\t%s\t%d\t%d MiB\n", p.name, p.url, p.PID(), m.RSS>>20)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	shard := c.pods[1] // Of the default cluster it has half of the targets.
	fmt.Fprintf(out, `
All %d targets are in the answers after %.0f s; the processes hold %d MiB.

Point Grafana's Prometheus data source at promguard: %s

  # Containers by namespace, from all shards:
  curl -sg '%s/api/v1/query?query=count(kube_pod_container_info)by(namespace)'

  # Kill a whole shard, and ask: some targets, and warnings that say whose are missing. It comes back in %s:
  kill -9 %d %d; curl -sg '%s/api/v1/query?query=count(up==1)'

Ctrl-C stops all.
`, c.targets.count, took.Seconds(), rss>>20, c.reads(), c.reads(),
		restartAfter, shard[0].server.PID(), shard[1].server.PID(), c.reads())
	return nil
}
