// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

// Figure is what is measured of a phase.
type Figure struct {
	Name   string
	Higher bool // is better
	Detail bool // is not in the table
	Help   string
}

// Figures are all that can be measured, in the order of the report.
var Figures = []Figure{
	{Name: "alive", Higher: true, Help: "1 if the server lived, 0 if it ended unasked"},
	{Name: "lived-sec", Higher: true, Detail: true, Help: "from the phase's begin to its end or the server's"},
	{Name: "peak-bytes", Detail: true, Help: "the most resident memory"},
	{Name: "over-rest-bytes", Help: "the same less that at rest"},
	{Name: "peak-of-limit", Help: "the most memory that counts for the limit, over it; not without one"},
	{Name: "over-rest-of-budget", Help: "over-rest-bytes over the server's read budget, where it has one"},
	{Name: "scrapes-missed", Help: "scrapes of steady targets that were due and left no up of 1"},
	{Name: "samples-lost", Help: "samples of steady series that every scrape that was due would have left, less those that are there"},
	{Name: "rules-missed", Help: "evaluations that were due and left no sample"},
	{Name: "rules-failed", Help: "evaluations that failed"},
	{Name: "sum-up-p50-sec", Detail: true, Help: "sum(up), over kept connections"},
	{Name: "sum-up-p99-sec"},
	{Name: "sum-up-failed"},
	{Name: "health-p99-sec", Help: "/-/healthy, over a new connection each time"},
	{Name: "health-failed"},
	{Name: "metrics-p99-sec", Help: "/metrics, the same"},
	{Name: "metrics-failed"},
	{Name: "storm-answered", Higher: true, Help: "hostile requests with status 200, read to the end"},
	{Name: "storm-refused", Help: "hostile requests with another status"},
	{Name: "storm-cut", Help: "hostile requests whose connection the server ended"},
	{Name: "dashboards-answered", Higher: true, Help: "innocent requests with status 200"},
	{Name: "dashboards-refused", Help: "innocent requests with another status"},
	{Name: "dashboards-cut", Help: "innocent requests whose connection the server ended"},
	{Name: "dashboards-refused-share", Help: "share of those that were not answered with 200"},
	{Name: "dashboards-unfriendly", Help: "of those the ones that are no 503 with Retry-After"},
	{Name: "dashboards-sec", Help: "until all rounds were through; not without rounds"},
	{Name: "dashboards-p99-sec"},
	{Name: "slow-answered", Higher: true, Help: "answers that slow readers read to the end"},
	{Name: "slow-refused", Help: "that began with another status than 200"},
	{Name: "slow-cut", Help: "that the server cut"},
	{Name: "idle-connections", Higher: true, Help: "open at the end"},
	{Name: "exploded", Help: "new series that the exploding target has exposed"},
	{Name: "culprit-sec", Help: "until /api/v1/status/guard named its job as the first culprit"},
	{Name: "compactions", Higher: true, Help: "of the head"},
	{Name: "ended-sec", Help: "from the signal to the process's end"},
	{Name: "ready-sec", Help: "from the start to being ready"},
	{Name: "restart-of-live", Help: "the most memory until it was ready, over the live heap of the process before"},
	{Name: "back-sec", Help: "until memory and sum(up) were as at rest again"},
}

// FigureNames are those of all figures.
func FigureNames() (names []string) {
	for _, f := range Figures {
		names = append(names, f.Name)
	}
	return names
}
