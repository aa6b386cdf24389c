// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promguard/promguard/internal/rules/source"
)

// selectorText writes matchers as a selector, with "..." for variables.
func selectorText(matchers []*labels.Matcher) string {
	name := ""
	var terms []string
	for _, m := range matchers {
		value := strings.Join(source.SplitMarkers(m.Value), "...")
		switch {
		case m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual && name == "" && value != "":
			name = value
		case source.HasMarker(m.Name):
			terms = append(terms, "...")
		default:
			terms = append(terms, fmt.Sprintf("%s%s%q", m.Name, m.Type, value))
		}
	}
	if len(terms) == 0 && name != "" {
		return name
	}
	return name + "{" + strings.Join(terms, ",") + "}"
}

// seriesText writes label values as a series.
func seriesText(names, values []string) string {
	name := ""
	var terms []string
	for i, n := range names {
		if n == model.MetricNameLabel {
			name = values[i]
			continue
		}
		terms = append(terms, fmt.Sprintf("%s=%q", n, values[i]))
	}
	if len(terms) == 0 {
		return name
	}
	return name + "{" + strings.Join(terms, ",") + "}"
}

// sentence says what happens to something of the kind and why.
func sentence(kind source.Kind, rule string, e effect, v Verdict) string {
	because := fmt.Sprintf(": rule %s %s", rule, e.why)
	if len(e.via) > 0 {
		because += " (through what is recorded as " + strings.Join(e.via, ", ") + ")"
	}
	because += "."
	switch v {
	case Undecided:
		return fmt.Sprintf("Rule %s could not be checked: %s.", rule, e.undecided)
	case Gone:
		return gone(kind) + because
	case Thinned:
		if e.near != nil {
			return e.near.String() + because
		}
		return "The rows of some bounds are missing, all others are exact" + because
	}
	return changed(kind, e) + because
}

// String says how far which quantiles may move.
func (n near) String() string {
	verb := " moves by "
	if len(n.quantiles) > 1 {
		verb = " move by "
	}
	return strings.Join(n.quantiles, " and ") + verb + n.bound.text(n.widest)
}

func gone(kind source.Kind) string {
	switch kind {
	case source.KindAlert:
		return "The alert can no longer fire"
	case source.KindRecord:
		return "The recording rule records nothing any more"
	case source.KindPanel, source.KindAnnotation:
		return "It shows no data any more"
	case source.KindVariable:
		return "The variable has no values any more"
	}
	return "It returns nothing any more"
}

func changed(kind source.Kind, e effect) string {
	if kind == source.KindAlert {
		switch {
		case e.gain && !e.lose:
			return "The alert may fire where it should not"
		case e.lose && !e.gain && !e.move:
			return "The alert may stay silent where it should fire"
		}
		return "The alert may fire or stay silent where it should not"
	}
	var what []string
	if e.lose || e.thin != nil {
		what = append(what, "lose series")
	}
	if e.gain {
		what = append(what, "show series that should not be there")
	}
	if e.move {
		what = append(what, "show other values")
	}
	return "It may " + strings.Join(what, ", ")
}
