// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promguard/promguard/internal/proxy"
	"github.com/promguard/promguard/internal/proxy/config"
	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/proxy/tracing"
)

// reloader loads the policy file and hands the policy on. A file that is refused
// leaves the policy as it was.
type reloader struct {
	path   string
	apply  func(proxy.Policy)
	logger *slog.Logger

	mu  sync.Mutex // one load at a time
	log *querylog.Log

	tracing *tracing.Manager
	logLost func()
	// toldLost is when it was logged that an entry was lost, in seconds.
	toldLost atomic.Int64

	success, successTime, hash prometheus.Gauge
}

func newReloader(path string, reg prometheus.Registerer, logger *slog.Logger) *reloader {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		reg.MustRegister(g)
		return g
	}
	return &reloader{
		path:        path,
		logger:      logger,
		tracing:     tracing.NewManager(logger),
		success:     gauge("promguard_config_last_reload_successful", "1 if the last load of the policy file succeeded, else 0."),
		successTime: gauge("promguard_config_last_reload_success_timestamp_seconds", "When a policy file was last loaded with success."),
		hash:        gauge("promguard_config_hash", "First 48 bits of the SHA-256 of the policy file in force."),
	}
}

// load reads the file and keeps the metrics about it.
func (r *reloader) load() (proxy.Policy, error) {
	c, err := config.Load(r.path)
	if err != nil {
		r.success.Set(0)
		return proxy.Policy{}, fmt.Errorf("--config.file: %w", err)
	}
	log, err := querylog.Open(c.QueryLog, r.lost)
	if err != nil {
		r.success.Set(0)
		return proxy.Policy{}, fmt.Errorf("--config.file: query_log: %w", err)
	}
	tracer, err := r.tracing.Apply(c.Tracing)
	if err != nil {
		_ = log.Close() // Nothing is in it.
		r.success.Set(0)
		return proxy.Policy{}, fmt.Errorf("--config.file: tracing: %w", err)
	}
	r.success.Set(1)
	r.successTime.SetToCurrentTime()
	r.hash.Set(c.HashNumber())
	r.logger.Debug("Policy loaded", "file", r.path, "sha256", c.HashText())
	return proxy.Policy{Rules: c.Rules, Identity: c.Identity, Admission: c.Admission, Collapse: c.Collapse, Open: c.Open, PageUsers: c.PageUsers, Log: log, Tracer: tracer, Redact: c.QueryLog.Redact, Hash: c.HashText()[:12]}, nil
}

// lost counts an entry of the query log that could not be written, and says why once a
// minute.
func (r *reloader) lost(err error) {
	r.logLost()
	now, last := time.Now().Unix(), r.toldLost.Load()
	if now-last >= 60 && r.toldLost.CompareAndSwap(last, now) {
		r.logger.Error("Query log cannot be written; requests are missing in it", "err", err)
	}
}

func (r *reloader) reload() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	policy, err := r.load()
	if err != nil {
		r.logger.Error("Policy not reloaded; the one before stays in force", "err", err)
		return err
	}
	r.use(policy)
	r.logger.Info("Policy reloaded", "file", r.path)
	return nil
}

// use hands a policy on, and then closes the query log of the one before. It is
// opened anew on every reload, so that it can be rotated.
func (r *reloader) use(policy proxy.Policy) {
	r.apply(policy)
	if err := r.log.Close(); err != nil {
		r.logger.Warn("Query log not closed", "err", err)
	}
	r.log = policy.Log
}

// close closes the query log and sends the last spans. The log comes first: a
// collector that hangs takes seconds, in which the process may be killed.
func (r *reloader) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.log.Close(); err != nil {
		r.logger.Warn("Query log not closed", "err", err)
	}
	r.tracing.Close()
}

// handle is POST /-/reload.
func (r *reloader) handle(w http.ResponseWriter, _ *http.Request) {
	if err := r.reload(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// addReloads reloads on each SIGHUP.
func addReloads(g *run.Group, r *reloader, hup <-chan os.Signal) {
	stop := make(chan struct{})
	g.Add(func() error {
		for {
			select {
			case <-hup:
				_ = r.reload() // Logged and counted there.
			case <-stop:
				return nil
			}
		}
	}, func(error) { close(stop) })
}
