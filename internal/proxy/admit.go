// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/promguard/promguard/internal/querylimit"
)

// judge asks the rules about a request, counts what they say once, and sets what
// they set.
func (p *Proxy) judge(q *request, who querylimit.Subject, rules *querylimit.Ruleset) (querylimit.Verdict, error) {
	if q.method == http.MethodOptions {
		return querylimit.Verdict{Policy: rules.Tenant(who.Tenant)}, nil
	}
	param, texts := q.promQL()
	assumed := p.pool.Assumed()
	v, err := rules.Judge(p.analyzer, &querylimit.Request{
		Endpoint: q.endpoint.Endpoint, Who: who, Texts: texts, Label: q.listed(),
		Start: q.when.start, End: q.when.end, Given: q.when.given, Step: q.when.step, Lookback: q.lookback(assumed), SubqueryStep: q.subqueryStep(assumed),
		UnknownPromQL: assumed.UnknownPromQL,
		Limit:         q.limit, Windows: q.windows(),
	}, time.Now())
	for _, r := range v.Refusals {
		p.metrics.exceeded.WithLabelValues(r.Limit, r.Mode.String()).Inc()
	}
	if err != nil {
		return v, q.malformed(param, err)
	}
	if err := v.Refusals.Err(); err != nil {
		return v, err
	}
	if v.SetStart != nil {
		q.set("start", formatTime(*v.SetStart))
		p.metrics.adjusted.WithLabelValues(querylimit.LimitMetadataRange).Inc()
	}
	if v.SetLimit != nil {
		q.set("limit", strconv.Itoa(*v.SetLimit))
		p.metrics.adjusted.WithLabelValues(querylimit.LimitResults).Inc()
	}
	return v, nil
}

// promQL returns the parameter of the request that holds PromQL, and its values.
func (q *request) promQL() (param string, texts []string) {
	if q.remote != nil {
		return "", q.texts
	}
	switch q.endpoint.Takes {
	case querylimit.TakesExpr, querylimit.TakesBareExpr:
		return "query", []string{q.get("query")}
	case querylimit.TakesSelectors:
		return "match[]", q.all("match[]")
	case querylimit.TakesSelector:
		if text := q.get("match_target"); text != "" {
			return "match_target", []string{text}
		}
	}
	return "", nil
}

func (q *request) malformed(param string, err error) error {
	if q.endpoint.wrapsErrors {
		err = fmt.Errorf("invalid parameter %q: %w", param, err)
	}
	return badData(err)
}
