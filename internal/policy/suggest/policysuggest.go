// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package suggest draws limits from a query log: for each that the log can
// tell something about, the 99th percentile of what was seen with a margin.
//
// A limit that only counts or warns so far is drawn at the percentile; one that
// refuses requests at once, be it those of one tenant or rule only, is drawn above
// all that was seen, so that putting a suggestion into force refuses nothing that
// was answered before. A log that leaves out fast requests does not tell all that
// was seen, except of how long requests take. No suggestion is looser than the
// policy, unless that is asked for.
package suggest

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/promguard/promguard/internal/policy/dryrun"
	"github.com/promguard/promguard/internal/proxy/config"
	"github.com/promguard/promguard/internal/querylimit"
)

// Options says how to draw limits.
type Options struct {
	// Margin is what the seen is multiplied by; at least 1.
	Margin float64
	// MinRequests is on how many requests a limit, and MinPeriod on what time the
	// whole must rest.
	MinRequests int
	MinPeriod   time.Duration
	// Mode is that of limits that were off: ModeObserve or ModeWarn.
	Mode querylimit.Mode
	// Looser allows limits that let more pass than the policy does.
	Looser bool
}

// Validate returns an error that says what is wrong with o.
func (o *Options) Validate() error {
	switch {
	case !(o.Margin >= 1) || math.IsInf(o.Margin, 1):
		return fmt.Errorf("the margin is %v: use a number of at least 1, such as 1.5", o.Margin)
	case o.MinRequests < 100:
		return fmt.Errorf("the least number of requests is %d: use at least 100, below which there is no 99th percentile", o.MinRequests)
	case o.Mode != querylimit.ModeObserve && o.Mode != querylimit.ModeWarn:
		return fmt.Errorf("mode %s: use observe or warn; go on to enforce when you have looked at promguard_limit_exceeded_total", o.Mode)
	}
	return nil
}

// Line is what is said about one limit.
type Line struct {
	// Tenant is empty for everybody.
	Tenant, Limit string
	// Requests had any of it. P99 and Most are of those; of a bound from below, the
	// first percentile and the least.
	Requests  int
	P99, Most string
	// Now and Then are the value with its mode; Then is empty if it stays, and Why
	// says for what reason.
	Now, Then, Why string
}

// Suggestion is a policy with the limits in it.
type Suggestion struct {
	// Text is the policy file; Enforced is the same with every limit that was
	// suggested in mode enforce, to see where it leads.
	Text, Enforced []byte
	Lines          []Line
	// Proof is what the policy as it was and Text do with the log.
	Proof *dryrun.Comparison

	partial bool // the log leaves out fast requests
}

// Suggest writes limits into the text of a policy file, and replays the log from
// which the evidence is against them: log returns it from its beginning. A limit by
// which a request gets less that was answered is withdrawn, and what is left is
// tried again, so that under what is returned none does.
func Suggest(text []byte, e *Evidence, o Options, log func() io.Reader) (*Suggestion, error) {
	before, err := config.Parse(text)
	if err != nil {
		return nil, err
	}
	withdrawn := map[string]string{}
	for {
		s, err := draft(text, e, o, withdrawn)
		if err != nil {
			return nil, err
		}
		if s.Proof, err = compare(before, s.Text, log()); err != nil {
			return nil, err
		}
		if s.Proof.Worse == 0 {
			return s, nil
		}
		known := len(withdrawn)
		for limit, n := range s.Proof.Limits {
			withdrawn[limit] = fmt.Sprintf("%d of the requests that were answered would get less, such as %s", n, s.Proof.Examples[limit])
		}
		if len(withdrawn) == known { // It is no limit that was drawn, and so nobody knows why.
			return nil, fmt.Errorf("nothing is suggested: it would refuse or shorten what was answered, by %s",
				strings.Join(slices.Sorted(maps.Keys(s.Proof.Limits)), ", "))
		}
	}
}

func compare(before *config.Config, after []byte, log io.Reader) (*dryrun.Comparison, error) {
	c, err := config.Parse(after)
	if err != nil {
		return nil, err
	}
	return dryrun.Compare(before.Rules, c.Rules, log)
}
