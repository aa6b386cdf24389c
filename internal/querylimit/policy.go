// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
)

// Class groups endpoints by what they cost and who waits for them, as in the patched
// Prometheus.
type Class uint8

const (
	// ClassQuery is PromQL: query, query_range, query_exemplars.
	ClassQuery Class = iota
	// ClassMetadata is what autocompletion and variables read, and lists as long:
	// series, labels, label values, metadata, targets.
	ClassMetadata
	// ClassStatus is the rest: rules, alerts, build information.
	ClassStatus
	// ClassBulk is what machines read in large pieces: federation and remote read.
	ClassBulk

	numClasses
)

var classNames = [numClasses]string{ClassQuery: "query", ClassMetadata: "metadata", ClassStatus: "status", ClassBulk: "bulk"}

// Classes returns every class.
func Classes() []Class { return []Class{ClassQuery, ClassMetadata, ClassStatus, ClassBulk} }

// String returns the name used in metrics and in the configuration.
func (c Class) String() string {
	if c < numClasses {
		return classNames[c]
	}
	return "Class(" + strconv.Itoa(int(c)) + ")"
}

// Go's HTTP server, and so Prometheus, takes a form of more than 10 MiB and a
// request of more than 10000 parameters for one without any. Escaping can make a
// form three times as long on its way.
const (
	MaxRequestBytes = 10 << 20 / 3
	MaxParameters   = 10_000
)

// Bound is a limit on a number, or on a time in nanoseconds: a request may have at most Max.
type Bound struct {
	Mode Mode
	Max  int
}

// MetadataRange is the limit on the time range of metadata requests. In
// ModeEnforce a request without start gets Default, or Max if that is 0, and a
// longer range than Max is refused. Max 0 means no bound.
type MetadataRange struct {
	Mode         Mode
	Default, Max time.Duration
}

// Options is what a Policy is built from. The zero value of a field means what
// its comment says; DefaultOptions has the values to start from.
type Options struct {
	// Deadlines bounds the time of a request by its class; 0 means no bound.
	Deadlines [numClasses]time.Duration
	// Selectivity is the mode of the limit of that name.
	Selectivity Mode
	// EqualityLabels restricts the labels whose equality matcher makes a
	// selector selective. Empty means any label. A metric name always counts.
	EqualityLabels []string
	// UnknownPromQL is the mode of the limit of that name.
	UnknownPromQL Mode
	// QueryBytes bounds the length of an expression or selector in bytes; Max
	// is 1 to promqltext.MaxBytes.
	QueryBytes Bound
	// QueryOperators bounds how many operators, calls, parentheses and brackets
	// the PromQL of a request has; Max is 1 to promqltext.MaxOperators.
	QueryOperators Bound
	// RegexSize bounds the instructions that the regular expressions of a
	// request compile into; Max is 1 to promqltext.MaxRegexSize.
	RegexSize Bound
	// Series bounds the series that a request reads, and Samples the samples that the
	// server holds for it at once; Max 0 follows from the memory of the server.
	Series, Samples Bound
	// Range bounds the time from the first to the last sample that a query reads, and
	// Oldest how long ago the first may be; 0 means no bound.
	Range, Oldest Bound
	// MetadataRange bounds the time range of series, labels and label values.
	MetadataRange MetadataRange
	// Responses bounds the bytes of answers.
	Responses Responses
	// RequestBytesMax is the longest query string plus body in bytes, 1 to
	// MaxRequestBytes.
	RequestBytesMax int
	// ParametersMax is the largest number of parameters, 1 to MaxParameters.
	ParametersMax int
}

// DefaultOptions returns the policy of a promguard without a configuration file.
func DefaultOptions() Options {
	return Options{
		Deadlines: [numClasses]time.Duration{
			ClassQuery:    2 * time.Minute,
			ClassMetadata: 30 * time.Second,
			ClassStatus:   30 * time.Second,
			ClassBulk:     2 * time.Minute,
		},
		Selectivity:     ModeEnforce,
		UnknownPromQL:   ModeEnforce,
		QueryBytes:      Bound{ModeEnforce, 64 << 10},
		QueryOperators:  Bound{ModeEnforce, 1000},
		RegexSize:       Bound{ModeEnforce, 100_000},
		Series:          Bound{Mode: ModeEnforce},
		Samples:         Bound{Mode: ModeEnforce},
		Range:           Bound{ModeObserve, int(32 * 24 * time.Hour)},
		Oldest:          Bound{ModeOff, int(400 * 24 * time.Hour)},
		MetadataRange:   MetadataRange{Mode: ModeOff, Default: 24 * time.Hour, Max: 32 * 24 * time.Hour},
		Responses:       defaultResponses,
		RequestBytesMax: 1 << 20,
		ParametersMax:   1000,
	}
}

// Policy answers what a request may do. It is immutable and safe for concurrent
// use. Build one with New, or a Ruleset that has one for every request.
type Policy struct {
	opts   Options
	tenant string
	listed string // the label whose values are asked for, of a request for these
}

// New returns the policy that opts describes, or an error that names the option,
// its value and what is allowed.
func New(opts Options) (*Policy, error) {
	for _, c := range Classes() {
		if d := opts.Deadlines[c]; d < 0 {
			return nil, fmt.Errorf("deadline of class %s is %s: use 0 for none, or a positive duration", c, d)
		}
	}
	for _, c := range Counts() {
		if err := c.Validate(c.Of(&opts).Max); err != nil {
			return nil, err
		}
	}
	if err := opts.MetadataRange.Validate(); err != nil {
		return nil, err
	}
	if err := opts.Responses.Validate(); err != nil {
		return nil, err
	}
	if n := opts.RequestBytesMax; n < 1 || n > MaxRequestBytes {
		return nil, fmt.Errorf("%s is %d: use 1 to %d", LimitRequestBytes, n, MaxRequestBytes)
	}
	if n := opts.ParametersMax; n < 1 || n > MaxParameters {
		return nil, fmt.Errorf("%s is %d: use 1 to %d", LimitParameters, n, MaxParameters)
	}
	for _, l := range opts.EqualityLabels {
		if err := ValidateLabel(l); err != nil {
			return nil, err
		}
	}
	p := &Policy{opts: opts}
	p.opts.EqualityLabels = append([]string(nil), opts.EqualityLabels...)
	return p, nil
}

// ValidateLabel returns an error if name cannot be one of EqualityLabels.
func ValidateLabel(name string) error {
	if !model.UTF8Validation.IsValidLabelName(name) {
		return fmt.Errorf("equality label %q is not a label name", name)
	}
	return nil
}

// Options returns what the policy is made of.
func (p *Policy) Options() Options {
	o := p.opts
	o.EqualityLabels = append([]string(nil), o.EqualityLabels...)
	return o
}

// Tenant returns whose limits these are; empty for those of everybody.
func (p *Policy) Tenant() string { return p.tenant }

func (p *Policy) refuse(limit string, mode Mode, remedy, value, cause, operator string) *Refusal {
	return &Refusal{Limit: limit, Mode: mode, Tenant: p.tenant, Remedy: remedy, Value: value, Cause: cause, Operator: operator}
}

// Deadline returns how long a request of class c may take, given the timeout
// that it asked for itself; requested <= 0 means that it asked for none. The
// shorter of the two wins. 0 means no bound.
func (p *Policy) Deadline(c Class, requested time.Duration) time.Duration {
	limit := p.opts.Deadlines[c]
	switch {
	case requested <= 0:
		return limit
	case limit == 0:
		return requested
	default:
		return min(limit, requested)
	}
}

// RequestBytesMax returns how long the query string and the body of a request
// may be together, in bytes.
func (p *Policy) RequestBytesMax() int { return p.opts.RequestBytesMax }

// ParametersMax returns how many parameters a request may have.
func (p *Policy) ParametersMax() int { return p.opts.ParametersMax }

// RefuseRequestBytes returns the refusal of a request that is too long.
func (p *Policy) RefuseRequestBytes() *Refusal {
	return p.refuse(LimitRequestBytes, ModeEnforce, "Ask for fewer selectors at a time, or shorten them.",
		"a request", "has parameters that are longer than the "+strconv.Itoa(p.opts.RequestBytesMax)+" bytes allowed", raise(LimitRequestBytes))
}

// RefuseParameters returns the refusal of a request with too many parameters.
func (p *Policy) RefuseParameters() *Refusal {
	return p.refuse(LimitParameters, ModeEnforce, "Ask for fewer selectors at a time: each match[] is one parameter.",
		"a request", "has more than the "+strconv.Itoa(p.opts.ParametersMax)+" parameters allowed", raise(LimitParameters))
}

// RefuseDeadline returns what to tell a client whose request of class c to the
// endpoint ran into the deadline d.
func (p *Policy) RefuseDeadline(c Class, endpoint string, d time.Duration) *Refusal {
	remedy, operator := "Ask for a shorter range, fewer series or a larger step.", "raise limits.deadline."+c.String()
	if own := p.opts.Deadlines[c]; own == 0 || d < own {
		remedy, operator = "Raise the request's own timeout, which set this deadline, or ask for less.", ""
	}
	return p.refuse(LimitDeadline, ModeEnforce, remedy, endpoint, "was not answered within its deadline of "+d.String(), operator)
}
