// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

// CheckQueries looks at the parsed queries of one request, apart from when they
// are evaluated.
func (p *Policy) CheckQueries(queries []*Query) Refusals {
	var rs Refusals
	for _, q := range queries {
		if rs = p.checkSelectivity(q); rs != nil {
			break // One refusal for each limit is enough.
		}
	}
	for i := range structural {
		most := 0
		for _, q := range queries {
			most = max(most, structural[i].of(q))
		}
		rs = p.checkCount(rs, &structural[i], most)
	}
	return rs
}
