// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package relabel holds promguard's default drop rules: which series of a
// Kubernetes installation are not worth storing, why, and a compiled form that
// decides it on the scrape path.
//
// A [Rule] is one drop rule in the terms of Prometheus's relabelling, with the
// reason why dropping is harmless; a [Profile] is a named list of them.
// [Compile] turns a profile into a [Dropper], [Counters] count what it drops,
// [Render] prints it as configuration for a Prometheus without this package, and
// [LoadProfile] reads one from a file.
//
// The package is not a relabelling engine. A rule can only drop, never rewrite a
// label, so that its effect can be stated per series. It is also not the place
// for a user's own metric_relabel_configs, which run before these rules.
//
// It imports the standard library, client_golang and Prometheus's public
// packages only, because the same source is compiled into the patched
// Prometheus.
package relabel

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/prometheus/common/model"
	promrelabel "github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/promql/parser"
)

// separator joins the values of a rule's source labels. It is the default of
// Prometheus's relabel configs, so a rendered rule need not name it.
const separator = ";"

// Class says what a reader of the data could notice when a rule's series go.
// The classes are ordered from nothing at all to changed results.
type Class string

const (
	// ClassUnused drops names that nothing checked reads.
	ClassUnused Class = "unused"
	// ClassDisjoint drops series of a name that is read, but only by selectors
	// that exclude those series.
	ClassDisjoint Class = "disjoint"
	// ClassBucket drops the buckets of a histogram whose quantiles nothing
	// reads. Its _sum and _count stay.
	ClassBucket Class = "bucket"
	// ClassThin drops some buckets of a histogram that is read. A quantile moves
	// within the bucket that the dropped bounds divided.
	ClassThin Class = "thin"
	// ClassValueChanging drops series that are read: results change.
	ClassValueChanging Class = "value-changing"
)

// Classes returns every class, the most harmless first.
func Classes() []Class {
	return []Class{ClassUnused, ClassDisjoint, ClassBucket, ClassThin, ClassValueChanging}
}

// Rule drops every series whose source labels' values, joined by ";", match the
// regex from start to end, as a relabel config with action drop does. There is
// no other action.
type Rule struct {
	// ID names the rule in metrics, comments and reports. Lower-case letters,
	// digits and dashes; unique in a profile; never reused for another meaning.
	ID string
	// Class says what a reader could notice.
	Class Class
	// SourceLabels are the labels that the regex sees, at least one. Put
	// __name__ first: such a rule is looked up by name instead of being tried on
	// every series.
	SourceLabels []string
	// Regex is anchored at both ends.
	Regex string
	// Jobs limits the rule to series with one of these values of the job label.
	// Empty means every job. A name that more than one exporter uses needs it.
	Jobs []string
	// Reason says, in one line for an operator, why the series are not missed.
	Reason string
	// Saving says, in one line, how many series the rule keeps out and what they
	// grow with.
	Saving string
	// Since and Until are the Kubernetes versions, such as 1.33, between which
	// the components export the series, both included. Empty means that no end
	// is known. They inform; the rule applies to every version.
	Since, Until string
	// Requires is a series selector that must return something wherever the rule
	// drops something, or the rule is not for this installation: its guard.
	// Empty means none.
	Requires string
	// Thinning is set if the rule takes some buckets out of histograms that are
	// read. The source labels and the regex then follow from it, see Thinning.
	Thinning *Thinning
}

var (
	idPattern      = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	versionPattern = regexp.MustCompile(`^1\.[0-9]{1,3}$`)
)

// Validate reports everything that is wrong with the rule.
func (r Rule) Validate() error {
	var errs []error
	if !idPattern.MatchString(r.ID) {
		errs = append(errs, fmt.Errorf("id %q: use lower-case letters, digits and dashes", r.ID))
	}
	if !slices.Contains(Classes(), r.Class) {
		errs = append(errs, fmt.Errorf("class %q: use one of %s", r.Class, joinNames(Classes())))
	}
	if strings.TrimSpace(r.Reason) == "" || !printable(r.Reason) {
		errs = append(errs, errors.New("reason: say in one line why the series are not missed"))
	}
	errs = append(errs, r.validateNotes()...)
	errs = append(errs, r.validateLabels()...)
	if err := r.validateRegex(); err != nil {
		errs = append(errs, fmt.Errorf("regex: %w", err))
	}
	if r.Thinning != nil {
		errs = append(errs, r.validateThinning()...)
	}
	return errors.Join(errs...)
}

func (r Rule) validateNotes() []error {
	var errs []error
	if !printable(r.Saving) {
		errs = append(errs, errors.New("saving: say it in one line"))
	}
	for _, v := range []string{r.Since, r.Until} {
		if v != "" && !versionPattern.MatchString(v) {
			errs = append(errs, fmt.Errorf("version %q: use a Kubernetes version such as 1.33", v))
		}
	}
	if r.Requires != "" {
		if _, err := parser.NewParser(parser.Options{}).ParseMetricSelector(r.Requires); err != nil {
			errs = append(errs, fmt.Errorf("requires: %q is not a series selector: %w", r.Requires, err))
		}
	}
	return errs
}

func (r Rule) validateRegex() error {
	if r.Regex == "" {
		return errors.New("empty")
	}
	// Alone first: Prometheus anchors a regex by wrapping it as text, so that
	// "a)|(b" would compile and be anchored at one end of each half only.
	if _, err := regexp.Compile(r.Regex); err != nil {
		return err
	}
	_, err := r.RelabelConfig()
	return err
}

func (r Rule) validateLabels() []error {
	var errs []error
	if len(r.SourceLabels) == 0 {
		errs = append(errs, errors.New("source labels: none"))
	}
	for _, l := range r.SourceLabels {
		if !model.UTF8Validation.IsValidLabelName(l) {
			errs = append(errs, fmt.Errorf("source labels: %q is not a label name", l))
		}
	}
	for _, j := range r.Jobs {
		if j == "" || strings.Contains(j, separator) {
			errs = append(errs, fmt.Errorf("jobs: %q cannot be matched: it is empty or contains %q", j, separator))
		}
	}
	// Two jobs that export one histogram are summed by le. If only one of them
	// loses a bound, the sum is no longer a cumulative histogram and a quantile
	// of it is wrong without bound.
	if slices.Contains(r.SourceLabels, model.BucketLabel) &&
		(len(r.Jobs) > 0 || slices.Contains(r.SourceLabels, model.JobLabel)) {
		errs = append(errs, errors.New("a rule that reads le must not depend on job: a histogram must lose a bound in every job or in none"))
	}
	return errs
}

// RelabelConfig returns the rule as Prometheus's relabelling understands it.
// The error is that of a regex that does not compile.
func (r Rule) RelabelConfig() (*promrelabel.Config, error) {
	names, pattern := r.Joined()
	re, err := promrelabel.NewRegexp(pattern)
	if err != nil {
		return nil, err
	}
	cfg := promrelabel.DefaultRelabelConfig
	cfg.Action = promrelabel.Drop
	cfg.Regex = re
	cfg.NameValidationScheme = model.UTF8Validation
	for _, n := range names {
		cfg.SourceLabels = append(cfg.SourceLabels, model.LabelName(n))
	}
	return &cfg, nil
}

// Joined returns the labels whose values a series is judged by and the regex
// that their values, joined by ";", match if it is dropped: the source labels and
// the regex with the scope folded in. The job comes last so that the name stays
// first.
func (r Rule) Joined() (names []string, pattern string) {
	if len(r.Jobs) == 0 {
		return r.SourceLabels, r.Regex
	}
	quoted := make([]string, 0, len(r.Jobs))
	for _, j := range r.Jobs {
		quoted = append(quoted, regexp.QuoteMeta(j))
	}
	names = append(slices.Clone(r.SourceLabels), model.JobLabel)
	return names, "(?:" + r.Regex + ")" + separator + "(?:" + strings.Join(quoted, "|") + ")"
}

// Split returns Joined's labels and one regex for each, if the rule can be taken
// apart so: it then drops a series exactly if every regex matches its label's
// value, as long as no value contains ";". Otherwise the regexes are nil.
func (r Rule) Split() (names, patterns []string, err error) {
	names, pattern := r.Joined()
	patterns, err = splitRegex(pattern, len(names))
	return names, patterns, err
}

// printable reports whether s fits on one line of a comment.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// joinNames lists names for a message.
func joinNames[S ~string](names []S) string {
	out := make([]string, 0, len(names))
	for _, n := range names {
		out = append(out, string(n))
	}
	return strings.Join(out, ", ")
}
