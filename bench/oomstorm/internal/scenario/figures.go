// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

// Figure is what is measured of a phase.
type Figure struct {
	Name   string
	Higher bool // is better
	Help   string
}

// Figures are all that can be measured, in the order of the report.
var Figures = []Figure{
	{"alive", true, "1 if the server lived, 0 if it ended unasked"},
	{"lived-sec", true, "from the phase's begin to its end or the server's"},
	{"peak-bytes", false, "the most resident memory"},
	{"over-rest-bytes", false, "the same less that at rest"},
	{"peak-of-limit", false, "the most memory that counts for the limit, over it; not without one"},
	{"over-rest-of-budget", false, "over-rest-bytes over the server's read budget, where it has one"},
	{"scrapes-missed", false, "scrapes of steady targets that were due and left no up of 1"},
	{"samples-lost", false, "samples of steady series that every scrape that was due would have left, less those that are there"},
	{"rules-missed", false, "evaluations that were due and left no sample"},
	{"rules-failed", false, "evaluations that failed"},
	{"sum-up-p50-sec", false, "sum(up), over kept connections"},
	{"sum-up-p99-sec", false, ""},
	{"sum-up-failed", false, ""},
	{"health-p99-sec", false, "/-/healthy, over a new connection each time"},
	{"health-failed", false, ""},
	{"metrics-p99-sec", false, "/metrics, the same"},
	{"metrics-failed", false, ""},
	{"storm-answered", true, "hostile requests with status 200, read to the end"},
	{"storm-refused", false, "hostile requests with another status"},
	{"storm-cut", false, "hostile requests whose connection the server ended"},
	{"dashboards-answered", true, "innocent requests with status 200"},
	{"dashboards-refused-share", false, "share of the others"},
	{"dashboards-unfriendly", false, "of those the ones that are no 503 with Retry-After"},
	{"dashboards-sec", false, "until all rounds were through; not without rounds"},
	{"dashboards-p99-sec", false, ""},
	{"slow-answers", true, "answers that slow readers read to the end"},
	{"slow-refused", false, "that began with another status than 200"},
	{"slow-cut", false, "that the server cut"},
	{"idle-connections", true, "open at the end"},
	{"exploded", false, "new series that the exploding target has exposed"},
	{"culprit-sec", false, "until /api/v1/status/guard named its job under newSeries"},
	{"compactions", true, "of the head"},
	{"ended-sec", false, "from the signal to the process's end"},
	{"ready-sec", false, "from the start to being ready"},
	{"restart-of-live", false, "the most memory until it was ready, over the live heap of the process before"},
	{"back-sec", false, "until memory and sum(up) were as at rest again"},
}

// FigureNames are those of all figures.
func FigureNames() (names []string) {
	for _, f := range Figures {
		names = append(names, f.Name)
	}
	return names
}
