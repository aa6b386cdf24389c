// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package suggest draws limits from a query log: for each that the log can
// tell something about, the 99th percentile of what was seen with a margin.
//
// A limit that only counts or warns so far is drawn at the percentile. One that
// refuses requests at once, be it those of one tenant or rule only, is drawn above
// all that was seen. A log that leaves out fast requests does not tell all that
// was seen, except of how long requests take. No suggestion is looser than the
// policy, unless that is asked for.
//
// The log is replayed under what is suggested: nothing that was answered gets less.
package suggest

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/policy/dryrun"
	"github.com/promguard/promguard/internal/proxy/config"
	"github.com/promguard/promguard/internal/querylimit"
)

// Options says how to draw limits.
type Options struct {
	// Margin is what the seen is multiplied by; at least 1.
	Margin float64
	// MinRequests is on how many requests a limit must rest, and MinPeriod how long
	// all hours together are in which there are any.
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

// Suggestion is what a log says about the limits of a policy.
type Suggestion struct {
	Lines []Line
	// Fragment has each limit that is to be changed as a whole, in YAML to put in
	// the place of those of the policy file; it is empty if nothing is.
	Fragment []byte
	// Proof is what the policy as it was and the one with the fragment do with the
	// log, and Enforced what that does once all of the fragment is in mode enforce.
	Proof    *dryrun.Comparison
	Enforced *dryrun.Report

	partial bool // the log leaves out fast requests
}

// Suggest draws limits for the text of a policy file, and replays the log from
// which the evidence is under them: log returns it from its beginning. A limit by
// which a request gets less that was answered is withdrawn, and what is left is
// tried again, so that under what is returned none does.
func Suggest(text []byte, e *Evidence, o Options, log func() io.Reader) (*Suggestion, error) {
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
	d := drawing{Options: o, evidence: e, text: text, withdrawn: map[string]string{}}
	for {
		lines, err := d.draw(before.Rules)
		if err != nil {
			return nil, err
		}
		s := &Suggestion{Lines: lines, partial: e.partial}
		if err := s.replay(text, before.Rules, log); err != nil {
			return nil, err
		}
		if s.Proof.Worse == 0 {
			return s, nil
		}
		known := len(d.withdrawn)
		for limit, n := range s.Proof.Limits {
			d.withdrawn[limit] = fmt.Sprintf("%d of the requests that were answered would get less, such as %s", n, s.Proof.Examples[limit])
		}
		if len(d.withdrawn) == known { // It is no limit that was drawn, and so nobody knows why.
			return nil, fmt.Errorf("nothing is suggested: it would refuse or shorten what was answered, by %s",
				strings.Join(slices.Sorted(maps.Keys(s.Proof.Limits)), ", "))
		}
	}
}

func (s *Suggestion) replay(text []byte, before *querylimit.Ruleset, log func() io.Reader) error {
	after, fragment, err := rewrite(text, s.Lines, false)
	if err != nil {
		return err
	}
	s.Fragment = fragment
	if s.Proof, err = dryrun.Compare(before, after, log()); err != nil {
		return err
	}
	enforced, _, err := rewrite(text, s.Lines, true)
	if err != nil {
		return err
	}
	s.Enforced, err = dryrun.Run(enforced, log())
	return err
}
