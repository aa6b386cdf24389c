// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// newestEvery is how often to ask for the newest sample: the server gathers all of
// its metrics for it, as for a scrape.
const newestEvery = 15 * time.Second

// MinStaleAfter is the least that Options.StaleAfter may be besides 0. Two servers
// are asked at different moments, and the older answer is no older sample.
const MinStaleAfter = 2 * newestEvery

// maxMetrics bounds what is read of /metrics.
const maxMetrics = 64 << 20

// newest is the time of the newest sample of a server.
type newest struct {
	known bool
	at    time.Time // zero if it has none
}

func (p *Pool) looksAtSamples() bool {
	return !p.Alone() && p.staleAfter > 0 && p.kind == KindPrometheus
}

// compare finds out which servers are stale. One that is remains so until it shows
// a sample that the other did not have then: that nothing is known of it now, or of
// the other, is no news.
func (p *Pool) compare(now time.Time) {
	for _, s := range p.servers {
		if s.state != Ready || !s.newest.known {
			continue
		}
		was := s.stale()
		if was && s.newest.at.After(s.behind) {
			s.behind = time.Time{}
		}
		for _, other := range p.servers {
			if other.state == Ready && other.newest.known && other.newest.at.Sub(s.newest.at) > p.staleAfter {
				s.behind = other.newest.at
			}
		}
		if was && !s.stale() {
			s.readySince = now // It settles first, as one that was away.
		}
	}
}

func (s *Server) stale() bool { return !s.behind.IsZero() }

// effective is the state, with staleness.
func (s *Server) effective() State {
	if s.state == Ready && s.stale() {
		return Stale
	}
	return s.state
}

// headMaxTime is the metric of Prometheus that tells the newest sample. The API
// has it as well, in status/tsdb, which goes through all postings for it; and a
// query would read series.
const headMaxTime = "prometheus_tsdb_head_max_time_seconds "

// newestSample asks for the newest sample of a server, line by line.
func (p *Pool) newestSample(ctx context.Context, s *Server) newest {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	res, err := p.open(ctx, s, "/metrics", "")
	if err != nil {
		return newest{}
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return newest{}
	}
	lines := bufio.NewScanner(io.LimitReader(res.Body, maxMetrics))
	for lines.Scan() {
		value, ok := strings.CutPrefix(lines.Text(), headMaxTime)
		if !ok {
			continue
		}
		seconds, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		switch {
		case err != nil:
			return newest{}
		case seconds < 0: // Of an empty head it is the beginning of time.
			return newest{known: true}
		}
		return newest{known: true, at: time.UnixMilli(int64(seconds * 1000))}
	}
	return newest{}
}
