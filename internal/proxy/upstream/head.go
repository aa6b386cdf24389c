// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promguard/promguard/internal/querylimit"
)

const (
	// headEvery is how often to ask a server for its series at most: it counts them
	// twice a minute at most itself. headShare is the share of time that it may take.
	headEvery = time.Minute
	headShare = 200
	// headEntries is how many entries of a list a server gives at most.
	headEntries = 10_000
)

// Head returns what is known of the series of the server that is read from; nil if
// that is nothing.
func (p *Pool) Head() *querylimit.Head { return p.head.Load() }

// watchHead keeps Head up to date until ctx is done.
func (p *Pool) watchHead(ctx context.Context) {
	pause := time.Duration(0)
	if p.Head() != nil { // Check has just asked.
		pause = headEvery
	}
	for {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = p.learnHead(ctx)
	}
}

// learnHead asks the server that is read from for its series, and returns how long it
// is to be left in peace. What cannot be asked now stays as it was.
func (p *Pool) learnHead(ctx context.Context) (pause time.Duration) {
	p.mu.Lock()
	s := p.chosen.Load()
	ready, kind := s != nil && s.state == Ready, p.kind
	if ready && s.facts != nil {
		kind = cmp.Or(s.facts.Kind, kind)
	}
	p.mu.Unlock()
	ask := map[Kind]func(context.Context, *Server) (*querylimit.Head, error){
		KindPrometheus: p.askHead, KindThanos: p.askThanos,
	}[kind]
	switch {
	case p.mode == ProbeOff || ask == nil:
		return headEvery
	case !ready:
		return lookEvery
	}
	start := time.Now()
	asking, cancel := context.WithTimeout(ctx, 5*lookTimeout)
	defer cancel()
	h, err := ask(asking, s)
	if err == nil {
		p.head.Store(h)
		p.learned(h)
		p.metrics.series.Set(float64(h.Series))
		p.metrics.memory.Set(float64(h.Memory))
	} else if ctx.Err() == nil {
		p.logger.Debug("Upstream server does not tell its series", "server", s.name, "err", err)
		if p.Head() == nil {
			return min(lookEvery+headShare*time.Since(start), headEvery)
		}
	}
	return max(headEvery, headShare*time.Since(start))
}

// tsdbStatus is what /api/v1/status/tsdb answers.
type tsdbStatus struct {
	HeadStats struct {
		NumSeries int
		MinTime   int64
	}
	SeriesCountByMetricName, LabelValueCountByLabelName, MemoryInBytesByLabelName, SeriesCountByLabelValuePair []struct {
		Name  string
		Value int
	}
}

// ask returns a successful answer.
func ask[T any](ctx context.Context, p *Pool, s *Server, path, query string) (e envelope[T], err error) {
	a, err := p.get(ctx, s, apiPrefix+path, query)
	if err != nil {
		return e, err
	}
	if e = envelopeOf[T](a); e.Status != statusSuccess {
		return e, fmt.Errorf("status %d at %s%s", a.code, apiPrefix, path)
	}
	return e, nil
}

func (p *Pool) askHead(ctx context.Context, s *Server) (*querylimit.Head, error) {
	status, err := ask[tsdbStatus](ctx, p, s, "status/tsdb", "limit="+strconv.Itoa(headEntries))
	if err != nil {
		return nil, err
	}
	h := status.Data.head()
	return h, p.readMetrics(ctx, s, h)
}

// head returns what the lists say. One with as many entries as were asked for may have
// left some out, none of which is larger than the last.
func (t *tsdbStatus) head() *querylimit.Head {
	h := &querylimit.Head{
		Series: t.HeadStats.NumSeries, Since: time.UnixMilli(t.HeadStats.MinTime),
		Counts: map[string]map[string]int{}, Values: map[string]int{},
	}
	put := func(label, value string, n int) {
		if h.Counts[label] == nil {
			h.Counts[label] = map[string]int{}
		}
		h.Counts[label][value] = n
	}
	for _, pair := range t.SeriesCountByLabelValuePair {
		label, value, _ := strings.Cut(pair.Name, "=")
		put(label, value, pair.Value)
	}
	for _, metric := range t.SeriesCountByMetricName {
		put(labels.MetricName, metric.Name, metric.Value)
	}
	for _, label := range t.LabelValueCountByLabelName {
		h.Values[label.Name] = label.Value
	}
	if list := t.SeriesCountByMetricName; len(list) >= headEntries {
		h.UnlistedMetric = list[len(list)-1].Value
	}
	if list := t.SeriesCountByLabelValuePair; len(list) >= headEntries {
		h.UnlistedValue = list[len(list)-1].Value
	}
	return h
}

// What a server without a limit of its own may take, as a multiple of what it has.
const headroom = 2.5

// usualInterval is that between samples of servers that scrape nothing.
const usualInterval = 15 * time.Second

// readMetrics reads the memory of a server, its first sample, and how often it scrapes.
func (p *Pool) readMetrics(ctx context.Context, s *Server, h *querylimit.Head) error {
	resident, limit, scraped := 0.0, 0.0, time.Duration(math.MaxInt64)
	h.Oldest = h.Since
	_, err := p.eachMetric(ctx, s, func(name, pairs string, value float64) {
		switch name {
		case "process_resident_memory_bytes":
			resident = value
		case "go_gc_gomemlimit_bytes":
			limit = value
		case "prometheus_tsdb_lowest_timestamp_seconds":
			if value > 0 && value < maxSeconds {
				h.Oldest = time.Unix(int64(value), 0)
			}
		case "prometheus_target_interval_length_seconds_count":
			_, text, _ := strings.Cut(pairs, `interval="`)
			text, _, _ = strings.Cut(text, `"`)
			if d, err := time.ParseDuration(text); err == nil && d > 0 {
				scraped = min(scraped, d)
			}
		}
	})
	if scraped == math.MaxInt64 { // Its samples come from elsewhere.
		scraped = usualInterval
	}
	h.Interval = min(scraped, p.Assumed().SubqueryStep) // Rules make series, too.
	if h.Memory = int64(limit); limit <= 0 || limit >= math.MaxInt64 {
		h.Memory = int64(headroom * resident)
	}
	h.Resident = int64(resident)
	return err
}

// eachMetric asks a server for its metrics, hands them on one by one, and returns the
// headers of the answer.
func (p *Pool) eachMetric(ctx context.Context, s *Server, see func(name, pairs string, value float64)) (http.Header, error) {
	res, err := p.open(ctx, s, "/metrics", "")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d at /metrics", res.StatusCode)
	}
	lines := bufio.NewScanner(io.LimitReader(res.Body, maxMetrics))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		name, pairs, _ := strings.Cut(name, "{")
		see(name, pairs, number(value))
	}
	return res.Header, lines.Err()
}
