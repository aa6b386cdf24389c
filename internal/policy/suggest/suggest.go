// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package suggest draws limits from a query log: for each that the log can
// tell something about, the 99th percentile of what was seen with a margin.
//
// A limit that only counts or warns so far is drawn at the percentile. One that
// refuses requests at once, be it those of one tenant or rule only, is drawn above
// all that was seen. A log that leaves out fast requests does not tell all that
// was seen, except of how long requests take. No suggestion is looser than the
// policy.
package suggest

import (
	"fmt"
	"math"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/proxy/config"
)

// Options says how to draw limits.
type Options struct {
	// Margin is what the seen is multiplied by; at least 1.
	Margin float64
	// MinRequests is on how many requests a limit must rest, and MinPeriod how long
	// all hours together are in which there are any.
	MinRequests int
	MinPeriod   time.Duration
}

// Validate returns an error that says what is wrong with o.
func (o *Options) Validate() error {
	switch {
	case !(o.Margin >= 1) || math.IsInf(o.Margin, 1):
		return fmt.Errorf("the margin is %v: use a number of at least 1, such as 1.5", o.Margin)
	case o.MinRequests < 100:
		return fmt.Errorf("the least number of requests is %d: use at least 100, below which there is no 99th percentile", o.MinRequests)
	}
	return nil
}

// Suggestion is what a log says about the limits of a policy.
type Suggestion struct {
	Lines []Line
	// Fragment has each limit that is to be changed as a whole, in YAML to put in
	// the place of those of the policy file; it is empty if nothing is.
	Fragment []byte
}

// Suggest draws limits for the text of a policy file.
func Suggest(text []byte, e *Evidence, o Options) (*Suggestion, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if e.Requests < o.MinRequests || e.period() < o.MinPeriod {
		return nil, fmt.Errorf("too little evidence: %d requests that were answered, in hours that are %s together; limits are drawn from at least %d in %s. Let the log grow (with query_log.slower_than: 0s it holds all requests), or lower --min-requests or --min-period",
			e.Requests, durationText(e.period()), o.MinRequests, model.Duration(o.MinPeriod))
	}
	before, err := config.Parse(text)
	if err != nil {
		return nil, err
	}
	d := drawing{Options: o, evidence: e, text: text}
	lines, err := d.draw(before.Rules)
	if err != nil {
		return nil, err
	}
	_, fragment, err := rewrite(text, lines)
	return &Suggestion{lines, fragment}, err
}
