// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package startupprobe answers a startup probe by what a Prometheus that starts
// does, not by how long it takes: the answer comes when the server is ready, or when
// it has made no progress for a while.
package startupprobe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// every is how often the server is asked.
	every = 5 * time.Second
	// timeout is how long it may take to answer: its processors are busy.
	timeout = 30 * time.Second
	// maxBytes is what is read of an answer.
	maxBytes = 16 << 20
	// minCPU is the share of a processor that a process uses which does something.
	// One that waits for its disk uses less, the answers to this package included.
	minCPU = 0.02
)

// Watcher watches a Prometheus until it is ready. Its methods may be called at the
// same time.
type Watcher struct {
	base   *url.URL
	client *http.Client
	stall  time.Duration

	mu      sync.Mutex
	ready   bool
	moved   time.Time // when there was progress last
	last    observation
	changed chan struct{} // closed and replaced by each observation
}

// observation is what the server says about itself at a time. Of a server that does
// not answer it is zero but for the time.
type observation struct {
	at       time.Time
	position position
	cpu      float64 // seconds since its process began
}

// position is how far the replay is: the fields of /api/v1/status/walreplay that
// only ever move on. Percent is there for the parallel replay of the patched build.
type position struct {
	Current int     `json:"current"`
	Percent float64 `json:"percent"`
}

// New makes a Watcher of the server at base, of which Run has to be called. The
// server is stalled when it is not ready and has made no progress for stall.
func New(base *url.URL, transport http.RoundTripper, stall time.Duration) *Watcher {
	return &Watcher{
		base: base, client: &http.Client{Transport: transport, Timeout: timeout}, stall: stall,
		moved: time.Now(), changed: make(chan struct{}),
	}
}

// Run asks the server again and again until ctx is done.
func (w *Watcher) Run(ctx context.Context) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		w.observe(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (w *Watcher) observe(ctx context.Context) {
	ready := w.get(ctx, "/-/ready", func(io.Reader) error { return nil }) == nil
	now := observation{}
	if !ready {
		// What cannot be read is no progress.
		_ = w.get(ctx, "/api/v1/status/walreplay", now.position.read)
		_ = w.get(ctx, "/metrics", func(r io.Reader) (err error) {
			now.cpu, err = readCPU(r)
			return err
		})
	}
	if ctx.Err() != nil {
		return
	}
	now.at = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if ready || now.progressed(w.last) {
		w.moved = now.at
	}
	w.ready, w.last = ready, now
	close(w.changed)
	w.changed = make(chan struct{})
}

// progressed reports whether the server did something since before. A process that
// is another one than before did: it started.
func (o observation) progressed(before observation) bool {
	if o.position != before.position && o.position != (position{}) {
		return true
	}
	return o.cpu != 0 && (o.cpu < before.cpu || o.cpu-before.cpu >= minCPU*o.at.Sub(before.at).Seconds())
}

func (w *Watcher) get(ctx context.Context, path string, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base.JoinPath(path).String(), http.NoBody)
	if err != nil {
		return err
	}
	res, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return read(io.LimitReader(res.Body, maxBytes))
}

func (p *position) read(r io.Reader) error {
	var answer struct {
		Data position `json:"data"`
	}
	if err := json.NewDecoder(r).Decode(&answer); err != nil {
		return err
	}
	*p = answer.Data
	return nil
}

// readCPU returns process_cpu_seconds_total of an exposition.
func readCPU(r io.Reader) (float64, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "process_cpu_seconds_total "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, errors.Join(lines.Err(), errors.New("no process_cpu_seconds_total"))
}

// ServeHTTP answers when the server is ready, with 200, or stalled, with 503. Until
// then the request waits; the timeout of the probe has to be longer than any replay.
func (w *Watcher) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	for {
		ready, still, changed := w.state()
		switch {
		case ready:
			fmt.Fprintln(rw, "Prometheus is Ready.")
			return
		case still >= w.stall:
			http.Error(rw, fmt.Sprintf("Prometheus is not ready and has made no progress for %s.", still.Round(time.Second)), http.StatusServiceUnavailable)
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (w *Watcher) state() (ready bool, still time.Duration, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ready, time.Since(w.moved), w.changed
}
