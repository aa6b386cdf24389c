// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package kubelike

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// Handler serves a cluster: GET /metrics/POOL/INSTANCE is a target's exposition
// now, and GET /sd/POOL lists a pool's targets for http_sd_configs. Times before
// the cluster's start are served as the start.
type Handler struct {
	cluster *Cluster
	pools   map[string]map[string]*Target
	mux     *http.ServeMux
}

// NewHandler makes a Handler.
func NewHandler(c *Cluster) *Handler {
	h := &Handler{cluster: c, pools: map[string]map[string]*Target{}, mux: http.NewServeMux()}
	for _, t := range c.Targets() {
		if h.pools[t.Pool] == nil {
			h.pools[t.Pool] = map[string]*Target{}
		}
		h.pools[t.Pool][t.Labels.Get(model.InstanceLabel)] = t
	}
	h.mux.HandleFunc("GET /metrics/{pool}/{instance}", h.serveTarget)
	h.mux.HandleFunc("GET /sd/{pool}", h.serveDiscovery)
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

func (h *Handler) serveTarget(w http.ResponseWriter, r *http.Request) {
	t, ok := h.pools[r.PathValue("pool")][r.PathValue("instance")]
	if !ok {
		http.Error(w, "no such target; /sd/POOL lists the targets of a pool", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	// The only error is a scraper that has left.
	_ = t.WriteText(w, max(0, time.Since(h.cluster.cfg.Start)))
}

// targetGroup is an entry of Prometheus' HTTP service discovery.
type targetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

func (h *Handler) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	if _, ok := h.pools[r.PathValue("pool")]; !ok {
		http.Error(w, "no such pool", http.StatusNotFound)
		return
	}
	groups := []targetGroup{}
	for _, t := range h.cluster.Targets() {
		if t.Pool != r.PathValue("pool") {
			continue
		}
		ls := map[string]string{model.MetricsPathLabel: "/metrics/" + t.Pool + "/" + t.Labels.Get(model.InstanceLabel)}
		t.Labels.Range(func(l labels.Label) { ls[l.Name] = l.Value })
		groups = append(groups, targetGroup{Targets: []string{r.Host}, Labels: ls})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(groups)
}
