// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/kubelike"
)

// pool is a scrape pool of the modelled cluster.
type pool struct {
	name        string
	honorLabels bool
}

// targets serves a modelled cluster. It is the proxy of all scrapes, so that each target
// has an address of its own, by which the operator shares targets among servers.
type targets struct {
	address string
	pools   []pool
	count   int

	server  *http.Server
	cluster *kubelike.Cluster
	start   time.Time
	beat    time.Duration // 0: a target says what is; else what was at the last beat, with that time

	mu    sync.Mutex
	from  time.Time // targets expose nothing before, as servers that start later would miss it
	cache map[*kubelike.Target]exposition
}

type exposition struct {
	at   time.Time
	text []byte
}

// serveTargets serves a cluster of so many series, without some pools, until it is closed.
func serveTargets(l net.Listener, series int, without []string, beat time.Duration) (*targets, error) {
	t := &targets{address: l.Addr().String(), start: time.Now(), beat: beat, cache: map[*kubelike.Target]exposition{}}
	if beat > 0 {
		t.start = t.start.Truncate(beat)
		t.from = t.start.AddDate(1, 0, 0)
	}
	var err error
	if t.cluster, err = kubelike.New(kubelike.Config{Series: series, Seed: 1, Start: t.start}); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", kubelike.NewHandler(t.cluster))
	for _, target := range t.cluster.Targets() {
		if slices.Contains(without, target.Pool) {
			continue
		}
		p := pool{target.Pool, target.HonorLabels}
		if !slices.Contains(t.pools, p) {
			t.pools = append(t.pools, p)
		}
		t.count++
		if beat > 0 {
			mux.HandleFunc("GET /metrics/"+target.Pool+"/"+target.Labels.Get(model.InstanceLabel), func(w http.ResponseWriter, _ *http.Request) { t.serveBeat(w, target) })
		}
	}
	t.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = t.server.Serve(l) }() // It ends when it is closed.
	return t, nil
}

// serveBeat serves what a target was at the last beat, with that time, so that servers
// that scrape it at different times store the same samples.
func (t *targets) serveBeat(w http.ResponseWriter, target *kubelike.Target) {
	text, err := t.at(target, time.Now().Truncate(t.beat))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(text)
}

func (t *targets) at(target *kubelike.Target, at time.Time) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.cache[target]; e.at.Equal(at) || at.Before(t.from) {
		return e.text, nil
	}
	var plain, stamped bytes.Buffer
	if err := target.WriteText(&plain, at.Sub(t.start)); err != nil {
		return nil, err
	}
	stamp := append([]byte(" "), strconv.FormatInt(at.UnixMilli(), 10)...)
	for line := range bytes.Lines(plain.Bytes()) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		stamped.Write(line)
		if line[0] != '#' {
			stamped.Write(stamp)
		}
		stamped.WriteByte('\n')
	}
	t.cache[target] = exposition{at, stamped.Bytes()}
	return stamped.Bytes(), nil
}

// prometheusConfig is the configuration of a server of one shard, or with one shard of
// the only one.
func (t *targets) prometheusConfig(interval time.Duration, replica string, shard, shards int) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "global: {scrape_interval: %s, scrape_timeout: %s, external_labels: {%s: monitoring/k8s, %s: %s}}\nscrape_configs:\n",
		interval, interval, prometheusLabel, replicaLabel, replica)
	for _, p := range t.pools {
		fmt.Fprintf(&b, `- job_name: %s
  honor_labels: %t
  proxy_url: http://%s
  http_sd_configs: [{url: "http://%s/sd/%s"}]
  relabel_configs:
  - {source_labels: [instance], target_label: __address__}
  # As the operator shares targets.
  - {source_labels: [__address__], target_label: __tmp_hash, modulus: %d, action: hashmod}
  - {source_labels: [__tmp_hash], regex: "%d", action: keep}
`, p.name, p.honorLabels, t.address, t.address, p.name, shards, shard)
	}
	return b.String()
}

// The labels that the operator gives servers.
const (
	prometheusLabel = "prometheus"
	replicaLabel    = "prometheus_replica"
)
