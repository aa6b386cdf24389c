// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"regexp"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	promrelabel "github.com/prometheus/prometheus/model/relabel"
)

// Dropper decides which series the rules of a profile drop. It decides exactly
// as Prometheus's relabelling would with the profile's rules in order, but looks
// rules up by metric name, so that a series whose name no rule concerns costs one
// map access.
//
// Any number of goroutines may use it.
type Dropper struct {
	profile Profile
	rules   []compiledRule
	names   nameIndex
}

// compiledRule is one rule in the two forms a Dropper uses: the regex over the
// joined values, which is the definition, and where the regex can be taken
// apart, one matcher per source label, which needs no joining.
type compiledRule struct {
	labels []string
	joined promrelabel.Regexp
	// parts has one matcher per source label, or is nil.
	parts []*labels.FastRegexMatcher
	// byName is set if the metric's name alone, up to a separator in it, can rule
	// the rule out: the name is the first source label and its part cannot match
	// a separator, so that whatever matches the regex has a name before its first
	// separator that matches the part.
	byName bool
	// prefix is what the metric name must start with. It is used only if the
	// name is the first source label, and is empty otherwise.
	prefix string
}

// Compile checks the profile and makes it ready for use. The error is that of
// Profile.Validate.
func Compile(p Profile) (*Dropper, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	d := &Dropper{profile: p, rules: make([]compiledRule, 0, len(p.Rules))}
	for _, r := range p.Rules {
		c, err := compileRule(r)
		if err != nil {
			return nil, err
		}
		d.rules = append(d.rules, c)
	}
	return d, nil
}

func compileRule(r Rule) (compiledRule, error) {
	cfg, err := r.RelabelConfig()
	if err != nil {
		return compiledRule{}, err
	}
	source, pattern := r.Joined()
	c := compiledRule{labels: source, joined: cfg.Regex}
	patterns, err := splitRegex(pattern, len(source))
	if err != nil {
		return compiledRule{}, err
	}
	for _, p := range patterns {
		m, err := labels.NewFastRegexMatcher(p)
		if err != nil {
			return compiledRule{}, err
		}
		c.parts = append(c.parts, m)
	}
	if source[0] != model.MetricNameLabel {
		return c, nil
	}
	if c.parts != nil {
		if c.byName, err = withoutSeparator(patterns[0]); err != nil {
			return compiledRule{}, err
		}
	}
	c.prefix, err = literalPrefix(pattern)
	return c, err
}

// literalPrefix returns what every string that matches the pattern starts with,
// up to the first separator.
func literalPrefix(pattern string) (string, error) {
	// The prefix of an anchored regex is empty, so this one is not.
	re, err := regexp.Compile("(?s:" + pattern + ")")
	if err != nil {
		return "", err
	}
	prefix, _ := re.LiteralPrefix()
	prefix, _, _ = strings.Cut(prefix, separator)
	return prefix, nil
}

// Profile returns the profile that the Dropper was compiled from. The rule
// numbers that Drop returns are indices into its rules. Do not change it.
func (d *Dropper) Profile() Profile {
	return d.profile
}

// Drop reports whether the profile drops the series, and the index of the first
// rule that does, or -1. The labels are those after the scrape pool's own
// relabelling, target labels included.
//
// It allocates nothing unless the metric's name is new, a label that a candidate
// rule reads has ";" in its value, or the rule's regex cannot be taken apart label
// by label.
func (d *Dropper) Drop(lset labels.Labels) (rule int, drop bool) {
	name := lset.Get(model.MetricNameLabel)
	// Where the series' name has a separator, a rule's regex sees a shorter name
	// before it.
	key, _, _ := strings.Cut(name, separator)
	for _, i := range d.names.rules(key, d.concerned) {
		if c := &d.rules[i]; strings.HasPrefix(name, c.prefix) && c.matches(lset) {
			return i, true
		}
	}
	return -1, false
}

// concerned returns the rules that a metric name, up to a separator, does not
// rule out.
func (d *Dropper) concerned(name string) []int {
	var out []int
	for i, c := range d.rules {
		if !c.byName || c.parts[0].MatchString(name) {
			out = append(out, i)
		}
	}
	return out
}

// matches reports whether the rule drops the series, whose name does not rule it
// out.
func (c *compiledRule) matches(lset labels.Labels) bool {
	// As many as Prometheus keeps off the heap.
	var onStack [16]string
	values := onStack[:0]
	separable := c.parts != nil
	for _, l := range c.labels {
		v := lset.Get(l)
		separable = separable && !strings.Contains(v, separator)
		values = append(values, v)
	}
	if !separable {
		return c.joined.MatchString(strings.Join(values, separator))
	}
	for i, v := range values {
		// That the name fits is known.
		if (i > 0 || !c.byName) && !c.parts[i].MatchString(v) {
			return false
		}
	}
	return true
}
