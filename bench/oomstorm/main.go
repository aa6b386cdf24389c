// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command oomstorm measures whether Prometheus binaries survive a storm of
// reads under a real limit of memory, and what scrapes, rules and innocent
// queries lose meanwhile.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/internal/proc"
	"github.com/promguard/promguard/bench/oomstorm/internal/fill"
	"github.com/promguard/promguard/bench/oomstorm/internal/limit"
	"github.com/promguard/promguard/bench/oomstorm/internal/spawn"
	"github.com/promguard/promguard/bench/oomstorm/internal/storm"
	"github.com/promguard/promguard/internal/cli"
)

func main() {
	err := dispatch(os.Args[1:])
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted; what it had started and written was removed")
	}
	os.Exit(cli.Code(os.Stderr, "oomstorm", err))
}

// dispatch runs a command, or what the program starts itself as.
func dispatch(args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case spawn.Word:
			return spawn.Become(args[1:])
		case storm.ChildWord:
			return storm.RunChild(os.Stdin, os.Stdout)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return execute(ctx, args, os.Stdout, os.Stderr)
}

// execute runs one command. Results go to stdout, all else to stderr.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	app := cli.New("oomstorm", "Measure whether Prometheus binaries survive a storm of reads under a limit of memory.", stdout, stderr)
	run := app.Command("run", "Fill a server, put it under a limit of memory, and let many clients ask for everything while it scrapes and evaluates rules. One binary after the other.")
	runOptions := runFlags(run)
	one := app.Command("one", "Fill a server, make a single request, and say what it took. Each request meets a freshly started server.")
	oneOptions := oneFlags(one)
	command, err := cli.Parse(app, args)
	if err != nil {
		return err
	}
	if !proc.Supported {
		return errors.New("servers are measured through Linux's /proc and CPU clocks; this system has none")
	}
	if command == run.FullCommand() {
		return runStorms(ctx, *runOptions, stdout, stderr)
	}
	return runOnes(ctx, *oneOptions, stdout, stderr)
}

// common are the flags of all commands.
type common struct {
	Binaries     []binary.Binary
	Series       int
	Seed         uint64
	Limit        limit.Spec
	LimitBy      string
	TmpDir       string
	ReadyTimeout time.Duration
	RestPeriod   time.Duration
	Format       string
}

// What enforces the limit.
const (
	byAuto     = "auto"
	byCgroup   = "cgroup"
	byWatchdog = "watchdog"
)

// commonFlags adds the flags; the function it returns checks them.
func commonFlags(cmd *kingpin.CmdClause, c *common, defaultLimit string) (check func() error) {
	binaries := cmd.Flag("binary", "Prometheus to measure; repeat it to compare. NAME is in the results, and the path's last element if left out. ARGs are given to the binary, as in 'patched=bin/prometheus --guard.api-timeout=10s'; none may contain spaces.").Required().PlaceHolder("[NAME=]PATH [ARG...]").Strings()
	cmd.Flag("series", "Series in the head; about five in six are buckets of histograms.").Default("1000000").IntVar(&c.Series)
	cmd.Flag("seed", "Picks names, values, and what the clients do.").Default("1").Uint64Var(&c.Seed)
	limitText := cmd.Flag("limit", "Limit of memory: a factor of what the first binary takes at rest, such as 2.5; a size, such as 4GiB; or off. It is the same for all binaries.").Default(defaultLimit).String()
	cmd.Flag("limit-by", "What enforces the limit: a memory cgroup, or a watchdog that sets GOMEMLIMIT to 0.9 of it and kills. auto takes the cgroup where one can be made.").Default(byAuto).EnumVar(&c.LimitBy, byAuto, byCgroup, byWatchdog)
	cmd.Flag("tmp-dir", "Where the data directory goes; there is one at a time.").Default(os.TempDir()).PlaceHolder("DIR").StringVar(&c.TmpDir)
	cmd.Flag("ready-timeout", "How long a binary may take to start.").Default("15m").DurationVar(&c.ReadyTimeout)
	cmd.Flag("rest-period", "Memory is at rest when it has not fallen for this long.").Default("5s").DurationVar(&c.RestPeriod)
	cmd.Flag("format", "Format of the results: table, json, or benchfmt, which benchstat reads.").Default("table").EnumVar(&c.Format, "table", "json", "benchfmt")
	return func() error {
		if c.Series < fill.MinSeries {
			return fmt.Errorf("--series must be %d or more, got %d", fill.MinSeries, c.Series)
		}
		if c.ReadyTimeout <= 0 || c.RestPeriod <= 0 {
			return errors.New("--ready-timeout and --rest-period must be more than 0")
		}
		var err error
		if c.Limit, err = limit.ParseSpec(*limitText); err != nil {
			return fmt.Errorf("--limit: %w", err)
		}
		c.Binaries, err = binary.ParseAll(*binaries)
		return err
	}
}

// stormConfig are the flags of the command run.
type stormConfig struct {
	common
	Clients        int
	Duration       time.Duration
	Mix            storm.Mix
	Slow, Leave    float64
	Gzip, Post     float64
	ClientTimeout  time.Duration
	ScrapeInterval time.Duration
	RuleInterval   time.Duration
	Baseline       time.Duration
	ProbeRate      float64
	Settle         time.Duration
}

// maxDuration keeps the samples that are written ahead within what a head takes
// beside new ones.
const maxDuration = 30 * time.Minute

func runFlags(cmd *kingpin.CmdClause) *stormConfig {
	c := &stormConfig{}
	check := commonFlags(cmd, &c.common, "2.5")
	cmd.Flag("clients", "Clients that ask one after the other.").Default("16").IntVar(&c.Clients)
	cmd.Flag("duration", "How long the clients ask.").Default("120s").DurationVar(&c.Duration)
	mix := cmd.Flag("mix", "Weights of the kinds of requests; those left out are not made. Default: all, as in the documentation.").PlaceHolder("KIND=WEIGHT,...").String()
	cmd.Flag("slow", "Share of the requests whose answer is read at 1 KB/s for up to 30 s. Shares are from 0 to 1; the dashboard's queries are neither slow nor left.").Default("0.05").Float64Var(&c.Slow)
	cmd.Flag("leave", "Share of the requests whose client leaves after 0.2 to 2 s.").Default("0.2").Float64Var(&c.Leave)
	cmd.Flag("gzip", "Share of the requests that accept compressed answers.").Default("0.5").Float64Var(&c.Gzip)
	cmd.Flag("post", "Share of the requests that are POSTs, where the endpoint has them.").Default("0.3").Float64Var(&c.Post)
	cmd.Flag("client-timeout", "How long a client waits for the end of an answer.").Default("60s").DurationVar(&c.ClientTimeout)
	cmd.Flag("scrape-interval", "How often the targets are scraped.").Default("2s").DurationVar(&c.ScrapeInterval)
	cmd.Flag("rule-interval", "How often the rules are evaluated.").Default("2s").DurationVar(&c.RuleInterval)
	cmd.Flag("baseline", "How long the innocent query is asked before the storm.").Default("20s").DurationVar(&c.Baseline)
	cmd.Flag("probe-rate", "How often per second the innocent query is asked.").Default("5").Float64Var(&c.ProbeRate)
	cmd.Flag("settle-timeout", "How long to wait after the storm for memory to come down, and again for SIGTERM to end the server.").Default("3m").DurationVar(&c.Settle)
	cmd.Action(func(*kingpin.ParseContext) error {
		if err := check(); err != nil {
			return err
		}
		return c.check(*mix)
	})
	return c
}

func (c *stormConfig) check(mix string) error {
	if c.Clients < 1 || c.Clients > 10_000 {
		return fmt.Errorf("--clients must be from 1 to 10000, got %d", c.Clients)
	}
	if c.Duration > maxDuration {
		return fmt.Errorf("--duration must be at most %s, got %s", maxDuration, c.Duration)
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
		least time.Duration
	}{
		{"duration", c.Duration, time.Second},
		{"client-timeout", c.ClientTimeout, time.Millisecond},
		{"scrape-interval", c.ScrapeInterval, 100 * time.Millisecond},
		{"rule-interval", c.RuleInterval, 100 * time.Millisecond},
		{"baseline", c.Baseline, time.Second},
		{"settle-timeout", c.Settle, time.Second},
	} {
		if d.value < d.least || d.value > time.Hour {
			return fmt.Errorf("--%s must be from %s to 1h, got %s", d.flag, d.least, d.value)
		}
	}
	for _, s := range []struct {
		flag  string
		value float64
	}{{"slow", c.Slow}, {"leave", c.Leave}, {"slow and --leave together", c.Slow + c.Leave}, {"gzip", c.Gzip}, {"post", c.Post}} {
		if !(s.value >= 0 && s.value <= 1) {
			return fmt.Errorf("--%s must be from 0 to 1, got %v", s.flag, s.value)
		}
	}
	if !(c.ProbeRate >= 0.1 && c.ProbeRate <= 100) {
		return fmt.Errorf("--probe-rate must be from 0.1 to 100, got %v", c.ProbeRate)
	}
	c.Mix = storm.DefaultMix()
	if mix != "" {
		var err error
		if c.Mix, err = storm.ParseMix(mix); err != nil {
			return fmt.Errorf("--mix: %w", err)
		}
	}
	return nil
}

// oneConfig are the flags of the command one.
type oneConfig struct {
	common
	Kinds      []storm.Kind
	LeaveAfter time.Duration
	Gzip       bool
	Timeout    time.Duration
	Count      int
}

func oneFlags(cmd *kingpin.CmdClause) *oneConfig {
	c := &oneConfig{}
	check := commonFlags(cmd, &c.common, "off")
	requests := cmd.Flag("request", "Kind of request to make; repeat it for several. They are those of run --mix.").Required().PlaceHolder("KIND").Strings()
	cmd.Flag("leave-after", "The client leaves after that time; what the server does after it is measured. 0: it reads to the end.").Default("0s").DurationVar(&c.LeaveAfter)
	cmd.Flag("gzip", "Accept compressed answers.").BoolVar(&c.Gzip)
	cmd.Flag("timeout", "How long to wait for the end of an answer.").Default("10m").DurationVar(&c.Timeout)
	cmd.Flag("count", "How often to measure each.").Default("1").IntVar(&c.Count)
	cmd.Action(func(*kingpin.ParseContext) error {
		if err := check(); err != nil {
			return err
		}
		if c.LeaveAfter < 0 || c.Timeout <= 0 {
			return errors.New("--leave-after must be 0 or more and --timeout more than 0")
		}
		if c.Count < 1 {
			return fmt.Errorf("--count must be 1 or more, got %d", c.Count)
		}
		for _, name := range *requests {
			kind, err := storm.Find(name)
			if err != nil {
				return fmt.Errorf("--request: %w", err)
			}
			c.Kinds = append(c.Kinds, kind)
		}
		return nil
	})
	return c
}
