// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// roundEvery is how often the samples of the servers are compared: each gathers all
// of its metrics for it, as for a scrape. It is done when the clock strikes, so that
// several proxies see the same.
const roundEvery = 15 * time.Second

// MinStaleAfter is the least that Options.StaleAfter may be besides 0: the samples
// between the last round and a restart are not known.
const MinStaleAfter = 2 * roundEvery

// maxMetrics bounds what is read of /metrics.
const maxMetrics = 64 << 20

// reading is what the metrics of a server tell.
type reading struct {
	start    time.Time // of the process
	appended float64   // samples that the process took in
	lag      time.Duration
}

// startJitter is how much the start of one process may change: it is told relative to
// that of the machine, which moves with the clock.
const startJitter = 5 * time.Second

func (p *Pool) comparesSamples() bool {
	return !p.Alone() && p.staleAfter > 0 && p.kind == KindPrometheus
}

// maxSeconds is the end of the year 9999.
const maxSeconds = 253402300800

// read asks a server for its metrics. The API has the same in status/tsdb, which goes
// through all postings, and a query would read series. The time is that of the server:
// neither does it have to agree with that of the other, nor makes a sample from the
// future a server look new when it is not. An empty head is as old as the process.
func (p *Pool) read(ctx context.Context, s *Server) (reading, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var newest, start, appended float64
	header, err := p.eachMetric(ctx, s, func(name, _ string, value float64) {
		switch name {
		case "process_start_time_seconds":
			start = value
		case "prometheus_tsdb_head_max_time_seconds":
			newest = value
		case "prometheus_tsdb_head_samples_appended_total": // One for each type.
			appended += value
		}
	})
	if err != nil {
		return reading{}, err
	}
	if !(start > 0 && start < maxSeconds && appended >= 0 && appended <= math.MaxFloat64) {
		return reading{}, errors.New("no samples are counted at /metrics")
	}
	clock, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		clock = time.Now()
	}
	r := reading{start: time.UnixMilli(int64(start * 1000)), appended: appended}
	if newest = max(newest, start); newest < float64(clock.Unix()) {
		r.lag = clock.Sub(time.UnixMilli(int64(newest * 1000)))
	}
	return r, nil
}

// number returns NaN for what is none.
func number(text string) float64 {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

// watchSamples compares the servers until ctx is done.
func (p *Pool) watchSamples(ctx context.Context) {
	for {
		now := time.Now()
		timer := time.NewTimer(now.Truncate(roundEvery).Add(roundEvery).Sub(now))
		select {
		case <-timer.C:
		case <-p.returned:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
		p.compareNow(ctx)
	}
}

// compareNow reads the metrics of all servers that are ready, and compares them.
func (p *Pool) compareNow(ctx context.Context) {
	at := time.Now()
	lives := p.ready()
	told := make([]*reading, len(p.servers))
	var wg sync.WaitGroup
	for i, s := range p.servers {
		if lives[i] >= 0 {
			wg.Go(func() {
				if r, err := p.read(ctx, s); err == nil {
					told[i] = &r
				}
			})
		}
	}
	wg.Wait()
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.servers {
		if s.lives != lives[i] {
			told[i] = nil // It ceased to be ready, and may be another since.
		}
	}
	p.compare(at, told)
	for i, s := range p.servers {
		if s.lives == lives[i] {
			p.acquit(i, told[i] != nil)
		}
	}
	p.choose(time.Now())
}

// ready returns the life of each server that is ready, and -1 for the others.
func (p *Pool) ready() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	lives := make([]int, len(p.servers))
	for i, s := range p.servers {
		if lives[i] = s.lives; s.state != Ready {
			lives[i] = -1
		}
	}
	return lives
}

// compare notes what each server misses of what another one has. That nothing is
// known of a server now, or of all others, is no news.
func (p *Pool) compare(at time.Time, told []*reading) {
	taken := make([]float64, len(told))
	for i, s := range p.servers {
		taken[i] = math.NaN()
		if told[i] != nil {
			s.read(*told[i])
			taken[i] = s.taken
		}
	}
	p.history.add(at, taken)
	for i, s := range p.servers {
		most, known, behind := time.Duration(0), false, false
		for o := range told {
			if o != i && told[i] != nil && told[o] != nil {
				lack := p.lack(i, o, told)
				most, known = max(most, lack), true
				behind = behind || lack-p.lack(o, i, told) > p.staleAfter
			}
		}
		if known {
			s.missing, s.behind = most, behind
		}
		if known && behind {
			s.hole = at
		}
	}
}

// lack is what the server i misses of what the server o has: what it did not take in
// while promguard watched, or what is older than that of the other.
func (p *Pool) lack(i, o int, told []*reading) time.Duration {
	return max(p.history.missing(i, o), told[i].lag-told[o].lag)
}

// read adds what a server took in since it was read before, be it as another process.
func (s *Server) read(r reading) {
	switch before := s.reading; {
	case before == nil:
	case r.appended < before.appended: // It was restarted.
		s.taken += r.appended
		s.hole = time.Time{} // It is complete since its start at most.
	default:
		s.taken += r.appended - before.appended
		if r.start.Sub(before.start).Abs() < startJitter {
			r.start = before.start
		}
	}
	s.start, s.reading = r.start, &r
}

// acquit decides of a server that is back whether it has a hole since: promguard
// alone may not have reached it. If nobody knows, it has.
func (p *Pool) acquit(i int, told bool) {
	s, known := p.servers[i], false
	if s.lost.IsZero() {
		return
	}
	var most time.Duration
	for o := range p.servers {
		if lack, ok := p.history.missingSince(s.lost, i, o); ok && o != i && told {
			most, known = max(most, lack), true
		}
	}
	if !known || 2*most > s.readySince.Sub(s.lost) {
		s.hole = s.readySince
	}
	s.lost = time.Time{}
}
