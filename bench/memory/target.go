// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// metrics is how many series a pod has.
const metrics = 60

// target exposes what a kubelet's cAdvisor does of many pods: labels of 480 bytes.
type target struct {
	addr   string
	pods   int
	idle   atomic.Bool // It exposes nothing.
	seen   atomic.Int64
	server *http.Server
}

func serve(pods int) (*target, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &target{addr: l.Addr().String(), pods: pods}
	t.server = &http.Server{Handler: t, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = t.server.Serve(l) }() // It ends when it is closed.
	return t, nil
}

// Close stops serving.
func (t *target) Close() { _ = t.server.Close() }

// ServeHTTP implements http.Handler.
func (t *target) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	n := t.seen.Add(1)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	out := bufio.NewWriterSize(w, 1<<20)
	defer func() { _ = out.Flush() }() // A client that has left is not told.
	if t.idle.Load() {
		return
	}
	for m := range metrics {
		fmt.Fprintf(out, "# TYPE container_metric_%d_total counter\n", m)
		for p := range t.pods {
			fmt.Fprintf(out, `container_metric_%d_total{container="app-%d",id="/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%032x.slice/cri-containerd-%064x.scope",image="registry.example.org/team-%d/app@sha256:%064x",name="%064x",namespace="namespace-%d",pod="some-deployment-%010x-%05x"} %d`+"\n",
				m, p%20, p, p, p%40, p%400, p, p%200, p/10, p, int(n)*(m+p))
		}
	}
}
