// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

// CheckQueries looks at the parsed queries of one request, apart from when they
// are evaluated. Bare is set for a server that reads the selectors of them and
// evaluates nothing.
func (p *Policy) CheckQueries(queries []*Query, bare bool) Refusals {
	for _, q := range queries {
		if rs := p.checkSelectivity(q, bare); rs != nil {
			return rs // One refusal for each limit is enough.
		}
	}
	return nil
}
