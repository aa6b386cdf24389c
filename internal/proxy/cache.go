// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/promguard/promguard/internal/querylimit"
)

// cacheable are the endpoints whose answers are kept.
var cacheable = map[string]bool{
	"labels": true, "label/:name/values": true, "metadata": true, "status/buildinfo": true,
}

// cacheKey is the same for requests that may have the same answer: to the same
// endpoint, of the same tenant, with the same parameters and headers. It is "" for
// what is not kept.
func cacheKey(req *http.Request, x *exchange) string {
	if !cacheable[x.request.endpoint.Name] || x.request.method == http.MethodOptions || req.Header["Range"] != nil {
		return ""
	}
	var b strings.Builder
	b.WriteString(req.URL.Scheme + "://" + req.URL.Host + req.URL.Path + "\ntenant:" + x.who.Tenant)
	for _, p := range x.request.params {
		b.WriteString("\n?" + strconv.Quote(p.name) + "=" + strconv.Quote(rounded(x.request, p, x.cache.Round())))
	}
	for _, name := range sortedNames(req.Header) {
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

// rounded returns the value of a parameter, of a time that of the window that it
// lies in.
func rounded(q *request, p parameter, to time.Duration) string {
	round := to.Milliseconds()
	if q.endpoint.Reads != querylimit.ReadsMetadata || round == 0 || p.value == "" || p.name != "start" && p.name != "end" {
		return p.value
	}
	t, err := parseTime(p.value)
	if err != nil {
		return p.value // It was read before, so it has none.
	}
	ms := t.UnixMilli()
	window := ms / round
	if ms%round < 0 {
		window--
	}
	return strconv.FormatInt(window, 10)
}
