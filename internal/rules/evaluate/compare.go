// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package evaluate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promguard/promguard/internal/rules/check"
	"github.com/promguard/promguard/internal/rules/source"
)

// Outcome says how the two results of an expression compare.
type Outcome string

// The outcomes.
const (
	Equal Outcome = "equal"
	// Within: not equal, and within the bound that was proved.
	Within  Outcome = "within the bound"
	Changed Outcome = "changed"
	Gone    Outcome = "gone"
	// Failed: also without the rules, the expression cannot be evaluated on the
	// data.
	Failed Outcome = "failed"
	// Skipped: a variable decides which metric is read.
	Skipped Outcome = "skipped"
)

// Measured is the outcome for one expression.
type Measured struct {
	Outcome Outcome
	// Rows are the series of the full result.
	Rows int
	// Why shows a row that differs, or an error.
	Why string
}

// Compare evaluates what was checked, on all processors, and returns an outcome
// for each.
func (d *Data) Compare(results []check.Result) []Measured {
	out := make([]Measured, len(results))
	next := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				out[i] = d.compare(results[i])
			}
		})
	}
	for i := range results {
		if d.Progress != nil {
			d.Progress(i, len(results))
		}
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}

func (d *Data) compare(r check.Result) Measured {
	if r.Expression.Listing != nil {
		return d.compareListing(r)
	}
	worst := Measured{Outcome: Equal}
	for _, q := range r.Expression.Queries {
		text, ok := source.Evaluable(q)
		if !ok {
			return Measured{Outcome: Skipped, Why: "a variable decides which metric it reads"}
		}
		m := d.compareQuery(text, r)
		if slices.Index(badness, m.Outcome) > slices.Index(badness, worst.Outcome) {
			m.Rows += worst.Rows
			worst = m
			continue
		}
		worst.Rows += m.Rows
	}
	return worst
}

var badness = []Outcome{Equal, Failed, Skipped, Within, Changed, Gone}

func (d *Data) compareQuery(query string, r check.Result) Measured {
	full, fullErr := d.evaluate(d.full, query, now)
	thinned, thinnedErr := d.evaluate(d.thinned, query, now)
	switch {
	case fullErr != nil:
		// There is no result to lose.
		return Measured{Outcome: Failed, Why: fullErr.Error()}
	case thinnedErr != nil:
		return Measured{Outcome: Changed, Rows: len(full), Why: "Evaluated, it is an error with the rules: " + thinnedErr.Error() + "."}
	case len(thinned) == 0 && len(full) > 0:
		return Measured{Outcome: Gone, Rows: len(full), Why: fmt.Sprintf("Evaluated, it returns %d rows without the rules and none with them.", len(full))}
	}
	m := compareRows(full, thinned, bounds(r))
	m.Rows = len(full)
	return m
}

// allowed is what thinning may do to a result.
type allowed struct {
	thinned bool
	bound   check.Bound
}

func bounds(r check.Result) allowed {
	var a allowed
	for _, f := range r.Findings {
		if f.Bound != nil {
			a.thinned = true
			a.bound = a.bound.And(*f.Bound)
		}
	}
	return a
}

func compareRows(full, thinned map[string]row, a allowed) Measured {
	m := Measured{Outcome: Equal}
	worse := func(o Outcome, format string, args ...any) {
		if slices.Index(badness, o) > slices.Index(badness, m.Outcome) {
			m = Measured{Outcome: o, Why: fmt.Sprintf(format, args...)}
		}
	}
	for key, f := range full {
		t, ok := thinned[key]
		switch {
		case !ok && a.thinned && f.labels.Get(labels.BucketLabel) != "":
			worse(Within, "")
		case !ok:
			worse(Changed, "Evaluated, the row %s is missing with the rules.", f.labels)
		case same(f.value, t.value):
		case a.thinned && a.bound.Holds(f.value, t.value):
			worse(Within, "")
		default:
			worse(Changed, "Evaluated, %s is %g without the rules and %g with them.", f.labels, f.value, t.value)
		}
	}
	for key, t := range thinned {
		if _, ok := full[key]; !ok {
			worse(Changed, "Evaluated, the row %s is there only with the rules.", t.labels)
		}
	}
	return m
}

// same allows for the order in which numbers are added up.
func same(a, b float64) bool {
	if a == b || math.IsNaN(a) && math.IsNaN(b) {
		return true
	}
	return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b))
}

// compareListing compares the values of a label.
func (d *Data) compareListing(r check.Result) Measured {
	l := r.Expression.Listing
	matchers := slices.DeleteFunc(slices.Clone(l.Matchers), func(m *labels.Matcher) bool {
		return m.Name != labels.MetricName && (source.HasMarker(m.Name) || source.HasMarker(m.Value))
	})
	if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return source.HasMarker(m.Value) }) || source.HasMarker(l.Label) {
		return Measured{Outcome: Skipped, Why: "a variable decides which metric it reads"}
	}
	full, fullErr := values(d.full, l.Label, matchers)
	thinned, thinnedErr := values(d.thinned, l.Label, matchers)
	if err := errors.Join(fullErr, thinnedErr); err != nil {
		return Measured{Outcome: Failed, Why: err.Error()}
	}
	m := Measured{Outcome: Equal, Rows: len(full)}
	lost := slices.DeleteFunc(full, func(v string) bool { return slices.Contains(thinned, v) })
	switch {
	case len(lost) == 0:
	case l.Label == labels.BucketLabel && bounds(r).thinned:
		m.Outcome = Within
	case len(thinned) == 0:
		m.Outcome, m.Why = Gone, "Evaluated, no value is left with the rules."
	default:
		m.Outcome = Changed
		m.Why = fmt.Sprintf("Evaluated, with the rules these values are missing: %s.", strings.Join(lost[:min(5, len(lost))], ", "))
	}
	return m
}

func values(h *head, label string, matchers []*labels.Matcher) ([]string, error) {
	q, err := h.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	if label == "" {
		names, _, err := q.LabelNames(context.Background(), nil, matchers...)
		return slices.Clone(names), err
	}
	found, _, err := q.LabelValues(context.Background(), label, nil, matchers...)
	return slices.Clone(found), err
}
