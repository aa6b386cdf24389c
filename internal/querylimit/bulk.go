// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"fmt"
	"math"
	"time"
)

// MaxReadQueries is how many queries a remote read may have in any mode.
const MaxReadQueries = 1000

// Window is a range of time that is read as it stands.
type Window struct{ Start, End time.Time }

// latestWindow is where times are cut before they are judged; about a quarter of a
// million years, and what is beyond is beyond every limit.
const latestWindow = 1 << 53

// NewWindow returns the window between two times in milliseconds since 1970.
func NewWindow(start, end int64) Window {
	cut := func(ms int64) time.Time { return time.UnixMilli(min(max(ms, -latestWindow), latestWindow)) }
	return Window{cut(start), cut(end)}
}

// ValidateTruncate returns an error if answers of a class cannot be truncated.
func ValidateTruncate(c Class, truncate bool) error {
	if c == ClassBulk && truncate {
		return fmt.Errorf("%s: %s: truncate: a part of an exposition looks like the whole, so it can only be refused", LimitResponseBytes, c)
	}
	return nil
}

// checkBulk adds the refusals of requests with too many selectors or queries.
func (p *Policy) checkBulk(rs Refusals, r *Request) Refusals {
	switch r.Endpoint.Name {
	case EndpointFederate:
		return p.checkCount(rs, &counts[countFederateSelectors], len(r.Texts))
	case EndpointRead:
		return p.checkCount(rs, &counts[countReadQueries], len(r.Texts))
	}
	return rs
}

// checkWindows adds at most one refusal for each limit: that of the longest window,
// and that of the oldest.
func (p *Policy) checkWindows(windows []Window, now time.Time) Refusals {
	var longest time.Duration
	first := int64(math.MaxInt64)
	for _, w := range windows {
		start := w.Start.UnixMilli()
		longest, first = max(longest, between(start, w.End.UnixMilli())), min(first, start)
	}
	if len(windows) == 0 {
		return nil
	}
	return p.checkSpan(nil, longest, first, now)
}
