// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package targets serves scrape targets in this process and remembers when each
// was scraped.
package targets

import (
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/bench/kubelike"
	"github.com/promguard/promguard/bench/oomstorm/internal/slots"
)

const (
	// Job is the scrape job of all targets.
	Job = "live"

	series = 4000
	most   = 5
)

// Set is a handful of targets. Its methods may be used concurrently.
type Set struct {
	// Addr is where the targets are, Paths are theirs.
	Addr  string
	Paths []string

	server *http.Server
	done   chan struct{}
	mu     sync.Mutex
	seen   map[string][]time.Time
}

// Serve starts serving. The caller must call Close.
func Serve() (*Set, error) {
	cluster, err := kubelike.New(kubelike.Config{Series: series, Start: time.Now()})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Set{Addr: l.Addr().String(), done: make(chan struct{}), seen: map[string][]time.Time{}}
	for _, t := range cluster.Targets()[:min(most, len(cluster.Targets()))] {
		s.Paths = append(s.Paths, "/metrics/"+t.Pool+"/"+t.Labels.Get(model.InstanceLabel))
	}
	s.server = &http.Server{Handler: s.remember(kubelike.NewHandler(cluster)), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.done)
		_ = s.server.Serve(l) // It ends when it is closed.
	}()
	return s, nil
}

// Close stops serving.
func (s *Set) Close() error {
	err := s.server.Close()
	<-s.done
	return err
}

func (s *Set) remember(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := time.Now()
		s.mu.Lock()
		s.seen[r.URL.Path] = append(s.seen[r.URL.Path], now)
		s.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

// Forget forgets all scrapes so far: those of a server that has ended.
func (s *Set) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.seen)
}

// Scraped is how often the target was scraped that was scraped least.
func (s *Set) Scraped() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.seen[s.Paths[0]])
	for _, path := range s.Paths {
		n = min(n, len(s.seen[path]))
	}
	return n
}

// Check counts the scrapes that were due from start to end.
func (s *Set) Check(interval time.Duration, start, end time.Time) slots.Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all slots.Count
	for _, path := range s.Paths {
		if times := s.seen[path]; len(times) > 0 {
			all.Add(slots.Check(times[0], interval, times, start, end))
		}
	}
	return all
}
