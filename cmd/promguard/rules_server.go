// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/promapi"
)

// serverFlags say which live server is asked, and how much at most.
type serverFlags struct {
	url, httpConfig string
	budget          promapi.Budget
	bytes           func() int64
}

func (f *serverFlags) declare(cmd *kingpin.CmdClause, what string) {
	cmd.Flag("prometheus.url", what).PlaceHolder("URL").StringVar(&f.url)
	cmd.Flag("prometheus.http-config.file", "File with TLS and credentials for --prometheus.url, in the format of Prometheus's HTTP clients.").
		PlaceHolder("FILE").StringVar(&f.httpConfig)
	cmd.Flag("max-queries", "Most requests to make to --prometheus.url.").Default("500").IntVar(&f.budget.Requests)
	cmd.Flag("max-time", "Longest time to spend asking --prometheus.url, pauses included.").Default("10m").DurationVar(&f.budget.Total)
	cmd.Flag("query-timeout", "How long one request to --prometheus.url may take.").Default("10s").DurationVar(&f.budget.Timeout)
	cmd.Flag("max-series", "Series that one query to --prometheus.url may read.").Default("100000").IntVar(&f.budget.Series)
	size := cmd.Flag("max-bytes", "Most bytes that all answers of --prometheus.url may have together.").Default("128MB").Bytes()
	f.bytes = func() int64 { return int64(*size) }
}

func (f *serverFlags) given() bool { return f.url != "" }

// validate finds a mistake before anything is read.
func (f *serverFlags) validate() error {
	_, err := f.client(nil)
	return err
}

// client returns a client, which is to be closed.
func (f *serverFlags) client(progress *cli.Progress) (*promapi.Client, error) {
	f.budget.Bytes = f.bytes()
	if !f.given() {
		return nil, f.budget.Validate()
	}
	transport, err := serverTransport(f.httpConfig)
	if err != nil {
		return nil, err
	}
	c, err := promapi.New(f.url, transport, f.budget)
	if err != nil {
		return nil, fmt.Errorf("--prometheus.url: %w", err)
	}
	c.Asked = func(requests int) {
		if requests == 1 {
			progress.Step("asking %s", c)
		}
		progress.Set(int64(requests-1), 0)
	}
	return c, nil
}

// serverTransport is what reaches --prometheus.url. Without a file, servers are found as
// other programs find them, through a proxy of the environment too.
func serverTransport(httpConfig string) (http.RoundTripper, error) {
	if httpConfig == "" {
		return http.DefaultTransport, nil
	}
	transport, err := newTransport(httpConfig)
	if err != nil {
		return nil, fmt.Errorf("--prometheus.http-config.file: %w", err)
	}
	return transport, nil
}
