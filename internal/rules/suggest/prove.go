// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/check"
)

// proof is what all rules of a file together do.
type proof struct {
	proved  []Suggestion
	refused int
	// seen are the findings of the rules that the file takes from a profile.
	seen []string
}

// prove checks the whole file: the rules of the profile that it extends, and the
// suggestions. It keeps those of them that no expression can notice. The reason of
// each is that given.
func (f *Finder) prove(all []Suggestion, reason string) (proof, error) {
	taken, base := map[string]bool{}, map[string]bool{}
	for _, r := range f.base.Rules {
		taken[r.ID], base[r.ID] = true, true
	}
	for i := range all {
		r := &all[i].Rule
		r.Reason = reason
		id := r.ID
		for n := 2; taken[r.ID]; n++ {
			r.ID = id + "-" + strconv.Itoa(n)
		}
		taken[r.ID] = true
	}
	checker, err := check.New(profileOf(f.base, all), nil)
	if err != nil {
		return proof{}, err
	}
	var p proof
	visible := map[string]bool{}
	for _, res := range checker.Check(f.evidence.Expressions) {
		for _, finding := range res.Findings {
			visible[finding.Rule] = true
			if base[finding.Rule] && finding.Verdict != check.Thinned {
				x := res.Expression
				p.seen = append(p.seen, fmt.Sprintf("%s: %s: %s: %s", finding.Rule, finding.Verdict, x.File, x.Place))
			}
		}
	}
	for _, s := range all {
		if !visible[s.Rule.ID] {
			p.proved = append(p.proved, s)
		}
	}
	p.refused = len(all) - len(p.proved)
	return p, nil
}

// profileOf returns the profile of a file that extends base.
func profileOf(base relabel.Profile, all []Suggestion) relabel.Profile {
	p := relabel.Profile{Name: "suggested", Summary: "What nothing that was searched reads.", Rules: slices.Clone(base.Rules)}
	for _, s := range all {
		p.Rules = append(p.Rules, s.Rule)
	}
	return p
}
