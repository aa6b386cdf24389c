// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"slices"
	"strings"
	"unicode"
)

// unknown returns a word of the query that the server knows and the parser does not,
// or "".
func (r *Request) unknown() string {
	if len(r.UnknownPromQL) == 0 || r.Endpoint.Takes != TakesExpr && r.Endpoint.Takes != TakesBareExpr {
		return ""
	}
	isNoLetter := func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) }
	for word := range strings.FieldsFuncSeq(r.Texts[0], isNoLetter) {
		if slices.Contains(r.UnknownPromQL, strings.ToLower(word)) {
			return word
		}
	}
	return ""
}

// refuseUnknown refuses a query that the server may understand and nobody here can
// judge.
func (p *Policy) refuseUnknown(name string) Refusals {
	if p.opts.UnknownPromQL == ModeOff {
		return nil
	}
	return Refusals{p.refuse(LimitUnknownPromQL, p.opts.UnknownPromQL, "Rewrite the query without "+shorten(name)+", or use a newer promguard.",
		"a query with "+shorten(name), "cannot be judged, as the server is newer than the parser of this promguard", "let such queries pass unjudged by limits.unknown_promql.mode")}
}
