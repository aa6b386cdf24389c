// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// machine stands for a Prometheus that scrapes: what it answers follows from what
// happened to it.
type machine struct {
	mu sync.Mutex

	down, hung, replaying bool
	full                  bool    // Its disk is, so that it takes in nothing.
	reached               float64 // is the share of its targets that it reaches.
	skew, ahead           time.Duration
	mute                  bool // It has no metrics.

	interval, offset time.Duration
	groups           int // of targets, spread over the interval
	start, settled   time.Time
	appended         float64
	newest           time.Time
	taken            []float64 // by second, over all restarts
}

const samplesEach = 100 // of a group of targets at a scrape

func newMachine(interval, offset time.Duration, groups int) *machine {
	now := time.Now()
	return &machine{reached: 1, interval: interval, offset: offset, groups: groups, start: now, settled: now}
}

// settle lets the scrapes until now have happened. It is called before anything
// changes.
func (m *machine) settle() {
	now := time.Now()
	step := m.interval / time.Duration(m.groups)
	for t := m.settled.Add(-m.offset).Truncate(step).Add(step + m.offset); !t.After(now); t = t.Add(step) {
		if !m.down && !m.hung && !m.replaying && !m.full {
			n := m.reached*samplesEach + (1-m.reached)*5 // up=0 and the like.
			m.appended += n
			m.newest = t.Add(m.skew)
			m.take(t, n)
		}
	}
	m.settled = now
}

func (m *machine) take(t time.Time, n float64) {
	second := int(t.Sub(epoch) / time.Second)
	for len(m.taken) <= second {
		m.taken = append(m.taken, 0)
	}
	m.taken[second] += n
}

// epoch is where the clock of synctest begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// change does something to the machine.
func (m *machine) change(how func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle()
	how()
}

func (m *machine) stop() { m.change(func() { m.down = true }) }

// restart begins a new process. What it has is replayed.
func (m *machine) restart() {
	m.change(func() { m.down, m.start, m.appended = false, time.Now(), 0 })
}

func (m *machine) answer(ctx context.Context, path string) (code int, body string, err error) {
	m.mu.Lock()
	m.settle()
	down, hung := m.down, m.hung
	m.mu.Unlock()
	switch {
	case down:
		return 0, "", errRefused
	case hung:
		<-ctx.Done()
		return 0, "", ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case path == "/-/ready" && m.replaying:
		return http.StatusServiceUnavailable, "", nil
	case path == "/-/ready":
		return http.StatusOK, "", nil
	case path == "/api/v1/status/walreplay":
		return http.StatusOK, success(`{"percent":50}`), nil
	case path == "/api/v1/status/runtimeinfo":
		return http.StatusOK, success(fmt.Sprintf(`{"startTime":%q}`, m.start.Add(m.skew).Format(time.RFC3339Nano))), nil
	case path == "/metrics" && !m.mute:
		newest := float64(m.newest.Add(m.ahead).UnixMilli()) / 1000
		if m.newest.IsZero() {
			newest = -9.223372036854776e+15
		}
		return http.StatusOK, fmt.Sprintf("# HELP x y\nprocess_start_time_seconds %f\nprometheus_tsdb_head_max_time_seconds %f\n"+
			"prometheus_tsdb_head_samples_appended_total{type=\"float\"} %e\nprometheus_tsdb_head_samples_appended_total{type=\"histogram\"} 0\n",
			float64(m.start.Add(m.skew).UnixMilli())/1000, newest, m.appended), nil
	}
	return http.StatusNotFound, "", nil
}

// rack is how a proxy reaches machines, by host.
type rack struct {
	machines map[string]*machine

	mu  sync.Mutex
	cut map[string]bool // from this proxy
}

// RoundTrip implements http.RoundTripper.
func (r *rack) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	cut := r.cut[req.URL.Host]
	r.mu.Unlock()
	if cut {
		return nil, errors.New("no route to host")
	}
	m := r.machines[req.URL.Host]
	code, body, err := m.answer(req.Context(), req.URL.Path)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	header := http.Header{"Date": {time.Now().Add(m.skew).UTC().Format(http.TimeFormat)}}
	m.mu.Unlock()
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

func (r *rack) separate(host string, cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut[host] = cut
}

// proxyOf is a pool in front of machines, which watches them until the end of the
// test.
type proxyOf struct {
	*Pool
	*rack

	logs *bytes.Buffer
}

func newProxyOf(t *testing.T, staleAfter time.Duration, machines ...*machine) *proxyOf {
	t.Helper()
	g := &proxyOf{rack: &rack{machines: map[string]*machine{}, cut: map[string]bool{}}, logs: &bytes.Buffer{}}
	o := Options{
		Kind: KindPrometheus, Probe: ProbeWarn, StaleAfter: staleAfter, Transport: g.rack,
		Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(g.logs, nil)),
	}
	for i, m := range machines {
		host := string(rune('a' + i))
		g.machines[host] = m
		o.URLs = append(o.URLs, &url.URL{Scheme: "http", Host: host})
	}
	g.Pool = NewPool(o)
	_ = g.Check(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return g
}

// chosen is the host that is read from, or "".
func (g *proxyOf) chosen() string {
	if s, err := g.Pick(false); err == nil {
		return s.url.Host
	}
	return ""
}

func (g *proxyOf) switches() int { return int(testutil.ToFloat64(g.metrics.switches)) }

func (g *proxyOf) state(host string, state State) bool {
	return testutil.ToFloat64(g.metrics.state.WithLabelValues("http://"+host, state.String())) == 1
}

func (g *proxyOf) missing(host string) time.Duration {
	return time.Duration(testutil.ToFloat64(g.metrics.missing.WithLabelValues("http://"+host)) * float64(time.Second))
}
