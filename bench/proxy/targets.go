// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"

	"github.com/promguard/promguard/internal/proxy"
	"github.com/promguard/promguard/internal/proxy/config"
)

const goos, goarch = runtime.GOOS, runtime.GOARCH

// answer is a small matrix.
var answer = `{"status":"success","data":{"resultType":"matrix","result":[` + strings.Repeat(`{"metric":{"job":"api"},"values":[[1700000000,"1"]]},`, 20) +
	`{"metric":{"job":"web"},"values":[[1700000000,"1"]]}]}}`

// policy has every limit on, and rules to go through.
const policy = `
limits:
  range: {mode: enforce}
  oldest: {mode: enforce, max: 36500d}
  metadata_range: {mode: enforce}
  response_bytes:
    mode: enforce
    query: {max: 17179869184, truncate: false}
    metadata: {max: 17179869184, truncate: false}
admission: {max: 100, tenant_max: 50}
identity: {peers: [127.0.0.0/8]}
rules:
  - name: deny-a-query
    match: {query: 'count_values\(.*container_'}
    deny: {}
  - name: deny-a-dashboard
    match: {dashboard: [a, b, c]}
    deny: {}
`

// target is something that answers requests.
type target struct {
	name   string
	url    string
	stats  string // where its process tells its usage; empty if it does not
	client *http.Client
}

// startTargets starts the server and what stands in front of it.
func startTargets(labelProxy string) (targets []*target, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, stop, err
	}
	server := ""
	for _, kind := range []string{"server", "bare", "promguard"} {
		address, stopOne, err := startSelf(self, kind, server)
		if err != nil {
			return nil, stop, fmt.Errorf("%s: %w", kind, err)
		}
		stops = append(stops, stopOne)
		if kind == "server" {
			server = "http://" + address
		}
		name := map[string]string{"server": "none"}[kind]
		if name == "" {
			name = kind
		}
		targets = append(targets, newTarget(name, "http://"+address, "http://"+address+"/usage"))
	}
	if labelProxy != "" {
		address, stopOne, err := startLabelProxy(labelProxy, server)
		if err != nil {
			return nil, stop, fmt.Errorf("%s: %w", labelProxy, err)
		}
		stops = append(stops, stopOne)
		targets = append(targets, newTarget("prom-label-proxy", "http://"+address, ""))
	}
	return targets, stop, nil
}

func newTarget(name, url, stats string) *target {
	return &target{name, url, stats, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}}}
}

func startSelf(self, kind, server string) (address string, stop func(), err error) {
	cmd := exec.Command(self, "serve", "--kind="+kind, "--upstream.url="+server)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		stdin.Close()
		_ = cmd.Wait() // It has nothing more to say.
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, err
	}
	return strings.TrimSpace(line), stop, nil
}

func startLabelProxy(path, server string) (address string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = l.Addr().String()
	l.Close()
	cmd := exec.Command(path, "--insecure-listen-address="+address, "--upstream="+server, "--label=job", "--label-value=api")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for range 100 {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return address, stop, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	return "", nil, fmt.Errorf("does not listen on %s", address)
}

// serveTarget is a process of a target. It prints its address.
func serveTarget(kind, upstream string) error {
	handler, err := newHandler(kind, upstream)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/usage" {
			writeUsage(w)
			return
		}
		handler.ServeHTTP(w, r)
	})}
	return srv.Serve(l)
}

func newHandler(kind, upstream string) (http.Handler, error) {
	if kind == "server" {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.FormValue("query") == "" {
				http.Error(w, "no query", http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer)
		}), nil
	}
	u, err := url.Parse(upstream)
	if err != nil {
		return nil, err
	}
	if kind == "bare" {
		return &httputil.ReverseProxy{
			Rewrite:    func(pr *httputil.ProxyRequest) { pr.SetURL(u); pr.SetXForwarded() },
			Transport:  proxy.NewTransport(),
			BufferPool: &bufferPool{}, // Otherwise buffers are most of what it costs.
		}, nil
	}
	c, err := config.Parse([]byte(policy))
	if err != nil {
		return nil, err
	}
	return proxy.New(proxy.Options{
		Upstream: u, Registerer: prometheus.NewRegistry(), Logger: promslog.NewNopLogger(),
		Policy: proxy.Policy{Rules: c.Rules, Identity: c.Identity, Admission: c.Admission, Collapse: c.Collapse},
	}), nil
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

func writeUsage(w io.Writer) {
	var (
		m runtime.MemStats
		r syscall.Rusage
	)
	runtime.ReadMemStats(&m)
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r) // Fails for no process of its own.
	cpu := time.Duration(syscall.TimevalToNsec(r.Utime) + syscall.TimevalToNsec(r.Stime))
	_ = json.NewEncoder(w).Encode(usage{m.Mallocs, m.TotalAlloc, cpu})
}
