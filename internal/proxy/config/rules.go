// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/querylimit"
)

func decodeRules(d *decoder, n *yaml.Node) []querylimit.Rule {
	var rules []querylimit.Rule
	lines := map[string]int{}
	d.list(n, "a list of rules", func(n *yaml.Node) {
		r := decodeRule(d, n)
		if line, ok := lines[r.Name]; ok && r.Name != "" {
			d.errorf(n, "the rule of line %d has the name %q, too", line, r.Name)
		}
		lines[r.Name] = n.Line
		rules = append(rules, r)
	})
	return rules
}

func decodeRule(d *decoder, n *yaml.Node) querylimit.Rule {
	var (
		r      querylimit.Rule
		limits *yaml.Node
		before = len(d.errs)
	)
	d.valuedKeys(n, keys{ // What denies nothing, or matches everything, by mistake is found too late.
		"name":  func(n *yaml.Node) { r.Name = d.text(n) },
		"match": func(n *yaml.Node) { decodeMatch(d, n, &r.Match) },
		"deny": func(n *yaml.Node) {
			r.Deny = querylimit.ModeEnforce
			d.keys(n, keys{
				"mode": func(n *yaml.Node) {
					mode, err := querylimit.ParseMode(d.text(n))
					d.check(n, err)
					r.Deny = mode
				},
				"reason": func(n *yaml.Node) { r.Reason = strings.TrimRight(d.text(n), ". \n") },
			})
		},
		"allow":  func(n *yaml.Node) { r.Allow = d.boolean(n) },
		"limits": func(n *yaml.Node) { limits = n },
	})
	if limits != nil {
		at := levelRule
		if len(r.Match.Fingerprints) > 0 {
			at = levelFingerprintRule
		}
		r.Limits = decodeLimits(d, limits, at)
	}
	switch {
	case len(d.errs) > before: // Of what is broken, the rest cannot be judged.
	case r.Name == "":
		d.errorf(n, "a rule needs a name")
	case r.Deny == querylimit.ModeOff && !r.Allow && len(r.Limits) == 0 && !hasKey(n, "deny"):
		d.errorf(n, "the rule %q changes nothing: give it deny, allow or limits", r.Name)
	}
	return r
}

func hasKey(n *yaml.Node, name string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return true
		}
	}
	return false
}

func decodeMatch(d *decoder, n *yaml.Node, m *querylimit.Match) {
	texts := func(into *[]string, allowed ...string) func(*yaml.Node) {
		return func(n *yaml.Node) { *into = decodeTexts(d, n, allowed) }
	}
	d.valuedKeys(n, keys{
		"tenant":      texts(&m.Tenants),
		"endpoint":    texts(&m.Endpoints, querylimit.Endpoints()...),
		"dashboard":   texts(&m.Dashboards),
		"panel":       texts(&m.Panels),
		"user":        texts(&m.Users),
		"fingerprint": texts(&m.Fingerprints),
		"class": func(n *yaml.Node) {
			names := make([]string, 0, len(querylimit.Classes()))
			for _, c := range querylimit.Classes() {
				names = append(names, c.String())
			}
			for _, text := range decodeTexts(d, n, names) {
				for _, c := range querylimit.Classes() {
					if c.String() == text {
						m.Classes = append(m.Classes, c)
					}
				}
			}
		},
		"alert":      func(n *yaml.Node) { b := d.boolean(n); m.Alert = &b },
		"user_agent": func(n *yaml.Node) { m.UserAgent = decodeRegexp(d, n) },
		"query":      func(n *yaml.Node) { m.Query = decodeRegexp(d, n) },
	})
}

// decodeTexts reads one text or a list of them. With allowed, it must be one of
// those.
func decodeTexts(d *decoder, n *yaml.Node, allowed []string) []string {
	var out []string
	read := func(n *yaml.Node) {
		text := d.text(n)
		switch {
		case text == "":
			d.errorf(n, "an empty text matches nothing")
		case len(allowed) > 0 && !slices.Contains(allowed, text):
			d.errorf(n, "unknown value %q: use one of %s", text, strings.Join(allowed, ", "))
		}
		out = append(out, text)
	}
	if n.Kind == yaml.ScalarNode {
		read(n)
		return out
	}
	d.list(n, "a text or a list of texts", read)
	if len(out) == 0 {
		d.errorf(n, "an empty list matches nothing")
	}
	return out
}

func decodeRegexp(d *decoder, n *yaml.Node) *regexp.Regexp {
	text := d.text(n)
	re, err := regexp.Compile(text)
	switch {
	case err != nil:
		d.errorf(n, "%w", err)
	case text == "" && n.Kind == yaml.ScalarNode:
		d.errorf(n, "an empty regular expression matches everything: leave it out")
	}
	return re
}
