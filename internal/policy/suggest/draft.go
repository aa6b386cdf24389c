// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"slices"

	"github.com/promguard/promguard/internal/proxy/config"
	"github.com/promguard/promguard/internal/querylimit"
	"github.com/promguard/promguard/internal/yamledit"
)

// draft writes limits into the text of a policy file. Those that are withdrawn, it
// leaves as they are, everybody's and those of tenants, and says why.
func draft(text []byte, e *Evidence, o Options, withdrawn map[string]string) (*Suggestion, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := e.enough(o); err != nil {
		return nil, err
	}
	before, err := config.Parse(text)
	if err != nil {
		return nil, err
	}
	w := writer{Suggestion: &Suggestion{Text: text, Enforced: text, partial: e.partial()}, opts: o, withdrawn: withdrawn}
	if w.tenants, w.rules, err = readOverrides(text); err != nil {
		return nil, err
	}
	if err := w.everybody(before, e); err != nil {
		return nil, err
	}
	after, err := config.Parse(w.Text)
	if err != nil {
		return nil, fmt.Errorf("the suggestion is no policy: %w", err)
	}
	if err := w.eachTenant(before, after, e); err != nil {
		return nil, err
	}
	for _, text := range [][]byte{w.Text, w.Enforced} {
		if _, err := config.Parse(text); err != nil {
			return nil, fmt.Errorf("the suggestion is no policy: %w", err)
		}
	}
	return w.Suggestion, nil
}

type writer struct {
	*Suggestion

	opts           Options
	withdrawn      map[string]string // limits, and why
	tenants, rules overrides
}

func (w *writer) everybody(before *config.Config, e *Evidence) error {
	now := before.Rules.Tenant("").Options()
	var all []change
	for _, t := range targets(&now) {
		s := e.all.of(&t, t.defaultOf != nil && (t.defaultOf(&now) == 0 || w.tenants.haveNoDefault(&t) || w.rules.haveNoDefault(&t)))
		if s == nil {
			continue
		}
		_, mode := t.get(&now)
		line, value := w.draw(&t, &now, s, mode == querylimit.ModeEnforce || w.tenants.enforce(&t) || w.rules.enforce(&t))
		w.Lines = append(w.Lines, line)
		if line.Then != "" {
			all = append(all, change{target: t, mode: mode, value: value, line: len(w.Lines) - 1})
		}
	}
	return w.makeWhatFits(all)
}

// makeWhatFits leaves out what contradicts the rest of the policy, such as a bound
// below the default of a tenant.
func (w *writer) makeWhatFits(changes []change) error {
	was := *w.Suggestion
	if err := w.make(changes); err != nil {
		return err
	}
	_, err := config.Parse(w.Text)
	if err == nil {
		return nil
	}
	w.Text, w.Enforced = was.Text, was.Enforced
	if len(changes) == 1 {
		line := &w.Lines[changes[0].line]
		line.Then, line.Why = "", "the rest of the policy would contradict: "+err.Error()
		return nil
	}
	for i := range changes {
		if err := w.makeWhatFits(changes[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

// eachTenant gives a tenant limits of its own where everybody's are tighter than
// what it does, or at least twice as loose.
func (w *writer) eachTenant(before, after *config.Config, e *Evidence) error {
	names := make([]string, 0, len(e.tenants))
	for name, s := range e.tenants {
		if s.requests >= w.opts.MinRequests {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var all []change
	for _, name := range names {
		was, is := before.Rules.Tenant(name).Options(), after.Rules.Tenant(name).Options()
		for _, t := range targets(&was) {
			if c, ok := w.ofTenant(name, &t, &was, &is, e.tenants[name]); ok {
				all = append(all, c)
			}
		}
	}
	return w.make(all)
}

// ofTenant says which value of its own a tenant needs, if any. Was and is are its
// limits before and after everybody's were drawn.
func (w *writer) ofTenant(name string, t *target, was, is *querylimit.Options, values *seen) (change, bool) {
	s := values.of(t, t.defaultOf != nil && (t.defaultOf(was) == 0 || w.rules.haveNoDefault(t)))
	if s == nil || s.count < w.opts.MinRequests {
		return change{}, false
	}
	_, before := t.get(was)
	line, value := w.draw(t, was, s, before == querylimit.ModeEnforce || w.rules.enforce(t))
	line.Tenant = name
	own, mode := t.get(is)
	if line.Then == "" {
		// As it was for the tenant: everybody's may be tighter now.
		if value, _ = t.get(was); before == querylimit.ModeOff && mode != querylimit.ModeOff {
			line.Why += "; leave it out before you enforce " + t.path[0]
			w.Lines = append(w.Lines, line)
			return change{}, false
		}
	}
	if value == 0 || !differs(t, own, value) {
		return change{}, false
	}
	c := change{owner: []string{"tenants", name}, target: *t, mode: mode, value: value, line: len(w.Lines)}
	if mode == querylimit.ModeOff {
		mode = w.opts.Mode
	}
	line.Then, line.Why = t.with(value, mode), ""
	w.Lines = append(w.Lines, line)
	return c, true
}

// differs reports whether a tenant needs a value in place of the one it has.
func differs(t *target, has, needs float64) bool {
	if t.lower {
		has, needs = needs, has
	}
	return has > 0 && (has < needs || has >= 2*needs)
}

// change is a value that is to be written. Mode is that which is in force.
type change struct {
	owner  []string
	target target
	mode   querylimit.Mode
	value  float64
	line   int // that says so
}

// edits returns what to write: the mode too if the limit has none that looks, or
// if it is to be enforced.
func (w *writer) edits(c *change, enforce bool) []yamledit.Edit {
	t := &c.target
	edit := func(path []string, value string) yamledit.Edit {
		return yamledit.Edit{Path: slices.Concat(c.owner, []string{"limits"}, path), Block: len(c.owner) + 1, Value: value}
	}
	edits := []yamledit.Edit{edit(t.path, t.text(c.value))}
	switch {
	case t.mode == nil:
	case enforce:
		edits = slices.Insert(edits, 0, edit(t.mode, querylimit.ModeEnforce.String()))
	case c.mode == querylimit.ModeOff:
		edits = slices.Insert(edits, 0, edit(t.mode, w.opts.Mode.String()))
	}
	return edits
}

// make writes changes into both texts.
func (w *writer) make(changes []change) error {
	var suggested, enforced []yamledit.Edit
	for i := range changes {
		suggested = append(suggested, w.edits(&changes[i], false)...)
		enforced = append(enforced, w.edits(&changes[i], true)...)
	}
	text, err := yamledit.Apply(w.Text, suggested)
	if err != nil {
		return err
	}
	most, err := yamledit.Apply(w.Enforced, enforced)
	if err != nil {
		return err
	}
	w.Text, w.Enforced = text, most
	return nil
}
