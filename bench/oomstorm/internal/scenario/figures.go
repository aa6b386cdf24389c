// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import "slices"

// Figures are all that can be measured of a phase, in the order of the report. What
// each is says docs/oomstorm.md.
var Figures = []string{
	"alive", "lived-sec", "peak-bytes", "over-rest-bytes", "peak-of-limit", "live-over-rest-of-budget",
	"scrapes-missed", "exploding-missed", "samples-lost", "rules-missed", "rules-failed",
	"sum-up-p50-sec", "sum-up-p99-sec", "sum-up-failed", "health-p99-sec", "health-failed", "metrics-p99-sec", "metrics-failed",
	"storm-answered", "storm-refused", "storm-cut",
	"dashboards-answered", "dashboards-refused", "dashboards-cut", "dashboards-refused-share", "dashboards-unfriendly", "dashboards-p99-sec", "dashboards-sec",
	"slow-answered", "slow-refused", "slow-cut", "idle-away-sec",
	"exploded", "culprit-sec", "compactions", "ended-sec", "ready-sec", "restart-of-live", "back-sec",
}

// HigherIsBetter says so of a figure; of most, less is better.
func HigherIsBetter(figure string) bool {
	return slices.Contains([]string{"alive", "lived-sec", "storm-answered", "dashboards-answered", "slow-answered", "compactions"}, figure)
}

// InTable says whether a figure is in the short table, too.
func InTable(figure string) bool {
	return !slices.Contains([]string{"lived-sec", "peak-bytes", "sum-up-p50-sec"}, figure)
}
