// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package size says how many patched servers a cluster needs, and how large: from a
// model of what a cluster exposes, or from what a server of today has.
package size

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promguard/promguard/internal/kubelike"
	"github.com/promguard/promguard/internal/promapi"
	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/estimate"
)

// Part is what is scraped of one job.
type Part struct {
	Job     string  `json:"job"`
	Targets float64 `json:"targets"`
	// Series are stored, Dropped are scraped and not stored.
	Series   float64 `json:"series"`
	Dropped  float64 `json:"dropped"`
	Interval float64 `json:"interval_seconds"`
}

// Load is what a cluster's servers have to hold.
type Load struct {
	Source string `json:"source"`
	Parts  []Part `json:"parts"`
	// HeadFactor is how many series are in memory for each that is scraped now.
	HeadFactor float64        `json:"head_factor"`
	Sizes      estimate.Sizes `json:"sizes"`
	Notes      []string       `json:"notes"`
}

// Cluster is what a load is modelled for.
type Cluster struct {
	Nodes, PodsPerNode int
	Interval           time.Duration
	// Churn is the share of the pods that is replaced in an hour.
	Churn float64
}

const (
	// inHead is for how many hours at most a series stays in memory after its end.
	inHead = 3
	// controlPlane is how many machines run API servers and etcd.
	controlPlane = 3
	// modelSeries is enough for an API server with all the resources that the model
	// knows, and for nodes full of pods.
	modelSeries = 100_000
)

// count counts series, of which so many are dropped.
type count struct{ series, dropped float64 }

func (c count) times(n float64) count { return count{c.series * n, c.dropped * n} }

// unit is what is counted once per target, or node, or once per pod, of a scrape pool.
type unit struct {
	pool string
	pod  bool
}

// units counts what the model has for each unit.
func units(p relabel.Profile) (map[unit]count, error) {
	dropper, err := relabel.Compile(p)
	if err != nil {
		return nil, err
	}
	c, err := kubelike.New(kubelike.Config{Series: modelSeries, Start: time.Unix(0, 0)})
	if err != nil {
		return nil, err
	}
	all, nodes, pods := map[unit]count{}, 0.0, 0.0
	for _, t := range c.Targets() {
		if t.Pool == "node-exporter" {
			nodes++
		}
		for _, g := range t.Groups() {
			for _, lset := range g.AppendLabels(nil, 0) {
				switch lset.Get(labels.MetricName) {
				case "kube_configmap_info":
					continue // They make up the number of series.
				case "kube_pod_info":
					pods++
				}
				u := unit{t.Pool, g.OfPod()}
				n := all[u]
				n.series++
				if _, drop := dropper.Drop(lset); drop {
					n.dropped++
				}
				all[u] = n
			}
		}
	}
	for u, n := range all {
		switch {
		case u.pod:
			all[u] = n.times(1 / pods)
		case u.pool != "apiserver" && u.pool != "etcd":
			all[u] = n.times(1 / nodes)
		}
	}
	return all, nil
}

// Model returns the load of a cluster that is only thought of.
func Model(p relabel.Profile, c Cluster) (Load, error) {
	if c.Nodes < 1 || c.PodsPerNode < 0 || c.Interval <= 0 || c.Churn < 0 {
		return Load{}, errors.New("--nodes and --scrape-interval must be above 0, --pods-per-node and --churn not below")
	}
	of, err := units(p)
	if err != nil {
		return Load{}, err
	}
	nodes, pods := float64(c.Nodes), float64(c.Nodes*c.PodsPerNode)
	out := Load{
		Source: fmt.Sprintf("a model of %d nodes with %d pods each, of which %g %% are replaced in an hour", c.Nodes, c.PodsPerNode, 100*c.Churn),
		Sizes:  estimate.ModelSizes().Patched(),
		Notes: []string{
			"The model has what kube-prometheus scrapes, and nothing that applications expose. Of two real clusters it has 11 to 13 % too few series of cAdvisor and 27 to 31 % too few of kube-state-metrics, and 22 % too many of an API server; node-exporter has 190, and several times that on large machines. --prometheus.url takes a server's own.",
		},
	}
	add := func(job string, targets float64, counts ...count) {
		part := Part{Job: job, Targets: targets, Interval: c.Interval.Seconds()}
		for _, n := range counts {
			part.Series += n.series - n.dropped
			part.Dropped += n.dropped
		}
		out.Parts = append(out.Parts, part)
	}
	node := func(pool string) count { return of[unit{pool, false}].times(nodes) }
	pod := func(pool string) count { return of[unit{pool, true}].times(pods) }
	add("apiserver", controlPlane, of[unit{"apiserver", false}].times(controlPlane))
	add("etcd", controlPlane, of[unit{"etcd", false}].times(controlPlane))
	add("node-exporter", nodes, node("node-exporter"))
	add("kubelet", nodes, node("kubelet"), node("cadvisor"), pod("cadvisor"))
	add("kube-state-metrics", 1, node("kube-state-metrics"), pod("kube-state-metrics"))
	total := out.total()
	ofPods := of[unit{"cadvisor", true}].series + of[unit{"kube-state-metrics", true}].series
	out.HeadFactor = 1 + inHead*c.Churn*min(1, ofPods*pods/(total.Series+total.Dropped))
	return out, nil
}

// Live returns the load of a server of today, as it would be with so many nodes; 0 are
// those it has.
func Live(ctx context.Context, p relabel.Profile, api *promapi.Client, nodes int, interval time.Duration) (Load, error) {
	counts, err := estimate.Live(ctx, p, api)
	if err != nil {
		return Load{}, err
	}
	in, notes := estimate.LiveIntervals(ctx, api, counts.Jobs(), interval)
	e := estimate.New(p, counts, in, estimate.LiveSizes(ctx, api).Patched())
	if e.ExitCode() != 0 {
		notes = append(notes, "Of some drop rules it could not be counted what they drop: rules estimate says of which. Less is needed than is said here.")
	}
	today, err := nodesOf(ctx, api)
	if err != nil && nodes > 0 {
		return Load{}, err
	}
	scale := 1.0
	if nodes > 0 {
		scale = float64(nodes) / today
	}
	rows, err := api.Query(ctx, "count by (job) (up)")
	if err != nil {
		return Load{}, err
	}
	targets := map[string]float64{}
	for _, r := range rows {
		targets[r.Labels.Get(model.JobLabel)] = r.Value
	}
	out := Load{
		Source: fmt.Sprintf("%s, times %.3g", api, scale), Sizes: e.Sizes, Notes: append(notes, e.Notes...),
		HeadFactor: max(1, float64(e.HeadSeries)/max(1, float64(e.Of.Series))),
	}
	for _, j := range e.Jobs {
		part := Part{
			Job: j.Job, Targets: cmp.Or(targets[j.Job], 1), Interval: j.IntervalSeconds,
			Series: float64(j.Series-j.Dropped) * scale, Dropped: float64(j.Dropped) * scale,
		}
		if 2*part.Targets > today {
			part.Targets *= scale // One on each node, or so.
		}
		out.Parts = append(out.Parts, part)
	}
	if len(out.Parts) == 0 {
		return Load{}, fmt.Errorf("give --nodes without --prometheus.url: %s has no scrape_samples_post_metric_relabeling, which says how much it scrapes", api)
	}
	return out, nil
}

func nodesOf(ctx context.Context, api *promapi.Client) (float64, error) {
	rows, err := api.Query(ctx, "count(kube_node_info)")
	if err != nil {
		return 0, err
	}
	if len(rows) != 1 {
		return 0, errors.New("give no --nodes: the server has no kube_node_info, which says how many nodes it scrapes")
	}
	return rows[0].Value, nil
}

// total is all parts together.
func (l *Load) total() Part {
	var out Part
	for _, p := range l.Parts {
		out.Series += p.Series
		out.Dropped += p.Dropped
	}
	return out
}
