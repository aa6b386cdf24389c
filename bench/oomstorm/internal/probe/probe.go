// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package probe asks a server small innocent questions at a fixed rate, whether
// or not it has answered the ones before, so that a server that hangs is seen to
// hang.
package probe

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Timeout is how long an answer may take. A question without a good one counts
// as having taken that long, unless the server's end was the reason.
const Timeout = 30 * time.Second

// Summary is what came of the questions.
type Summary struct {
	Count int
	// Failed had no answer in time, or one that was no 200.
	Failed        int
	P50, P99, Max float64 // in seconds
}

// Result is the Summary of each of the questions.
type Result struct {
	// Query is sum(up), asked over connections that are kept, as Grafana's are.
	Query Summary
	// Health is /-/healthy, over a new connection each time, as a kubelet asks;
	// Metrics is /metrics, as another Prometheus does.
	Health, Metrics Summary
}

// Run asks the server at a URL rate times a second until ctx ends, and waits for
// the last answers: a question that was asked is answered, fails, or times out.
// When dead is closed, the server has ended, and no questions are left to wait
// for: those open then have failed.
func Run(ctx context.Context, dead <-chan struct{}, server string, rate float64) Result {
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	kept := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	defer kept.CloseIdleConnections()
	query := &question{url: server + "/api/v1/query?query=" + url.QueryEscape("sum(up)"), transport: kept}
	fresh := &http.Transport{DisableKeepAlives: true}
	health := &question{url: server + "/-/healthy", transport: fresh}
	metrics := &question{url: server + "/metrics", transport: fresh}

	var open sync.WaitGroup
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-ctx.Done():
			running = false
		case <-dead:
			running = false
		case <-tick.C:
			for _, q := range []*question{query, health, metrics} {
				open.Go(func() { q.ask(asking, dead) })
			}
		}
	}
	answered := make(chan struct{})
	go func() { open.Wait(); close(answered) }()
	select {
	case <-dead:
		cancel()
	case <-answered:
	}
	<-answered
	return Result{Query: query.summary(), Health: health.summary(), Metrics: metrics.summary()}
}

// question is one that is asked again and again.
type question struct {
	url       string
	transport http.RoundTripper

	mu     sync.Mutex
	took   []time.Duration
	failed int
}

// deathTime is how long it may take until it is known that the server has ended
// after it has cut its connections.
const deathTime = 500 * time.Millisecond

func (q *question) ask(ctx context.Context, dead <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	begin := time.Now()
	err := q.answer(ctx)
	took := time.Since(begin)
	if err != nil {
		select {
		case <-dead:
		case <-time.After(deathTime):
			took = Timeout
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.failed++
	}
	q.took = append(q.took, took)
}

func (q *question) answer(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, q.url, http.NoBody)
	if err != nil {
		return err
	}
	res, err := q.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", q.url, res.Status)
	}
	return nil
}

func (q *question) summary() Summary {
	q.mu.Lock()
	defer q.mu.Unlock()
	return summarize(q.took, q.failed)
}

func summarize(took []time.Duration, failed int) Summary {
	s := Summary{Count: len(took), Failed: failed}
	if len(took) == 0 {
		return s
	}
	sorted := slices.Sorted(slices.Values(took))
	s.P50, s.P99 = Quantile(sorted, 0.5).Seconds(), Quantile(sorted, 0.99).Seconds()
	s.Max = sorted[len(sorted)-1].Seconds()
	return s
}

// Quantile is the smallest of the values that a share q of them does not
// exceed.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
