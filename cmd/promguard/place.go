// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/promapi"
)

// answerTimeout is how long a server may take to say what happens there.
const answerTimeout = 10 * time.Second

// placeFlags say which promguard, or which patched Prometheus, is asked what happens
// there.
type placeFlags struct {
	address, url, httpConfig string
}

func (f *placeFlags) declare(c *kingpin.CmdClause) {
	c.Flag("web.telemetry-address", "Telemetry address of the promguard to ask; 127.0.0.1:9092 by default.").PlaceHolder("HOST:PORT").StringVar(&f.address)
	c.Flag("prometheus.url", "Patched Prometheus to ask, instead of a promguard.").PlaceHolder("URL").StringVar(&f.url)
	c.Flag("prometheus.http-config.file", "File with TLS and credentials for --prometheus.url, in the format of Prometheus's HTTP clients.").
		PlaceHolder("FILE").StringVar(&f.httpConfig)
}

// open returns the server to ask, which is to be closed.
func (f *placeFlags) open() (*promapi.Server, error) {
	if f.url == "" {
		address := cmp.Or(f.address, "127.0.0.1:9092")
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, cli.Misuse(fmt.Errorf("--web.telemetry-address %s: use one such as 127.0.0.1:9092", address))
		}
		return promapi.NewServer("http://"+address, http.DefaultTransport)
	}
	if f.address != "" {
		return nil, cli.Misuse(errors.New("give one of --web.telemetry-address and --prometheus.url"))
	}
	transport, err := serverTransport(f.httpConfig)
	if err != nil {
		return nil, err
	}
	s, err := promapi.NewServer(f.url, transport)
	if err != nil {
		return nil, cli.Misuse(fmt.Errorf("--prometheus.url: %w", err))
	}
	return s, nil
}

// ask calls fn with the server to ask, and the time that it has.
func (f *placeFlags) ask(fn func(context.Context, *promapi.Server) error) error {
	s, err := f.open()
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeoutCause(context.Background(), answerTimeout, fmt.Errorf("no answer within %s", answerTimeout))
	defer cancel()
	if err = fn(ctx, s); f.url == "" && f.address == "" && errors.Is(err, syscall.ECONNREFUSED) {
		err = fmt.Errorf("%w; say where with --web.telemetry-address, or --prometheus.url of a patched Prometheus", err)
	}
	if _, unreached := errors.AsType[net.Error](err); unreached {
		err = cli.Misuse(err) // There is no answer, which is not no.
	}
	return err
}

// watchFlags say how often a table is shown.
type watchFlags struct {
	watch    bool
	interval time.Duration
}

func (f *watchFlags) declare(c *kingpin.CmdClause) {
	c.Flag("watch", "Show it again and again, until Ctrl-C.").Short('w').BoolVar(&f.watch)
	c.Flag("interval", "How often, with --watch.").Default("2s").DurationVar(&f.interval)
}

// show writes what write writes, once or again and again. JSON is not drawn in place.
func (f *watchFlags) show(stdout, stderr io.Writer, output string, write func(io.Writer) error) error {
	switch {
	case f.interval <= 0:
		return cli.Misuse(errors.New("--interval must be above 0"))
	case !f.watch:
		return write(stdout)
	case output == cli.JSON:
		stdout = struct{ io.Writer }{stdout}
	}
	return cli.Watch("promguard", stdout, stderr, f.interval, write)
}
