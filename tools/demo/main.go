// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command demo starts a Prometheus behind promguard on this machine: something to scrape,
// the patched Prometheus, and promguard in front of it. It is what make run runs,
// and is no way to deploy any of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/promguard/promguard/internal/cli"
)

// config are the command's flags.
type config struct {
	Bin            string
	Data           string
	Exposition     string
	Series         int
	Churn          float64
	ScrapeInterval time.Duration

	PrometheusPort, ProxyPort, TelemetryPort, ExpositionPort int
}

func main() {
	c, err := parse(os.Args[1:], os.Stdout)
	if err == nil {
		err = run(c, os.Stdout)
	}
	os.Exit(cli.Code(os.Stderr, "demo", err))
}

func parse(args []string, usage io.Writer) (config, error) {
	var c config
	app := cli.New("demo", "Start the patched Prometheus with promguard in front on this machine, with a modelled Kubernetes cluster, or an exposition of yours, to scrape.", usage, usage)
	app.Flag("bin", "Directory of the binaries prometheus and promguard.").Default("bin").StringVar(&c.Bin)
	app.Flag("data", "Directory for the time series database, the configuration and the logs.").Default("data").StringVar(&c.Data)
	app.Flag("exposition", "Scrape this instead of the modelled cluster: a file in the text format, a directory of *.prom files (a job each), or a URL.").PlaceHolder("FILE|DIR|URL").StringVar(&c.Exposition)
	app.Flag("series", "Series of the modelled cluster.").Default("50000").IntVar(&c.Series)
	app.Flag("churn", "Share of the modelled cluster's pods to replace per hour.").Default("1").Float64Var(&c.Churn)
	app.Flag("scrape-interval", "How often everything is scraped.").Default("10s").DurationVar(&c.ScrapeInterval)
	app.Flag("prometheus.port", "Port of Prometheus.").Default("9090").IntVar(&c.PrometheusPort)
	app.Flag("proxy.port", "Port of promguard.").Default("9091").IntVar(&c.ProxyPort)
	app.Flag("telemetry.port", "Port of promguard's own metrics.").Default("9092").IntVar(&c.TelemetryPort)
	app.Flag("exposition.port", "Port of what is scraped.").Default("9093").IntVar(&c.ExpositionPort)
	if _, err := cli.Parse(app, args); err != nil {
		return config{}, err
	}
	if c.ScrapeInterval < time.Second {
		return config{}, cli.Misuse(fmt.Errorf("--scrape-interval must be 1s or more, got %s", c.ScrapeInterval))
	}
	return c, nil
}

// loopback is the address of a port that only this machine can reach.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// run starts everything, waits for a signal or for one of the processes to end,
// and stops everything.
func run(c config, out io.Writer) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)

	src, err := newSource(c)
	if err != nil {
		return err
	}
	if err := checkBinaries(c); err != nil {
		return err
	}
	listener, err := claimPorts(c)
	if err != nil {
		return err
	}
	defer serveSource(src, listener, cancel).Close()

	kids := &children{dir: filepath.Join(c.Data, "demo"), out: out, ended: cancel}
	defer func() {
		cancel(nil)
		kids.stop(signals)
	}()
	go cancelOnSignal(ctx, cancel, signals)
	go watchWrites(ctx, cancel, "http://"+loopback(c.PrometheusPort), filepath.Join(c.Data, "prometheus"), filepath.Join(kids.dir, "prometheus.log"))

	if err := start(ctx, c, src, kids, out); err == nil {
		printTour(out, c, src)
		<-ctx.Done()
	} else if ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errInterrupted) {
		return cause
	}
	return nil
}

// serveSource serves what is scraped until the server is closed; if serving ends
// otherwise, it cancels the run.
func serveSource(src source, l net.Listener, cancel context.CancelCauseFunc) *http.Server {
	server := &http.Server{Handler: src.handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serving the exposition: %w", err))
		}
	}()
	return server
}

// cancelOnSignal lets the first signal end the run; children.stop reads the second.
func cancelOnSignal(ctx context.Context, cancel context.CancelCauseFunc, signals <-chan os.Signal) {
	select {
	case <-signals:
		cancel(errInterrupted)
	case <-ctx.Done():
	}
}

var errInterrupted = errors.New("interrupted")

// start brings the processes up, one after the other.
func start(ctx context.Context, c config, src source, kids *children, out io.Writer) error {
	if err := os.MkdirAll(kids.dir, 0o777); err != nil {
		return err
	}
	configFile := filepath.Join(kids.dir, "prometheus.yml")
	yaml, err := prometheusConfig(c, src)
	if err != nil {
		return err
	}
	// It may hold a password.
	if err := os.WriteFile(configFile, yaml, 0o600); err != nil {
		return err
	}
	// Grafana on this machine is believed when it says who asks.
	policyFile := filepath.Join(kids.dir, "promguard.yml")
	if err := os.WriteFile(policyFile, []byte("identity: {peers: [127.0.0.1/32]}\n"), 0o600); err != nil {
		return err
	}
	fmt.Fprintln(out, src.what)
	prometheus := "http://" + loopback(c.PrometheusPort)
	err = kids.start(filepath.Join(c.Bin, "prometheus"), "--config.file="+configFile,
		"--storage.tsdb.path="+filepath.Join(c.Data, "prometheus"), "--web.listen-address="+loopback(c.PrometheusPort),
		"--web.enable-lifecycle") // For the page's buttons.
	if err != nil {
		return err
	}
	if err := waitFor(ctx, out, "prometheus to be ready", ready(prometheus+"/-/ready")); err != nil {
		return err
	}
	err = kids.start(filepath.Join(c.Bin, "promguard"), "serve", "--upstream.url="+prometheus, "--config.file="+policyFile,
		"--web.listen-address="+loopback(c.ProxyPort), "--web.telemetry-address="+loopback(c.TelemetryPort))
	if err != nil {
		return err
	}
	if err := waitFor(ctx, out, "promguard to be ready", ready("http://"+loopback(c.TelemetryPort)+"/-/ready")); err != nil {
		return err
	}
	return waitFor(ctx, out, "the first scrape of all targets", scraped(prometheus))
}

// checkBinaries says what to build if something is missing.
func checkBinaries(c config) error {
	for _, name := range []string{"prometheus", "promguard"} {
		path := filepath.Join(c.Bin, name)
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("%w; make %s builds it, --bin names another directory", err, name)
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return fmt.Errorf("%s is not executable; make %s builds it", path, name)
		}
	}
	return nil
}

// claimPorts takes the exposition's port and tries the others.
func claimPorts(c config) (net.Listener, error) {
	var kept net.Listener
	for _, p := range []struct {
		flag string
		port int
	}{
		{"--prometheus.port", c.PrometheusPort},
		{"--proxy.port", c.ProxyPort},
		{"--telemetry.port", c.TelemetryPort},
		{"--exposition.port", c.ExpositionPort},
	} {
		if p.port < 1 || p.port > 65535 {
			return nil, cli.Misuse(fmt.Errorf("%s must be from 1 to 65535, got %d", p.flag, p.port))
		}
		l, err := net.Listen("tcp", loopback(p.port))
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("port %d is in use; stop what uses it, or name another one with %s", p.port, p.flag)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.flag, err)
		}
		if p.port == c.ExpositionPort {
			kept = l
			continue
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
	}
	return kept, nil
}
