// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package canonical

import "github.com/promguard/promguard/internal/proxy/upstream"

// parameters are those that one kind of server reads besides Prometheus's.
type parameters struct{ scalars, lists []string }

// extra has the parameters by kind and endpoint. None of them widens what is
// asked: extra_filters[] and extra_label of VictoriaMetrics, which proxies use to
// keep tenants apart, are for such a proxy and do not pass.
var extra = func() map[upstream.Kind]map[string]parameters {
	thanosQuery := parameters{
		[]string{"dedup", "partial_response", "max_source_resolution", "engine"}, []string{"storeMatch[]", "replicaLabels[]"},
	}
	thanosSeries := parameters{[]string{"dedup", "partial_response"}, []string{"storeMatch[]", "replicaLabels[]"}}
	thanosLabels := parameters{[]string{"partial_response"}, []string{"storeMatch[]"}}
	partial := parameters{scalars: []string{"partial_response"}}
	noCache := parameters{scalars: []string{"nocache"}}
	return map[upstream.Kind]map[string]parameters{
		upstream.KindThanos: {
			"query": thanosQuery, "query_range": thanosQuery, "series": thanosSeries,
			"labels": thanosLabels, "label/:name/values": thanosLabels,
			"query_exemplars": partial, "rules": partial, "targets": partial, "metadata": partial,
		},
		upstream.KindVictoriaMetrics: {"query": noCache, "query_range": noCache},
	}
}()

// widen adds the parameters of a kind to the endpoint.
func (e *Endpoint) widen(kind upstream.Kind) {
	p := extra[kind][e.Name]
	e.scalars = append(e.scalars, p.scalars...)
	e.lists = append(e.lists, p.lists...)
}
