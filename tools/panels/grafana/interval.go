// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package grafana

import (
	"fmt"
	"time"
)

const (
	// minRate is how many scrape intervals $__rate_interval has at least.
	minRate = 4
	// mostPoints is how many points Prometheus gives of a series.
	mostPoints = 11_000
)

// steps are what intervals are rounded to, for dashboards of up to some months.
var steps = []struct{ below, step time.Duration }{
	{15 * time.Millisecond, 10 * time.Millisecond},
	{35 * time.Millisecond, 20 * time.Millisecond},
	{75 * time.Millisecond, 50 * time.Millisecond},
	{150 * time.Millisecond, 100 * time.Millisecond},
	{350 * time.Millisecond, 200 * time.Millisecond},
	{750 * time.Millisecond, 500 * time.Millisecond},
	{1500 * time.Millisecond, time.Second},
	{3500 * time.Millisecond, 2 * time.Second},
	{7500 * time.Millisecond, 5 * time.Second},
	{12500 * time.Millisecond, 10 * time.Second},
	{17500 * time.Millisecond, 15 * time.Second},
	{25 * time.Second, 20 * time.Second},
	{45 * time.Second, 30 * time.Second},
	{90 * time.Second, time.Minute},
	{210 * time.Second, 2 * time.Minute},
	{450 * time.Second, 5 * time.Minute},
	{750 * time.Second, 10 * time.Minute},
	{1050 * time.Second, 15 * time.Minute},
	{25 * time.Minute, 20 * time.Minute},
	{45 * time.Minute, 30 * time.Minute},
	{90 * time.Minute, time.Hour},
	{150 * time.Minute, 2 * time.Hour},
	{270 * time.Minute, 3 * time.Hour},
	{9 * time.Hour, 6 * time.Hour},
	{24 * time.Hour, 12 * time.Hour},
}

func rounded(d time.Duration) time.Duration {
	for _, s := range steps {
		if d < s.below {
			return s.step
		}
	}
	return 24 * time.Hour
}

// step is the resolution of a query: one point for each pixel, rounded, not below
// the scrape interval, and not more points than Prometheus gives.
func step(shown, scrape time.Duration, points int) time.Duration {
	s := max(scrape, rounded(shown/time.Duration(points)))
	return max(s, rounded(shown/mostPoints))
}

// rateInterval is the value of $__rate_interval.
func rateInterval(step, scrape time.Duration) time.Duration {
	return max(step+scrape, minRate*scrape)
}

// duration writes whole seconds, and hours and days where they are whole, as
// Prometheus reads them.
func duration(d time.Duration) string {
	switch {
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d%time.Second == 0:
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", d/time.Millisecond)
}
