// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Probe looks at the upstream servers once. Any answer over HTTP will do, whatever
// its status: a server that replays its log or wants credentials is there, and a
// client is told so best by the server itself. Other errors than that nobody
// answers are of a server that must not be served, an *upstream.MismatchError.
func (p *Proxy) Probe(ctx context.Context) error { return p.pool.Check(ctx) }

// RunProbes looks at the upstream servers every few seconds until ctx is done. An
// error is that of a server that must not be served.
func (p *Proxy) RunProbes(ctx context.Context) error { return p.pool.Run(ctx) }

// Stop makes Ready fail, so that no new requests are sent here while the ones in
// flight are finished, and ends what readers of the page listen to.
func (p *Proxy) Stop() {
	p.stopping.Store(true)
	p.readers.Close()
}

// Ready returns nil if an upstream server answers and Stop was not called.
func (p *Proxy) Ready() error {
	if p.stopping.Load() {
		return errors.New("shutting down")
	}
	if p.pool.Gone() {
		return p.pool.Unavailable()
	}
	return nil
}

// HandleHealthy answers 200 as long as the process serves at all.
func HandleHealthy(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "promguard is Healthy.")
}

// HandleReady answers 200 or 503, by Ready.
func (p *Proxy) HandleReady(w http.ResponseWriter, r *http.Request) {
	if err := p.loop(r); err != nil { // A proxy that looks at itself is not ready by its own word.
		writeError(w, asAPIError(err))
		return
	}
	if err := p.Ready(); err != nil {
		http.Error(w, "promguard is not Ready: "+err.Error()+".", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "promguard is Ready.")
}
