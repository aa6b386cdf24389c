// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/oklog/run"
	"github.com/prometheus/common/promslog"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/proxy"
	"github.com/promguard/promguard/internal/proxy/startupprobe"
)

type startupProbeFlags struct {
	url, http, listenAddress string
	stalledAfter             time.Duration
}

func startupProbeCommand(app *kingpin.Application, logConfig *promslog.Config) subcommand {
	var f startupProbeFlags
	c := app.Command("startup-probe", "Serve /startup, a startup probe for a Prometheus in the same pod. It answers when the server is ready, however long "+
		"that takes, or fails when the server has made no progress for a while.")
	c.Flag("prometheus.url", "Root URL of the Prometheus that starts.").Default("http://localhost:9090").StringVar(&f.url)
	c.Flag("prometheus.http-config.file", "File with TLS and credentials for it, in the format of Prometheus's HTTP clients.").StringVar(&f.http)
	c.Flag("web.listen-address", "Address to serve /startup on.").Default(":9094").StringVar(&f.listenAddress)
	c.Flag("stalled-after", "How long a server that is not ready may go without progress: its replay does not move, and it does not use the processor.").Default("10m").DurationVar(&f.stalledAfter)
	return subcommand{c, func() error { return f.serve(promslog.New(logConfig)) }}
}

func (f startupProbeFlags) serve(logger *slog.Logger) error {
	base, err := proxy.ParseUpstream(f.url)
	if err != nil {
		return cli.Misuse(fmt.Errorf("--prometheus.url: %w", err))
	}
	transport, err := newTransport(f.http)
	if err != nil {
		return fmt.Errorf("--prometheus.http-config.file: %w", err)
	}
	if f.stalledAfter <= 0 {
		return cli.Misuse(fmt.Errorf("--stalled-after: %s is not positive", f.stalledAfter))
	}
	listener, err := net.Listen("tcp", f.listenAddress)
	if err != nil {
		return fmt.Errorf("--web.listen-address: %w", err)
	}
	defer listener.Close()

	watcher := startupprobe.New(base, transport, f.stalledAfter)
	ctx, stop := context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.Handle("GET /startup", watcher)
	mux.HandleFunc("GET /-/healthy", proxy.HandleHealthy)
	mux.HandleFunc("GET /-/ready", proxy.HandleHealthy)
	srv := newServer(mux, logger)
	var g run.Group
	g.Add(run.SignalHandler(ctx, os.Interrupt, syscall.SIGTERM))
	g.Add(func() error { watcher.Run(ctx); return nil }, func(error) { stop() })
	g.Add(func() error { return srv.Serve(listener) }, func(error) { srv.Close() })
	if err := g.Run(); !errors.Is(err, run.ErrSignal) {
		return err
	}
	return nil
}
