// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"slices"
	"strings"

	"github.com/promguard/promguard/internal/querylimit"
)

// notPartial is how warnings of Thanos begin that say nothing of servers which did not answer:
// of PromQL, of a limit of the request, and of a query for labels that no server has.
var notPartial = []string{"PromQL ", "results truncated due to limit", "No StoreAPIs matched for this query"}

// seesPartial reports whether the answer may lack what a server has, and says so.
func (p *Proxy) seesPartial(x *exchange) bool {
	return p.partial && x.endpoint.Class != querylimit.ClassBulk
}

// notePartial counts an answer by the warnings that it has.
func (p *Proxy) notePartial(x *exchange, warnings []string) {
	x.partial = slices.ContainsFunc(warnings, func(warning string) bool {
		return !slices.ContainsFunc(notPartial, func(prefix string) bool { return strings.HasPrefix(warning, prefix) })
	})
	if x.partial {
		p.metrics.partial.WithLabelValues(x.endpoint.Class.String()).Inc()
	}
}
