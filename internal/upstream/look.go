// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	lookEvery        = 5 * time.Second
	lookEveryUnready = time.Second
	lookTimeout      = 4 * time.Second
	// newestEvery is how often to ask for the newest sample: the server gathers
	// all of its metrics for it, as for a scrape.
	newestEvery = 15 * time.Second
	// factsEvery is how often to ask again what a server is.
	factsEvery = time.Minute
)

const apiPrefix = "/api/v1/"

// maxAnswer bounds what is read of an answer, and maxMetrics of /metrics.
const (
	maxAnswer  = 1 << 20
	maxMetrics = 64 << 20
)

// answer is what a server said.
type answer struct {
	code int
	body []byte
}

// get asks a server for a path below its root.
func (p *Pool) get(ctx context.Context, s *Server, path, query string) (answer, error) {
	res, err := p.open(ctx, s, path, query)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return answer{res.StatusCode, body}, err
}

func (p *Pool) open(ctx context.Context, s *Server, path, query string) (*http.Response, error) {
	u := &url.URL{Path: path, RawQuery: query}
	s.Locate(u)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "promguard")
	return p.transport.RoundTrip(req)
}

// check looks at a server and notes how it is. The first error is that of a server
// that does not answer, the second that of one that must not be served.
func (p *Pool) check(ctx context.Context, s *Server) (away, fatal error) {
	state, detail, err := p.look(ctx, s)
	if ctx.Err() != nil && err != nil {
		return err, nil
	}
	if err == nil {
		p.answered(s)
	}
	var age newest
	aged, learned := false, (*Facts)(nil)
	if state == Ready {
		if aged = p.due(&s.newestAt, newestEvery) && p.looksAtSamples(); aged {
			age = p.newestSample(ctx, s)
		}
		if p.mode != ProbeOff && p.due(&s.factsAt, factsEvery) {
			learned = p.learn(ctx, s)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.set(s, state, detail, now)
	if state == Ready {
		if aged {
			s.newest, s.newestAt = age, now
		}
		if learned != nil {
			fatal = p.use(s, learned, now)
		}
	}
	p.choose(now)
	if err != nil {
		return fmt.Errorf("no answer from %s: %w", s.name, err), nil
	}
	return nil, fatal
}

func (p *Pool) answered(s *Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.lastAnswer = time.Now()
}

func (p *Pool) due(last *time.Time, every time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return last.IsZero() || time.Since(*last) >= every
}

func (p *Pool) looksAtSamples() bool {
	return !p.Alone() && p.staleAfter > 0 && p.kind == KindPrometheus
}

// look asks a server whether it is ready. A server that wants credentials is: it
// gets those of clients. So is one behind a gateway that does not let the question
// through.
func (p *Pool) look(ctx context.Context, s *Server) (State, string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	path := p.kind.readyPath()
	if path != "" {
		a, err := p.get(ctx, s, path, "")
		switch {
		case err != nil:
			return Away, err.Error(), err
		case a.code/100 == 2:
			return Ready, "", nil
		case a.code >= http.StatusInternalServerError:
			state, detail := p.replay(ctx, s)
			return state, detail, nil
		}
	}
	a, err := p.get(ctx, s, apiPrefix+"status/buildinfo", "")
	switch {
	case err != nil:
		return Away, err.Error(), err
	case a.code >= http.StatusInternalServerError:
		return NotReady, "status " + strconv.Itoa(a.code), nil
	}
	return Ready, "", nil
}

// replay asks a server that is not ready whether it replays its log. The patched
// Prometheus knows how far it is; a stock one counts segments.
func (p *Pool) replay(ctx context.Context, s *Server) (State, string) {
	a, err := p.get(ctx, s, apiPrefix+"status/walreplay", "")
	if err != nil || a.code/100 != 2 {
		return NotReady, ""
	}
	var answer struct {
		Data struct {
			Min, Max, Current float64
			Percent           *float64
		}
	}
	if json.Unmarshal(a.body, &answer) != nil {
		return NotReady, ""
	}
	d := answer.Data
	switch {
	case d.Percent != nil && *d.Percent > 0:
		return Replaying, fmt.Sprintf("%.0f %%", *d.Percent)
	case d.Max > d.Min:
		return Replaying, fmt.Sprintf("%.0f %%", 100*(d.Current-d.Min)/(d.Max-d.Min))
	case d.Max > 0 || d.Percent != nil:
		return Replaying, ""
	}
	return NotReady, ""
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
