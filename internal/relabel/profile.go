// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"errors"
	"fmt"
	"slices"
)

// Names of the built-in profiles.
const (
	// ProfileMinimal drops only series that nothing in the widely used rules and
	// dashboards can see.
	ProfileMinimal = "minimal"
	// ProfileRecommended changes no value beyond a stated bound.
	ProfileRecommended = "recommended"
	// ProfileAggressive changes results. It is for those who have checked theirs.
	ProfileAggressive = "aggressive"
	// ProfileOff drops nothing.
	ProfileOff = "off"
)

// Profile is a named list of drop rules. Their order matters only for which
// rule a series counts for: the first that matches it.
type Profile struct {
	Name    string
	Summary string
	Rules   []Rule
}

// Profiles returns the built-in profiles. The caller owns the result.
func Profiles() []Profile {
	return []Profile{minimal(), recommended(), aggressive(), off()}
}

// ProfileNames returns the names that ProfileByName knows.
func ProfileNames() []string {
	var names []string
	for _, p := range Profiles() {
		names = append(names, p.Name)
	}
	return names
}

// ProfileByName returns a built-in profile. The error names those there are.
func ProfileByName(name string) (Profile, error) {
	for _, p := range Profiles() {
		if p.Name == name {
			return p, nil
		}
	}
	return Profile{}, fmt.Errorf("unknown drop-rules profile %q: use one of %s", name, joinNames(ProfileNames()))
}

// notBuiltIn returns an error for the name of a built-in profile. A file of that
// name would stand for other rules than the name says wherever a target or the
// flag names it, and one that is called off would drop nothing.
func notBuiltIn(name string) error {
	if !slices.Contains(ProfileNames(), name) {
		return nil
	}
	return fmt.Errorf("profile name %q: it is the name of a built-in profile: choose another", name)
}

// Validate reports everything that is wrong with the profile, one error per
// rule, each with the rule's place and id.
func (p Profile) Validate() error {
	var errs []error
	if !idPattern.MatchString(p.Name) {
		errs = append(errs, fmt.Errorf("profile name %q: use lower-case letters, digits and dashes", p.Name))
	}
	if !printable(p.Summary) {
		errs = append(errs, fmt.Errorf("profile %s: the summary must be one line of text", p.Name))
	}
	seen := map[string]int{}
	for i, r := range p.Rules {
		if err := r.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("profile %s, rule %d (%s): %w", p.Name, i+1, r.ID, err))
		}
		if first, ok := seen[r.ID]; ok {
			errs = append(errs, fmt.Errorf("profile %s, rule %d (%s): rule %d has the same id", p.Name, i+1, r.ID, first+1))
			continue
		}
		seen[r.ID] = i
	}
	return errors.Join(errs...)
}

func off() Profile {
	return Profile{Name: ProfileOff, Summary: "Drops nothing."}
}
