// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	promrelabel "github.com/prometheus/prometheus/model/relabel"
)

// Formats returns the names of the formats that Render knows.
func Formats() []string {
	var names []string
	for _, d := range dialects() {
		names = append(names, d.format)
	}
	return names
}

// Render writes the profile as configuration text, each rule with its id, class
// and reason as a comment. Loaded by the program that the format is for, it drops
// the same series as the compiled profile. The error is an unknown format, a
// profile that is not valid or that the format cannot express, or w's; what is
// found wrong with format or profile is found before anything is written.
func Render(w io.Writer, p Profile, format string) error {
	if !slices.Contains(Formats(), format) {
		return fmt.Errorf("unknown format %q: use one of %s", format, strings.Join(Formats(), ", "))
	}
	if err := p.Validate(); err != nil {
		return err
	}
	all := dialects()
	i := slices.IndexFunc(all, func(d dialect) bool { return d.format == format })
	d := all[i]
	rules, err := d.spellRules(p)
	if err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	if d.alloy {
		renderAlloy(b, d, p, rules)
	} else {
		renderYAML(b, d, p, rules)
	}
	return b.Flush()
}

// spelled is a rule as a dialect has to write it.
type spelled struct {
	Rule
	labels []string
	regex  string
}

func (d dialect) spellRules(p Profile) ([]spelled, error) {
	rules := make([]spelled, 0, len(p.Rules))
	for _, r := range p.Rules {
		labels, pattern := r.Joined()
		regex, err := d.spell(pattern)
		if err != nil {
			return nil, fmt.Errorf("profile %s, rule %s: %w", p.Name, r.ID, err)
		}
		if l := slices.IndexFunc(labels, d.replaces); l >= 0 {
			return nil, fmt.Errorf("profile %s, rule %s: what reads the format %s replaces a part of the label name %q", p.Name, r.ID, d.format, labels[l])
		}
		rules = append(rules, spelled{Rule: r, labels: labels, regex: regex})
	}
	return rules, nil
}

// title is the first comment line.
func title(p Profile) string {
	return strings.TrimSpace(fmt.Sprintf("promguard drop rules, profile %s. %s", p.Name, p.Summary))
}

func (r spelled) comment() string {
	return fmt.Sprintf("%s (%s): %s", r.ID, r.Class, r.Reason)
}

func renderYAML(w io.Writer, d dialect, p Profile, rules []spelled) {
	fmt.Fprintf(w, "# %s\n", d.comment(title(p)))
	if len(rules) > 0 {
		for _, line := range d.where {
			fmt.Fprintf(w, "# %s\n", line)
		}
	}
	switch {
	case len(rules) == 0 && d.head == "":
		fmt.Fprintln(w, "[]")
	case len(rules) == 0:
		fmt.Fprintln(w, d.head, "[]")
	case d.head != "":
		fmt.Fprintln(w, d.head)
	}
	renderItems(w, d, rules)
}

func renderItems(w io.Writer, d dialect, rules []spelled) {
	for _, r := range rules {
		fmt.Fprintf(w, "%s# %s\n", d.indent, d.comment(r.comment()))
		fmt.Fprintf(w, "%s- %s: [%s]\n", d.indent, d.sourceLabels, yamlLabels(r.labels))
		fmt.Fprintf(w, "%s  regex: %s\n", d.indent, yamlString(r.regex))
		fmt.Fprintf(w, "%s  action: %s\n", d.indent, promrelabel.Drop)
	}
}

// RenderItems returns the profile as items of a list of Prometheus's relabel
// configs, each line behind indent. The error is that of Profile.Validate.
func RenderItems(p Profile, indent string) (string, error) {
	if err := p.Validate(); err != nil {
		return "", err
	}
	d := dialects()[0]
	d.indent = indent
	rules, err := d.spellRules(p)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	renderItems(&b, d, rules)
	return b.String(), nil
}

// renderAlloy writes the syntax of Grafana Alloy, whose strings have the escapes
// of Go's.
func renderAlloy(w io.Writer, d dialect, p Profile, rules []spelled) {
	fmt.Fprintf(w, "// %s\n", title(p))
	for _, line := range d.where {
		fmt.Fprintf(w, "// %s\n", line)
	}
	fmt.Fprintln(w, d.head)
	for _, r := range rules {
		quoted := make([]string, 0, len(r.labels))
		for _, l := range r.labels {
			quoted = append(quoted, strconv.Quote(l))
		}
		fmt.Fprintf(w, "\n%s// %s\n", d.indent, r.comment())
		fmt.Fprintf(w, "%srule {\n", d.indent)
		fmt.Fprintf(w, "%s\t%s = [%s]\n", d.indent, d.sourceLabels, strings.Join(quoted, ", "))
		fmt.Fprintf(w, "%s\tregex         = %s\n", d.indent, strconv.Quote(r.regex))
		fmt.Fprintf(w, "%s\taction        = %q\n", d.indent, promrelabel.Drop)
		fmt.Fprintf(w, "%s}\n", d.indent)
	}
	fmt.Fprintln(w, "}")
}

func yamlLabels(names []string) string {
	out := make([]string, 0, len(names))
	for _, n := range names {
		if !model.LegacyValidation.IsValidLabelName(n) || slices.Contains(yamlWords(), strings.ToLower(n)) {
			n = yamlString(n)
		}
		out = append(out, n)
	}
	return strings.Join(out, ", ")
}

// yamlWords are not strings where YAML 1.1 reads them unquoted.
func yamlWords() []string {
	return []string{"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
}

// yamlString quotes s so that YAML reads back exactly s. Backslashes stay as
// they are where that is possible, because the reader has to check a regex.
func yamlString(s string) string {
	if !printable(s) {
		return strconv.Quote(s)
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}
