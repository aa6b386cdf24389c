// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Subject is who asks and for what, as far as somebody trustworthy says so. A
// field that is not known is empty, and no rule that asks for it matches.
type Subject struct {
	// Tenant owns the request; its limits are those of the tenant of that name.
	Tenant string
	// Endpoint is the route below the API's root, such as label/:name/values.
	Endpoint string
	Class    Class
	// Dashboard, Panel and User are what Grafana says in its headers.
	Dashboard, Panel, User string
	// UserAgent is what the client calls itself.
	UserAgent string
	// Alert is set if an alert rule asks, and AlertRule is its name, which no rule
	// looks at.
	Alert     bool
	AlertRule string
}

// Match is the condition of a rule. It holds if every field that is set holds;
// of a list, one entry must be equal.
type Match struct {
	Tenants, Endpoints, Dashboards, Panels, Users []string
	Classes                                       []Class
	// Alert, if not nil, asks for requests of alert rules, or for others.
	Alert *bool
	// UserAgent and Query are searched for, not anchored. Query looks at the
	// text of a query, or of each selector, as it was sent.
	UserAgent, Query *regexp.Regexp
	// Fingerprints are those of parsed queries or selectors; see Query.
	Fingerprints []string
}

// Override changes one option. It is made from what was configured.
type Override func(*Options)

// Rule changes what matching requests may do.
type Rule struct {
	// Name identifies the rule in refusals; it is unique.
	Name  string
	Match Match
	// Deny is the mode in which the rule refuses requests: ModeOff does not.
	Deny Mode
	// Reason is told to those who are denied.
	Reason string
	// Allow exempts requests from every rule that denies.
	Allow bool
	// Limits are applied in order of the rules: the last one wins.
	Limits []Override
}

// RulesetOptions is what a Ruleset is built from: the limits of everybody, what
// is different for a tenant, and what is different for requests that match.
type RulesetOptions struct {
	Global  Options
	Tenants map[string][]Override
	Rules   []Rule
}

// Ruleset resolves which Policy a request is under. It is immutable and safe for
// concurrent use.
type Ruleset struct {
	global   *Policy
	tenants  map[string]*Policy
	rules    []Rule
	matchers []matcher // of the rules
	// byFingerprint is set if a rule needs parsed queries.
	byFingerprint bool
	// setsQueryBytes is set if a rule changes the limit of that name.
	setsQueryBytes bool
}

// NewRuleset returns the ruleset that opts describes, or an error that names the
// option, tenant or rule that is wrong.
func NewRuleset(opts RulesetOptions) (*Ruleset, error) {
	global, err := New(opts.Global)
	if err != nil {
		return nil, err
	}
	s := &Ruleset{global: global, tenants: make(map[string]*Policy, len(opts.Tenants)), rules: slices.Clone(opts.Rules)}
	for name, overrides := range opts.Tenants {
		own := opts.Global
		apply(&own, overrides)
		p, err := New(own)
		if err != nil {
			return nil, fmt.Errorf("tenant %q: %w", name, err)
		}
		p.tenant = name
		s.tenants[name] = p
	}
	names := make(map[string]struct{}, len(s.rules))
	for i := range s.rules {
		if err := s.checkRule(&s.rules[i], names); err != nil {
			return nil, fmt.Errorf("rule %q: %w", s.rules[i].Name, err)
		}
		s.byFingerprint = s.byFingerprint || len(s.rules[i].Match.Fingerprints) > 0
		s.setsQueryBytes = s.setsQueryBytes || s.rules[i].setsQueryBytes()
		s.matchers = append(s.matchers, newMatcher(&s.rules[i].Match))
	}
	return s, nil
}

func (s *Ruleset) checkRule(r *Rule, names map[string]struct{}) error {
	if r.Name == "" {
		return errors.New("it needs a name")
	}
	if _, ok := names[r.Name]; ok {
		return errors.New("another rule has the same name")
	}
	names[r.Name] = struct{}{}
	m := &r.Match
	for _, list := range [][]string{m.Fingerprints, m.Dashboards, m.Panels, m.Users, m.Tenants, m.Endpoints} {
		if slices.Contains(list, "") {
			return errors.New("an empty text in a list matches nothing")
		}
	}
	changed := s.global.opts
	apply(&changed, r.Limits)
	_, err := New(changed)
	return err
}

// setsQueryBytes finds out by trying, since an Override does not say what it sets.
func (r *Rule) setsQueryBytes() bool {
	for _, before := range []Bound{{ModeOff, 1}, {ModeEnforce, 2}} {
		o := Options{QueryBytes: before}
		apply(&o, r.Limits)
		if o.QueryBytes != before {
			return true
		}
	}
	return false
}

func apply(o *Options, overrides []Override) {
	for _, change := range overrides {
		change(o)
	}
}

// Tenant returns the policy of a tenant before anything else is known of a
// request. An unknown tenant has that of everybody.
func (s *Ruleset) Tenant(name string) *Policy {
	if p, ok := s.tenants[name]; ok {
		return p
	}
	if name == "" {
		return s.global
	}
	p := *s.global
	p.tenant = name
	return &p
}

// Tenants returns the names of the tenants with limits of their own, sorted.
func (s *Ruleset) Tenants() []string {
	return slices.Sorted(maps.Keys(s.tenants))
}

// Variants returns what limits become under each rule that changes any.
func (s *Ruleset) Variants(o Options) []Options {
	var out []Options
	for i := range s.rules {
		if len(s.rules[i].Limits) > 0 {
			changed := o
			apply(&changed, s.rules[i].Limits)
			out = append(out, changed)
		}
	}
	return out
}

// NeedsFingerprints reports whether Decide has more to say once the queries are
// parsed.
func (s *Ruleset) NeedsFingerprints() bool { return s.byFingerprint }

// Decision is what the rules say about one request.
type Decision struct {
	// Policy holds the limits of the request.
	Policy *Policy
	// Refusals are those of rules that deny, in every mode.
	Refusals Refusals
	// Rules names the rules that match, in their order.
	Rules []string
}

// Decide applies the rules to a request with these PromQL texts, and, where they
// are parsed already, their fingerprints.
func (s *Ruleset) Decide(who *Subject, texts, fingerprints []string) Decision {
	d := Decision{Policy: s.Tenant(who.Tenant)}
	allowed, own := false, false
	var denied []*Rule
	for i := range s.rules {
		if !s.matchers[i].matches(who, texts, fingerprints) {
			continue
		}
		r := &s.rules[i]
		d.Rules = append(d.Rules, r.Name)
		allowed = allowed || r.Allow
		if r.Deny != ModeOff {
			denied = append(denied, r)
		}
		if len(r.Limits) > 0 {
			if !own {
				changed := *d.Policy
				d.Policy, own = &changed, true
			}
			apply(&d.Policy.opts, r.Limits)
		}
	}
	if allowed {
		return d
	}
	for _, r := range denied {
		d.Refusals = append(d.Refusals, d.Policy.refuseDenied(r))
	}
	return d
}

func (p *Policy) refuseDenied(r *Rule) *Refusal {
	remedy := "Change what the rule " + r.Name + " looks for, or ask an operator."
	if r.Reason != "" { // It is where an operator says what to do.
		remedy = strings.TrimRight(r.Reason, ". ") + "."
	}
	return p.refuse(LimitDeny, r.Deny, remedy, "this request", "is denied by the rule "+r.Name, "change that in promguard.yml")
}
