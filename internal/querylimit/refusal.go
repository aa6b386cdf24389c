// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"strings"
	"unicode/utf8"
)

// The names of the limits. They are label values of metrics, keys of the
// configuration and names of pages under docs/limits, so they do not change.
const (
	LimitSelectivity    = "selectivity"
	LimitUnknownPromQL  = "unknown_promql"
	LimitQueryBytes     = "query_bytes"
	LimitQueryOperators = "query_operators"
	LimitRegexSize      = "regex_size"
	LimitRequestBytes   = "request_bytes"
	LimitParameters     = "parameters"
	LimitDeadline       = "deadline"
	LimitDeny           = "deny"
	LimitSeries         = "series"
	LimitSamples        = "samples"
	LimitRange          = "range"
	LimitOldest         = "oldest"
	LimitMetadataRange  = "metadata_range"
	LimitResponseBytes  = "response_bytes"
)

// Limits returns the name of every limit, in the order of the documentation.
func Limits() []string {
	return []string{
		LimitSeries, LimitSamples, LimitSelectivity, LimitUnknownPromQL,
		LimitQueryBytes, LimitQueryOperators, LimitRegexSize,
		LimitRange, LimitOldest, LimitMetadataRange, LimitResponseBytes,
		LimitRequestBytes, LimitParameters, LimitDeadline, LimitDeny,
	}
}

const docRoot = "https://github.com/promguard/promguard/blob/main/docs/limits/"

// maxQuoted bounds how much of a client's own text an error repeats.
const maxQuoted = 200

// Refusal says what to do about a request that exceeds a limit, and why. It is
// immutable.
type Refusal struct {
	// Limit is one of the Limit constants.
	Limit string
	// Mode is the mode of the limit: the request must be refused only if it is
	// ModeEnforce.
	Mode Mode
	// Tenant is whose limit it is; empty for that of everybody.
	Tenant string
	// Remedy says what the client can do, as a full sentence. It is at most maxRemedy
	// bytes long, unless an operator wrote it.
	Remedy string
	// Value is what was seen, such as the selector. At most about 200 bytes.
	Value string
	// Cause says why that is too much, as a clause that follows the value.
	Cause string
	// Operator says what an operator can do, as in "raise limits.points.max"; empty if
	// there is nothing.
	Operator string
}

// maxRemedy is about what Grafana shows of an error before it cuts it.
const maxRemedy = 120

// Doc returns the address of the page about the limit.
func (r *Refusal) Doc() string {
	return docRoot + strings.ReplaceAll(r.Limit, "_", "-") + ".md"
}

// MarshalText implements encoding.TextMarshaler.
func (r *Refusal) MarshalText() ([]byte, error) { return []byte(r.Error()), nil }

// Error returns one paragraph: the way out, why it is needed, the page. Grafana shows
// two lines of it, so the order matters.
func (r *Refusal) Error() string {
	limit := "Limit " + r.Limit
	if r.Tenant != "" {
		limit += " of tenant " + shorten(r.Tenant)
	}
	why := limit + ": " + r.Value + " " + r.Cause
	if r.Operator != "" {
		why += "; an operator can " + r.Operator
	}
	return r.Remedy + " " + why + ". See " + r.Doc()
}

// raise is what an operator can do about most limits.
func raise(key string) string { return "raise limits." + key + ".max" }

// Refusals are what the limits have to say about one request, at most one
// Refusal for each limit. A nil Refusals means that nothing is exceeded.
type Refusals []*Refusal

// Err returns the first refusal whose mode is ModeEnforce, or nil.
func (rs Refusals) Err() error {
	for _, r := range rs {
		if r.Mode == ModeEnforce {
			return r
		}
	}
	return nil
}

// Warnings returns the text of every refusal whose mode is ModeWarn.
func (rs Refusals) Warnings() []string {
	var out []string
	for _, r := range rs {
		if r.Mode == ModeWarn {
			out = append(out, r.Error())
		}
	}
	return out
}

// shorten cuts s to at most maxQuoted bytes, never inside a character, and
// shows that it did.
func shorten(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	end := maxQuoted
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}
