// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package targets serves scrape targets in this process: those of a cluster that
// stays, of one whose pods can be replaced, and one that can expose new series at
// every scrape.
package targets

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/kubelike"
)

// The scrape jobs.
const (
	Steady    = "steady"
	Churning  = "churning"
	Exploding = "exploding"
)

const (
	// Explosion is the name of the series that explode; base of the exploding
	// target's series stay, behind the others in its exposition.
	Explosion = "exploding_series_total"
	base      = 1000
	// maxGap bounds what is made up for between two scrapes.
	maxGap = 10 * time.Second
)

// Set is all targets. Its methods may be used concurrently.
type Set struct {
	// Addr is where the targets are.
	Addr string
	// Jobs are the paths of the targets.
	Jobs map[string][]string

	server *http.Server
	done   chan struct{}

	mu       sync.Mutex
	churn    float64
	clock    time.Duration // of the churning cluster
	clockAt  time.Time
	explode  int
	exploded int
	lastBoom time.Time
	ahead    time.Time
}

// Serve starts serving clusters of so many series. The caller must call Close.
func Serve(steady, churning int) (*Set, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Set{Addr: l.Addr().String(), Jobs: map[string][]string{Exploding: {"/" + Exploding}}, done: make(chan struct{}), clockAt: time.Now()}
	mux := http.NewServeMux()
	for job, cfg := range map[string]kubelike.Config{
		Steady: {Series: steady, Start: time.Now()}, Churning: {Series: churning, Churn: 1, Seed: 1, Start: time.Now()},
	} {
		cluster, err := kubelike.New(cfg)
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		clock := func() time.Duration { return time.Since(begin) }
		if job == Churning {
			clock = s.churned
		}
		for _, t := range cluster.Targets() {
			path := "/" + job + "/" + t.Pool + "/" + t.Labels.Get(model.InstanceLabel)
			s.Jobs[job] = append(s.Jobs[job], path)
			mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _ = t.WriteText(w, clock()) }) // A scraper may leave.
		}
	}
	mux.HandleFunc("GET /"+Exploding, s.serveExploding)
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.done)
		_ = s.server.Serve(l) // It ends when it is closed.
	}()
	return s, nil
}

// Len is how many targets jobs have.
func (s *Set) Len(jobs ...string) (n int) {
	for _, job := range jobs {
		n += len(s.Jobs[job])
	}
	return n
}

// Close stops serving.
func (s *Set) Close() error {
	err := s.server.Close()
	<-s.done
	return err
}

// Churn has each pod of the churning cluster be replaced so often an hour.
func (s *Set) Churn(perHour float64) {
	s.churned()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.churn = perHour
}

// churned is the churning cluster's time, in which a pod lives for an hour.
func (s *Set) churned() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.clock += time.Duration(s.churn * float64(now.Sub(s.clockAt)))
	s.clockAt = now
	return s.clock
}

// Explode has the exploding target expose so many new series a second.
func (s *Set) Explode(perSecond int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.explode, s.lastBoom = perSecond, time.Now()
}

// Ahead has the exploding target expose one sample of a time to come.
func (s *Set) Ahead(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = at
}

// Exploded is how many new series the exploding target has exposed.
func (s *Set) Exploded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exploded
}

func (s *Set) serveExploding(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	now := time.Now()
	first := s.exploded
	s.exploded += int(float64(s.explode) * min(now.Sub(s.lastBoom), maxGap).Seconds())
	last, ahead := s.exploded, s.ahead
	s.lastBoom = now
	s.mu.Unlock()

	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	out := bufio.NewWriterSize(w, 64<<10)
	for i := first; i < last; i++ {
		fmt.Fprintf(out, "%s{user=\"user-%08d\",path=\"/api/v1/users/%08d/sessions\",namespace=\"shop\"} 1\n", Explosion, i, i)
	}
	for i := range base {
		fmt.Fprintf(out, "exploding_base_total{shard=\"%d\",namespace=\"shop\"} %d\n", i, now.Unix())
	}
	if !ahead.IsZero() {
		fmt.Fprintf(out, "%s 1 %d\n", Explosion, ahead.UnixMilli())
	}
	_ = out.Flush() // A scraper may leave.
}
