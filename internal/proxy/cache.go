// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promguard/promguard/internal/querylimit"
)

// cacheable are the endpoints whose answers are kept.
var cacheable = map[string]bool{
	"labels": true, "label/:name/values": true, "metadata": true, "status/buildinfo": true,
}

// registerCache makes visible what the cache of the policy in force holds.
func (p *Proxy) registerCache(reg prometheus.Registerer) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "promguard_cache_bytes", Help: "Bytes that the cache holds.",
	}, func() float64 { return float64(p.policy.Load().cache.Bytes()) }))
}

// cacheKey is the same for requests that may have the same answer: to the same
// endpoint, of the same tenant, with the same parameters and headers, from the same
// address. An answer outlives the request that it was given to, and so what is in
// front of the server must not have let in one address for another. The key is ""
// for what is not kept.
func cacheKey(req *http.Request, x *exchange) string {
	if !cacheable[x.request.endpoint.Name] || x.request.method == http.MethodOptions {
		return ""
	}
	var b strings.Builder
	b.WriteString(req.URL.Scheme + "://" + req.URL.Host + req.URL.Path + "\ntenant:" + x.who.Tenant)
	round := x.cache.Round()
	mayRound := roundable(x.request, round)
	for _, p := range x.request.params {
		value := p.value
		if mayRound && value != "" && (p.name == "start" || p.name == "end") {
			value = "about " + rounded(value, round)
		}
		b.WriteString("\n?" + strconv.Quote(p.name) + "=" + strconv.Quote(value))
	}
	for _, name := range append(telling(req.Header), headerForwardedFor) {
		switch name {
		case "Cache-Control", "Pragma", "Content-Type":
			continue // Of the request, and not of what is asked.
		}
		for _, value := range req.Header[name] {
			b.WriteString("\n" + name + ":" + value)
		}
	}
	return b.String()
}

// coarse is how many times longer than a window a range must be for its ends to
// be rounded: what a shorter one holds, another one close by may not.
const coarse = 10

// roundable reports whether the times of a request may be rounded.
func roundable(q *request, to time.Duration) bool {
	if q.endpoint.Reads != querylimit.ReadsMetadata || to <= 0 {
		return false
	}
	start, end := q.get("start"), q.get("end")
	if start == "" {
		return true
	}
	first, err := parseTime(start)
	last := time.Now()
	if end != "" && err == nil {
		last, err = parseTime(end)
	}
	return err == nil && last.Sub(first) >= coarse*to
}

// rounded returns the window that a time lies in.
func rounded(text string, to time.Duration) string {
	t, err := parseTime(text)
	if err != nil {
		return text // It was read before, so it has none.
	}
	ms, round := t.UnixMilli(), to.Milliseconds()
	window := ms / round
	if ms%round < 0 {
		window--
	}
	return strconv.FormatInt(window, 10)
}
