// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/promguard/promguard/internal/querylimit"
)

// verdict is what the rules say about a request.
type verdict struct {
	policy   *querylimit.Policy // the limits of this request
	refusals querylimit.Refusals
	queries  []*querylimit.Query
	rules    []string // that match
}

// examine parses the PromQL of a request once and asks the rules about it. The
// refusals are those of limits in every mode; the error is that of malformed
// PromQL, in Prometheus's words.
//
// Rules are asked twice where one of them wants to know the fingerprint of the
// query: before it is parsed, because they hold the limits of what is parsed at
// all, and after.
func (p *Proxy) examine(q *request, who *querylimit.Subject, rules *querylimit.Ruleset) (verdict, error) {
	param, texts := q.promQL()
	d := rules.Decide(who, texts, nil)
	v := verdict{policy: d.Policy, refusals: d.Refusals, rules: d.Rules}
	if d.Refusals.Err() != nil && !rules.NeedsFingerprints() {
		return v, nil
	}
	if len(texts) == 0 {
		p.limitTimes(q, &v)
		return v, nil
	}
	queries, rs, err := p.parse(q, d.Policy, param, texts)
	if err != nil || queries == nil {
		v.refusals = append(v.refusals, rs...)
		return v, err
	}
	v.queries = queries
	if rules.NeedsFingerprints() {
		d = rules.Decide(who, texts, querylimit.Fingerprints(queries))
		v.policy, v.refusals, v.rules = d.Policy, d.Refusals, d.Rules
	}
	v.refusals = append(v.refusals, rs...)
	v.refusals = append(v.refusals, v.policy.CheckQueries(queries, q.endpoint.takes != expression)...)
	p.limitTimes(q, &v)
	return v, nil
}

// limitTimes looks at times and limit of a request, and sets those that the
// policy sets.
func (p *Proxy) limitTimes(q *request, v *verdict) {
	now := time.Now()
	var rs querylimit.Refusals
	switch q.endpoint.reads {
	case timeInstant, timeSteps:
		rs = v.policy.CheckEvaluation(v.queries[0], q.when.at(now), now)
	case timeWindow:
		window := q.when.window()
		rs = v.policy.CheckWindow(window.start, window.end, now)
	case timeMetadata:
		var (
			start time.Time
			set   bool
		)
		if start, set, rs = v.policy.CheckMetadataRange(q.when.start, q.when.end, now); set {
			q.set("start", formatTime(start))
			p.metrics.adjusted.WithLabelValues(querylimit.LimitMetadataRange).Inc()
		}
	}
	v.refusals = append(v.refusals, rs...)
	if q.endpoint.results == nil {
		return
	}
	limit, set, rs := v.policy.CheckResults(*q.endpoint.results, q.limit)
	if set {
		q.set("limit", strconv.Itoa(limit))
		p.metrics.adjusted.WithLabelValues(querylimit.LimitResults).Inc()
	}
	v.refusals = append(v.refusals, rs...)
}

// promQL returns the parameter of the request that holds PromQL, and its values.
func (q *request) promQL() (param string, texts []string) {
	switch q.endpoint.takes {
	case expression, selectorsOf:
		return "query", []string{q.get("query")}
	case matchList:
		return "match[]", q.all("match[]")
	case matchTarget:
		if text := q.get("match_target"); text != "" {
			return "match_target", []string{text}
		}
	}
	return "", nil
}

var errEmptySelector = errors.New("match[] must contain at least one non-empty matcher")

// parse returns no queries if the limits of text refuse them.
func (p *Proxy) parse(q *request, policy *querylimit.Policy, param string, texts []string) ([]*querylimit.Query, querylimit.Refusals, error) {
	if param == "query" {
		query, rs, err := p.analyzer.Expr(policy, texts[0])
		if err != nil || query == nil {
			return nil, rs, q.malformed(param, err)
		}
		return []*querylimit.Query{query}, rs, nil
	}
	queries, rs, err := p.analyzer.Selectors(policy, texts)
	if err != nil {
		return nil, rs, q.malformed(param, err)
	}
	for _, query := range queries {
		if param == "match[]" && query.OnlyEmpty() {
			return nil, rs, q.malformed(param, errEmptySelector)
		}
	}
	return queries, rs, nil
}

func (q *request) malformed(param string, err error) error {
	if err == nil {
		return nil
	}
	if q.endpoint.wrapsErrors {
		err = fmt.Errorf("invalid parameter %q: %w", param, err)
	}
	return badData(err)
}
