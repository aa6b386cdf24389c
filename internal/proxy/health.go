// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	probeEvery   = 5 * time.Second
	probeTimeout = 4 * time.Second
	// waitProbeEvery is how often to probe while nothing is served yet.
	waitProbeEvery = 500 * time.Millisecond
	// staleAfter is how old the last answer to a probe may be.
	staleAfter = 3 * probeEvery
)

// health is what the probes found out.
type health struct {
	lastAnswer atomic.Int64 // Unix nanoseconds, 0 for never
	stopping   atomic.Bool
}

// Probe asks the upstream server for its build information. Any answer over HTTP
// will do, whatever its status: a server that replays its log or wants
// credentials is there, and a client is told so best by the server itself.
func (p *Proxy) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	u := *p.upstream
	u.Path = p.basePath + apiPrefix + "status/buildinfo"
	u.RawPath = ""
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "promguard")
	res, err := p.transport.RoundTrip(req)
	if err != nil {
		p.metrics.upstreamUp.Set(0)
		return fmt.Errorf("no answer from %s: %w", p.upstream, err)
	}
	defer res.Body.Close()
	// Read, so that the connection can be used again; not more than it is worth.
	_, _ = io.CopyN(io.Discard, res.Body, 64<<10)
	p.health.lastAnswer.Store(time.Now().UnixNano())
	p.metrics.upstreamUp.Set(1)
	return nil
}

// WaitUpstream probes until there is an answer, for at most wait, and returns
// the error of the last probe. With wait 0 it probes once.
func (p *Proxy) WaitUpstream(ctx context.Context, wait time.Duration) error {
	giveUp := time.Now().Add(wait)
	var nextLog time.Time
	for {
		err := p.Probe(ctx)
		now := time.Now()
		left := giveUp.Sub(now)
		if err == nil || left <= 0 || ctx.Err() != nil {
			return err
		}
		if now.After(nextLog) {
			p.logger.Warn("Waiting for the upstream server", "left", left.Round(time.Second), "err", err)
			nextLog = now.Add(probeEvery)
		}
		select {
		case <-time.After(min(left, waitProbeEvery)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// RunProbes probes every few seconds until ctx is done, and logs when the
// upstream server goes away and when it comes back.
func (p *Proxy) RunProbes(ctx context.Context) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	away := false
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		switch err := p.Probe(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil && !away:
			p.logger.Warn("Upstream server does not answer", "err", err)
			away = true
		case err == nil && away:
			p.logger.Info("Upstream server answers again")
			away = false
		}
	}
}

// Stop makes Ready fail, so that no new requests are sent here while the ones in
// flight are finished.
func (p *Proxy) Stop() { p.health.stopping.Store(true) }

// Ready returns nil if the upstream server answered a probe in the last 15s and
// Stop was not called.
func (p *Proxy) Ready() error {
	if p.health.stopping.Load() {
		return errors.New("shutting down")
	}
	last := p.health.lastAnswer.Load()
	if last == 0 {
		return errors.New("the upstream server has not answered yet")
	}
	if age := time.Since(time.Unix(0, last)); age > staleAfter {
		return fmt.Errorf("the upstream server has not answered for %s", age.Round(time.Second))
	}
	return nil
}

// HandleHealthy answers 200 as long as the process serves at all.
func HandleHealthy(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "promguard is Healthy.")
}

// HandleReady answers 200 or 503, by Ready.
func (p *Proxy) HandleReady(w http.ResponseWriter, _ *http.Request) {
	if err := p.Ready(); err != nil {
		http.Error(w, "promguard is not Ready: "+err.Error()+".", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "promguard is Ready.")
}
