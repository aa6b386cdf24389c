// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"slices"
	"strings"
)

// notPrometheus are words in the types of data sources whose queries are no PromQL.
var notPrometheus = []string{
	"loki", "tempo", "jaeger", "zipkin", "influx", "graphite", "elastic", "opensearch", "cloudwatch", "mysql", "postgres",
	"mssql", "testdata", "alertmanager", "azure-monitor", "stackdriver", "opentsdb", "clickhouse", "pyroscope", "phlare",
	"victorialogs", "victoriametrics-logs",
}

// grafanasOwn are the names and types of data sources that Grafana has in itself.
var grafanasOwn = []string{"grafana", "-- grafana --", "dashboard", "-- dashboard --", "__expr__"}

// isPrometheus reports whether a data source is one, as far as can be known
// without asking Grafana. One that cannot be known is taken for one: its name says
// nothing.
func (d *board) isPrometheus(source any) bool {
	name, kind := str(source), ""
	if o := object(source); len(o) > 0 {
		name, kind = str(o["uid"]), str(o["type"])
	}
	for _, text := range []string{name, kind} {
		if strings.HasPrefix(text, "$") || strings.HasPrefix(text, "[[") {
			if known, ok := d.sources[strings.Trim(text, "${}[]")]; ok {
				kind = known
			}
		}
	}
	name, kind = strings.ToLower(name), strings.ToLower(kind)
	return !slices.Contains(grafanasOwn, name) && !slices.Contains(grafanasOwn, kind) &&
		!slices.ContainsFunc(notPrometheus, func(word string) bool { return strings.Contains(kind, word) })
}

func isMixed(source any) bool {
	return str(source) == "-- Mixed --" || str(object(source)["uid"]) == "-- Mixed --"
}
