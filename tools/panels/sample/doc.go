// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package sample makes up what a cluster of thousands of nodes would have exported
// in some hours, for pictures of the dashboards: every series that they read, and
// events that they are there to show. Nothing of it was measured. The same Size
// gives the same samples, bit for bit.
package sample

import "time"

// End is the time of the last sample, and of the dashboards' "now".
var End = time.Date(2026, time.March, 12, 16, 10, 0, 0, time.UTC)

// Shown is how long before End the time begins that the dashboards show.
const Shown = 3 * time.Hour

// Size is how large the cluster is.
type Size struct {
	// Nodes is the number of all nodes, at least 100.
	Nodes int
	// GPUNodes is the number of those with eight GPUs each, at least 8.
	GPUNodes int
	// TrafficNodes is the number of those whose iptables rules are counted.
	TrafficNodes int
}

// Large is a cluster as the pictures show it, and Small one that has the same
// series at a fraction of the samples.
var (
	Large = Size{Nodes: 7500, GPUNodes: 384, TrafficNodes: 240}
	Small = Size{Nodes: 200, GPUNodes: 8, TrafficNodes: 6}
)

// What happened, in minutes from the beginning of the time shown.
var (
	replay     = event{from: 22, to: 29}   // prometheus-k8s-1 was killed, and replays its log
	listStorm  = event{from: 58, to: 71}   // a controller lists all pods, again and again
	nodesLeave = event{from: 92, to: 97}   // a rack loses its power
	nodesJoin  = event{from: 118, to: 124} // and has it again
	readStorm  = event{from: 136, to: 151} // somebody's dashboard reads everything
)

// event is a time in which something is different.
type event struct{ from, to float64 }

// in says whether m is within the event.
func (e event) in(m float64) bool { return m >= e.from && m < e.to }

// share is how much of the event lies before m, from 0 to 1.
func (e event) share(m float64) float64 { return min(1, max(0, (m-e.from)/(e.to-e.from))) }

// heat rises to 1 in the first minutes of the event and falls back to 0 after it.
func (e event) heat(m float64) float64 {
	const rise, fall = 2.0, 4.0
	return max(0, min(1, (m-e.from)/rise, 1-(m-e.to)/fall))
}
