// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"fmt"
	"strconv"
)

// ResultSet is a set of endpoints whose parameter limit counts the same things.
type ResultSet uint8

// The sets.
const (
	// ResultsQuery are the series of query and query_range, and of the estimates of both.
	ResultsQuery ResultSet = iota
	ResultsSeries
	ResultsLabels
	ResultsLabelValues

	numResultSets
)

var resultSetNames = [numResultSets]string{"query", "series", "labels", "label_values"}

// ResultSets returns every set.
func ResultSets() []ResultSet {
	return []ResultSet{ResultsQuery, ResultsSeries, ResultsLabels, ResultsLabelValues}
}

// String returns the name used in the configuration.
func (s ResultSet) String() string { return resultSetNames[s] }

// ResultLimit is what the parameter limit of a request may be. 0 means none.
type ResultLimit struct {
	// Default is for requests without limit.
	Default int
	// Max is for those that ask for more, or for all.
	Max int
}

// Results is the limit on the parameter limit. In ModeEnforce it is set to what
// is allowed; the server then says itself that it truncated an answer.
type Results struct {
	Mode Mode
	Sets [numResultSets]ResultLimit
}

var defaultResults = Results{
	Mode: ModeOff,
	Sets: [numResultSets]ResultLimit{
		ResultsSeries:      {Default: 20_000, Max: 200_000},
		ResultsLabels:      {Default: 20_000, Max: 200_000},
		ResultsLabelValues: {Default: 50_000, Max: 200_000},
	},
}

// Validate returns an error that says what is wrong with r.
func (r *Results) Validate() error {
	for _, s := range ResultSets() {
		if err := r.Sets[s].Validate(); err != nil {
			return fmt.Errorf("%s: %s: %w", LimitResults, s, err)
		}
	}
	return nil
}

// Validate returns an error that says what is wrong with l.
func (l ResultLimit) Validate() error {
	if l.Default < 0 || l.Max < 0 {
		return fmt.Errorf("default is %d and max %d: use 0 for none, or a positive number", l.Default, l.Max)
	}
	if l.Max > 0 && l.Default > l.Max {
		return fmt.Errorf("default %d is more than max %d", l.Default, l.Max)
	}
	return nil
}

// CheckResults looks at the parameter limit of a request; requested is negative
// if it has none, and 0 asks for all. If set is true, the server is to be given
// the limit that is returned.
func (p *Policy) CheckResults(s ResultSet, requested int) (limit int, set bool, rs Refusals) {
	b := p.opts.Results
	limit = b.Sets[s].allowed(requested)
	if b.Mode == ModeOff || limit == max(requested, 0) {
		return requested, false, nil
	}
	if b.Mode == ModeEnforce {
		return limit, true, nil
	}
	value := "a request for all results"
	if requested > 0 {
		value = "a request for up to " + strconv.Itoa(requested) + " results"
	}
	return requested, false, Refusals{p.refuse(LimitResults, b.Mode, "Give the request a limit of at most "+strconv.Itoa(limit)+", and select less.",
		value, "may have "+strconv.Itoa(limit), raise(LimitResults+"."+s.String()))}
}

func (l ResultLimit) allowed(requested int) int {
	switch {
	case requested < 0 && l.Default > 0 && (l.Max == 0 || l.Default <= l.Max):
		return l.Default
	case l.Max > 0 && (requested <= 0 || requested > l.Max):
		return l.Max
	default:
		return max(requested, 0)
	}
}
