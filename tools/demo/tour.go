// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
)

// stop is a command to try and what it shows.
type stop struct {
	text string
	url  string
	grep string
}

func tour(c config, src source) []stop {
	proxy, prometheus := "http://"+loopback(c.ProxyPort), "http://"+loopback(c.PrometheusPort)
	return []stop{
		{
			text: "Ask for every histogram there is. The proxy refuses with 422 and says what to ask instead:",
			url:  proxy + `/api/v1/series?match[]={le!=""}`,
		},
		{
			text: "Ask what a Grafana panel asks (" + src.queryIs + "). The proxy passes it on, and the answer comes unchanged:",
			url:  proxy + "/api/v1/query?query=" + src.query,
		},
		{
			text: "See how many series Prometheus' default drop rules kept out, by rule:",
			url:  prometheus + "/metrics",
			grep: "^prometheus_guard_drop_rules_dropped_series_total",
		},
	}
}

// command is the stop as a line for a shell.
func (s stop) command() string {
	line := "curl -sg '" + s.url + "'"
	if s.grep != "" {
		line += " | grep '" + s.grep + "'"
	}
	return line
}

func printTour(out io.Writer, c config, src source) {
	fmt.Fprintf(out, `
The proxy:   http://%s    point Grafana's Prometheus data source here
Its metrics: http://%s/metrics
Prometheus:  http://%s
What runs:   http://%[3]s/guard, and of the proxy http://%[2]s/guard
Try:
`, loopback(c.ProxyPort), loopback(c.TelemetryPort), loopback(c.PrometheusPort))
	for _, s := range tour(c, src) {
		fmt.Fprintf(out, "\n  # %s\n  %s\n", s.text, s.command())
	}
	fmt.Fprint(out, "\nCtrl-C stops all.\n")
}
