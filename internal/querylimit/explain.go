// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import "time"

// Explanation is what the rules think of a query before it is asked.
type Explanation struct {
	Endpoint     string    `json:"endpoint"`
	Fingerprints []string  `json:"fingerprints"`
	Passes       bool      `json:"passes"`
	Bytes        int64     `json:"bytes,omitempty"` // that it is expected to take of the server
	Older        bool      `json:"reads_blocks,omitempty"`
	Limits       []Finding `json:"limits"`
	Refusals     Refusals  `json:"refusals,omitempty"`
	Rules        []string  `json:"rules,omitempty"`

	// Deadline is that of the request.
	Deadline time.Duration `json:"-"`
}

// Explain judges a request and says what every limit sees of it. The error is that of
// malformed PromQL.
func (s *Ruleset) Explain(a *Analyzer, r *Request, now time.Time) (*Explanation, error) {
	v, err := s.Judge(a, r, now)
	if err != nil {
		return nil, err
	}
	if v.Queries == nil { // Refused before it was parsed, which is no reason not to look.
		for _, text := range r.Texts {
			if q, _, err := a.Expr(v.Policy, text); err == nil && q != nil {
				v.Queries = append(v.Queries, q)
			}
		}
	}
	return &Explanation{
		Endpoint: r.Endpoint.Name, Fingerprints: Fingerprints(v.Queries), Passes: v.Refusals.Err() == nil,
		Bytes: v.Cost.Bytes(), Older: v.Cost.Older, Limits: v.Policy.Explain(r, v.Queries, now),
		Refusals: v.Refusals, Rules: v.Rules, Deadline: v.Policy.Deadline(r.Endpoint.Class, 0),
	}, nil
}
