// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/proxy"
	"github.com/promguard/promguard/internal/proxy/upstream"
)

// upstreamFlags say the upstream server.
type upstreamFlags struct {
	urls       []string
	kind       string
	httpConfig string
	probe      string
	staleAfter time.Duration
}

func (f *upstreamFlags) register(c *kingpin.CmdClause) {
	c.Flag("upstream.url", "Root URL of the upstream server, without /api/v1, such as http://127.0.0.1:9090 or http://mimir/prometheus. Repeat it for the servers of an HA pair.").Required().StringsVar(&f.urls)
	c.Flag("upstream.kind", "What the upstream server is: "+strings.Join(upstream.Kinds(), ", ")+". Parameters that only this kind reads are passed on.").Default(string(upstream.KindPrometheus)).HintOptions(upstream.Kinds()...).StringVar(&f.kind)
	c.Flag("upstream.http-config.file", "File with TLS and credentials for the upstream server, in the format of Prometheus's HTTP clients.").StringVar(&f.httpConfig)
	c.Flag("upstream.probe", "What to do if the upstream server is not what the limits take it for: require ends promguard, warn logs it, off does not ask.").Default(string(upstream.ProbeRequire)).HintOptions(upstream.ProbeModes()...).StringVar(&f.probe)
	c.Flag("upstream.stale-after", "How many samples one server of an HA pair may miss before reads go to the other, as the time in which the other takes them in: at least the longest scrape interval, and 30s; 0s never. Prometheus only.").Default("2m").DurationVar(&f.staleAfter)
}

// parse returns the options of a pool, without metrics and logger.
func (f *upstreamFlags) parse() (o upstream.Options, err error) {
	for _, text := range f.urls {
		u, err := proxy.ParseUpstream(text)
		if err != nil {
			return o, cli.Misuse(err)
		}
		if slices.ContainsFunc(o.URLs, func(other *url.URL) bool { return other.String() == u.String() }) {
			return o, cli.Misuse(fmt.Errorf("--upstream.url: %s is given twice", u))
		}
		o.URLs = append(o.URLs, u)
	}
	if o.Kind, err = upstream.ParseKind(f.kind); err != nil {
		return o, cli.Misuse(fmt.Errorf("--upstream.kind: %w", err))
	}
	if o.Probe, err = upstream.ParseProbeMode(f.probe); err != nil {
		return o, cli.Misuse(fmt.Errorf("--upstream.probe: %w", err))
	}
	if o.StaleAfter = f.staleAfter; o.StaleAfter != 0 && o.StaleAfter < upstream.MinStaleAfter {
		return o, cli.Misuse(fmt.Errorf("--upstream.stale-after is %s: use 0s for never, or at least %s", o.StaleAfter, upstream.MinStaleAfter))
	}
	if o.Transport, err = newTransport(f.httpConfig); err != nil {
		return o, fmt.Errorf("--upstream.http-config.file: %w", err)
	}
	return o, nil
}

func asStartError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--upstream.probe: %w (or serve it nonetheless with --upstream.probe=warn)", err)
}

// routePrefix returns the path of all routes without a slash at its end, as
// Prometheus understands the two flags.
func routePrefix(externalURL, prefix string) (string, error) {
	external, err := url.Parse(externalURL)
	switch {
	case err != nil:
		return "", fmt.Errorf("--web.external-url: %w", err)
	case externalURL != "" && external.Host == "":
		return "", fmt.Errorf("--web.external-url %q has no host: use one such as https://grafana.example/prometheus", externalURL)
	}
	prefix = cmp.Or(prefix, external.Path)
	if strings.ContainsAny(prefix, "?#%") {
		return "", fmt.Errorf("--web.route-prefix %q must be a plain path such as /prometheus", prefix)
	}
	return strings.TrimSuffix(path.Clean("/"+prefix), "/"), nil
}
