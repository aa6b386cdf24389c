// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/proxy"
	"github.com/promguard/promguard/internal/proxy/config"
	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
)

// inspectTimeout bounds what all questions to a server take.
const inspectTimeout = 30 * time.Second

// inspectFlags say which servers to ask what they are.
type inspectFlags struct {
	urls             []string
	kind, httpConfig string
}

func (f *inspectFlags) register(c *kingpin.CmdClause) {
	c.Flag("upstream.url", "Root URL of a server to be put behind the guard, which is asked what it is. May be repeated.").StringsVar(&f.urls)
	c.Flag("upstream.kind", "What the server is to be.").Default(string(upstream.KindPrometheus)).StringVar(&f.kind)
	c.Flag("upstream.http-config.file", "File with TLS and credentials, as for serve.").StringVar(&f.httpConfig)
}

// inspect prints what the servers say of themselves. The error is that of those
// that serve would refuse.
func (f *inspectFlags) inspect(files []string, w io.Writer) error {
	if len(f.urls) == 0 {
		return nil
	}
	kind, err := upstream.ParseKind(f.kind)
	if err != nil {
		return cli.Misuse(fmt.Errorf("--upstream.kind: %w", err))
	}
	transport, err := newTransport(f.httpConfig)
	if err != nil {
		return fmt.Errorf("--upstream.http-config.file: %w", err)
	}
	var refused cli.Problems
	for _, text := range f.urls {
		if err := inspectServer(text, kind, transport, files, w); err != nil {
			refused = append(refused, err)
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return refused
}

// together returns the problems of all errors that are not nil.
func together(errs ...error) error {
	var sum cli.Problems
	for _, err := range errs {
		if err != nil {
			all := cli.Problems{err}
			errors.As(err, &all)
			sum = append(sum, all...)
		}
	}
	if len(sum) == 0 {
		return nil
	}
	return sum
}

func inspectServer(text string, kind upstream.Kind, transport http.RoundTripper, files []string, w io.Writer) error {
	u, err := proxy.ParseUpstream(text)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), inspectTimeout)
	defer cancel()
	facts, err := upstream.Inspect(ctx, u, transport)
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", u, err)
	}
	fmt.Fprintf(w, "%s: %s\n", u, facts)
	warnOfTimeout(facts, files, w)
	var fatal cli.Problems
	for _, m := range facts.Mismatches(kind) {
		if m.Fatal {
			fatal = append(fatal, fmt.Errorf("%s: %s", u, m.Text))
			continue
		}
		fmt.Fprintf(w, "%s: %s\n", u, m.Text)
	}
	if len(fatal) == 0 {
		return nil
	}
	return errors.Join(fatal...)
}

// warnOfTimeout tells when the server gives up before the guard does. A file that
// is refused is told of elsewhere.
func warnOfTimeout(facts *upstream.Facts, files []string, w io.Writer) {
	for _, path := range files {
		c, err := config.Load(path)
		if err != nil || facts.QueryTimeout == 0 {
			continue
		}
		if d := c.Rules.Tenant("").Deadline(querylimit.ClassQuery, 0); d == 0 || d > facts.QueryTimeout {
			fmt.Fprintf(w, "%s: the server ends queries after its --query.timeout of %s, before limits.deadline.query does\n", path, model.Duration(facts.QueryTimeout))
		}
	}
}
