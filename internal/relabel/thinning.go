// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
)

// Thinning is what a rule of class thin takes out of histograms, so that the
// effect on their quantiles can be stated without looking at data: the counts at
// the bounds that stay are exact, so a quantile stays within the buckets that
// were merged.
type Thinning struct {
	// Histograms are the histograms' names, without _bucket.
	Histograms []string
	// Drop are the upper bounds whose buckets go, in the metric's unit.
	Drop []float64
	// Bounds are the finite upper bounds that the exporters give these
	// histograms, ascending.
	Bounds []float64
}

// SourceLabels returns the labels that a thinning rule reads. There is no job
// among them: a histogram that is summed over jobs must lose a bound in all.
func (Thinning) SourceLabels() []string {
	return []string{model.MetricNameLabel, model.BucketLabel}
}

// Regex returns the rule's regex. It matches a bound as Prometheus 2 stores it
// from the text format, 30, and as Prometheus 3 does, 30.0.
func (t Thinning) Regex() string {
	names := make([]string, 0, len(t.Histograms))
	for _, h := range t.Histograms {
		names = append(names, regexp.QuoteMeta(h)+"_bucket")
	}
	bounds := make([]string, 0, len(t.Drop))
	for _, b := range t.Drop {
		bounds = append(bounds, boundRegex(b))
	}
	return "(" + strings.Join(names, "|") + ");(" + strings.Join(bounds, "|") + ")"
}

func boundRegex(bound float64) string {
	text := strconv.FormatFloat(bound, 'g', -1, 64)
	if strings.ContainsAny(text, ".e") {
		return regexp.QuoteMeta(text)
	}
	return text + `(\.0)?`
}

// thinning returns the rule with what follows from its Thinning filled in.
func (r Rule) thinning(t Thinning) Rule {
	r.Class = ClassThin
	r.Thinning = &t
	r.SourceLabels = t.SourceLabels()
	r.Regex = t.Regex()
	return r
}

func (r Rule) validateThinning() []error {
	var errs []error
	t := r.Thinning
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if r.Class != ClassThin {
		fail("class %q: a rule with histograms thins them, and has class %s", r.Class, ClassThin)
	}
	if !slices.Equal(r.SourceLabels, t.SourceLabels()) || r.Regex != t.Regex() {
		errs = append(errs, errors.New("source labels and regex must be those that follow from histograms and drop_le"))
	}
	if len(t.Histograms) == 0 || len(t.Drop) == 0 {
		errs = append(errs, errors.New("histograms and drop_le: name at least one of each"))
	}
	for _, h := range t.Histograms {
		if !model.LegacyValidation.IsValidMetricName(h) || strings.HasSuffix(h, "_bucket") {
			fail("histograms: %q: write a histogram's name without _bucket", h)
		}
	}
	for i, b := range t.Bounds {
		if math.IsInf(b, 0) || math.IsNaN(b) || i > 0 && b <= t.Bounds[i-1] {
			fail("bounds: they must be finite and ascend, %g does not", b)
		}
	}
	for _, b := range t.Drop {
		switch i := slices.Index(t.Bounds, b); {
		case i < 0:
			fail("drop_le: %g is not one of the bounds", b)
		case i == len(t.Bounds)-1:
			fail("drop_le: %g is the largest finite bound, which is what quantiles above it return", b)
		}
	}
	return errs
}
