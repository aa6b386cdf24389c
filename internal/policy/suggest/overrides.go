// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"slices"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/querylimit"
)

// overrides are the limits of tenants and rules as the policy file has them, which
// tells what they set from what they inherit.
type overrides []map[string]any

// readOverrides returns those of tenants and those of rules.
func readOverrides(text []byte) (tenants, rules overrides, err error) {
	type limits struct{ Limits map[string]any }
	var f struct {
		Tenants map[string]limits
		Rules   []limits
	}
	if err := yaml.Unmarshal(text, &f); err != nil {
		return nil, nil, err
	}
	for _, t := range f.Tenants {
		tenants = append(tenants, t.Limits)
	}
	for _, r := range f.Rules {
		rules = append(rules, r.Limits)
	}
	return tenants, rules, nil
}

// enforce reports whether any refuses requests by a value that it inherits.
func (o overrides) enforce(t *target) bool {
	return slices.ContainsFunc(o, func(limits map[string]any) bool {
		return lookup(limits, t.mode) == querylimit.ModeEnforce.String() && lookup(limits, t.path) == nil
	})
}

// haveNoDefault reports whether any leaves requests without a value to the bound.
func (o overrides) haveNoDefault(t *target) bool {
	return slices.ContainsFunc(o, func(limits map[string]any) bool {
		value := lookup(limits, t.defaultPath)
		if value == nil {
			return false
		}
		d, err := model.ParseDuration(fmt.Sprint(value)) // A number of 0 is one, too.
		return err == nil && d == 0
	})
}

// lookup returns the value at a path, or nil.
func lookup(limits map[string]any, path []string) any {
	var value any
	for i, key := range path {
		if value = limits[key]; i < len(path)-1 {
			limits, _ = value.(map[string]any)
		}
	}
	return value
}
