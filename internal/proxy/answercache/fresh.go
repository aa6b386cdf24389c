// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package answercache

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// freshFor returns how long the server lets everybody have an answer; of one that
// says nothing, for ever. Of max-age and s-maxage the shorter counts.
func freshFor(h http.Header) time.Duration {
	const forever = math.MaxInt64
	fresh := int64(forever) // seconds
	for _, value := range h["Cache-Control"] {
		for directive := range strings.SplitSeq(strings.ToLower(value), ",") {
			name, argument, _ := strings.Cut(strings.TrimSpace(directive), "=")
			switch strings.TrimSpace(name) {
			case "no-store", "no-cache", "private":
				return 0
			case "max-age", "s-maxage":
				fresh = min(fresh, seconds(argument))
			}
		}
	}
	if fresh == forever {
		return forever
	}
	fresh -= seconds(h.Get("Age")) // It was kept elsewhere before.
	return time.Duration(fresh) * time.Second
}

// seconds returns 0 for what is no number of them, and not more than sums can hold.
func seconds(text string) int64 {
	n, err := strconv.ParseInt(strings.Trim(text, ` "`), 10, 64)
	if err != nil {
		return 0
	}
	return min(max(n, 0), math.MaxInt32)
}

// variesByKey reports whether an answer varies by nothing but headers that are
// always a part of the key. Others may be left out of it.
func variesByKey(h http.Header) bool {
	for _, value := range h["Vary"] {
		for name := range strings.SplitSeq(value, ",") {
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "", "origin", "accept-encoding":
			default:
				return false
			}
		}
	}
	return true
}
