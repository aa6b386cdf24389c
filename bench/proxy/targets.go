// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/promguard/promguard/internal/proc"
)

// target is a process that answers requests.
type target struct {
	name, url string
	pid       int
	client    *http.Client
}

// startTargets starts the server, a bare proxy and the given ones before it. The caller
// calls stop, whatever the error.
func startTargets(proxies []string) (targets []*target, stop func(), err error) {
	var running []*proc.Process
	stop = func() {
		for _, p := range running {
			p.Kill()
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, stop, err
	}
	upstream := ""
	for _, spec := range append([]string{"none=" + self + " serve --listen={listen}", "bare=" + self + " serve --listen={listen} --upstream={upstream}"}, proxies...) {
		name, command, _ := strings.Cut(spec, "=")
		listen, err := proc.FreeAddress()
		if err != nil {
			return nil, stop, err
		}
		args := strings.Fields(strings.NewReplacer("{listen}", listen, "{upstream}", upstream).Replace(command))
		if len(args) == 0 {
			return nil, stop, fmt.Errorf("--proxy=%q: use NAME=PATH [ARG...]", spec)
		}
		p, err := proc.Start(exec.Command(args[0], args[1:]...), nil)
		if err != nil {
			return nil, stop, fmt.Errorf("%s: %w", name, err)
		}
		running = append(running, p)
		if err := waitListens(p, listen); err != nil {
			return nil, stop, fmt.Errorf("%s: %w", name, err)
		}
		t := &target{name, "http://" + listen, p.PID(), &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}}}
		if targets = append(targets, t); upstream == "" {
			upstream = t.url
		}
	}
	return targets, stop, nil
}

func waitListens(p *proc.Process, address string) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 10*time.Second, errors.New("nothing listens on "+address))
	defer cancel()
	for {
		if conn, err := net.Dial("tcp", address); err == nil {
			return conn.Close()
		}
		if err := p.Wait(ctx); err != nil {
			return p.Error("not ready", err.Error())
		}
	}
}

// answer is a small matrix.
var answer = `{"status":"success","data":{"resultType":"matrix","result":[` + strings.Repeat(`{"metric":{"job":"api"},"values":[[1700000000,"1"]]},`, 20) +
	`{"metric":{"job":"web"},"values":[[1700000000,"1"]]}]}}`

// metrics are what a Prometheus with 500,000 series says of itself.
const metrics = `process_resident_memory_bytes 2e+09
prometheus_tsdb_lowest_timestamp_seconds 1.6e+09
prometheus_target_interval_length_seconds_count{interval="30s"} 100
`

// cardinalities are those of the same one, in the answer of status/tsdb.
func cardinalities() []byte {
	type entry struct {
		Name  string `json:"name"`
		Value int    `json:"value"`
	}
	list := func(n int, format string, first int) (l []entry) {
		for i := range n {
			l = append(l, entry{fmt.Sprintf(format, i), first / (i + 1)})
		}
		return l
	}
	pairs := append([]entry{{"job=api", 40_000}, {"code=200", 9000}, {"code=404", 500}, {"code=500", 300}}, list(9990, "pod=api-%d", 300)...)
	status := map[string]any{"status": "success", "data": map[string]any{
		"headStats":                   map[string]int{"numSeries": 500_000, "minTime": 1_699_990_000_000},
		"seriesCountByMetricName":     append(list(1500, "metric_%d", 40_000), entry{"http_requests_total", 12_000}),
		"labelValueCountByLabelName":  []entry{{"job", 30}, {"code", 3}, {"pod", 9990}},
		"seriesCountByLabelValuePair": pairs,
	}}
	body, _ := json.Marshal(status) // It always marshals.
	return body
}

// newHandler returns the server, or a bare proxy before one.
func newHandler(upstream *url.URL) http.Handler {
	if upstream != nil {
		return &httputil.ReverseProxy{
			Rewrite:    func(pr *httputil.ProxyRequest) { pr.SetURL(upstream); pr.SetXForwarded() },
			Transport:  &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true},
			BufferPool: &bufferPool{}, // Otherwise buffers are most of what it costs.
		}
	}
	status := cardinalities()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/metrics":
			_, _ = io.WriteString(w, metrics)
		case "/api/v1/status/tsdb":
			_, _ = w.Write(status)
		default:
			_ = r.ParseForm() // As Prometheus does.
			_, _ = io.WriteString(w, answer)
		}
	})
}

// bufferPool holds the buffers of the bare proxy.
type bufferPool struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (b *bufferPool) Get() []byte {
	if buf, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return buf[:]
	}
	return make([]byte, 32<<10)
}

// Put implements httputil.BufferPool.
func (b *bufferPool) Put(buf []byte) { b.pool.Put((*[32 << 10]byte)(buf)) }
