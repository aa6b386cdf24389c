// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"context"
	"fmt"
	"slices"

	"github.com/promguard/promguard/internal/promapi"
	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/evaluate"
)

// stays returns the series that rules let through.
func stays(series []evaluate.Series, p relabel.Profile) ([]evaluate.Series, error) {
	if len(p.Rules) == 0 {
		return series, nil
	}
	d, err := relabel.Compile(p)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(series), func(s evaluate.Series) bool {
		_, drop := d.Drop(s.Labels)
		return drop
	}), nil
}

// inForce is which drop rules a server runs.
type inForce struct {
	// builtin has no name if the server runs no built-in profile of this build.
	builtin relabel.Profile
	// names are those that the server gives its profiles: none if it does not tell,
	// several if it scrapes others too.
	names []string
}

// infoMetric has a series for each drop rule in force.
const infoMetric = "prometheus_guard_drop_rule_info"

// profileInForce asks a server that scrapes itself for its drop rules. The name
// alone is no answer: a file's profile may have any.
func profileInForce(ctx context.Context, api *promapi.Client) inForce {
	rows, err := api.Query(ctx, "group by (profile, rule) ("+infoMetric+")")
	if err != nil {
		return inForce{}
	}
	var f inForce
	rules := make([]string, 0, len(rows))
	for _, r := range rows {
		f.names = append(f.names, r.Labels.Get("profile"))
		rules = append(rules, r.Labels.Get("rule"))
	}
	slices.Sort(f.names)
	slices.Sort(rules)
	if f.names = slices.Compact(f.names); len(f.names) != 1 {
		return f
	}
	if p, err := relabel.ProfileByName(f.names[0]); err == nil && slices.Equal(rules, ids(p)) {
		f.builtin = p
	}
	return f
}

func ids(p relabel.Profile) []string {
	out := make([]string, 0, len(p.Rules))
	for _, r := range p.Rules {
		out = append(out, r.ID)
	}
	slices.Sort(out)
	return out
}

// warning says what a file that extends base brings back of what the server keeps
// out now, or "".
func (f inForce) warning(base relabel.Profile) string {
	const brings = "a file in its place that lacks its rules brings back what they keep out"
	switch {
	case len(f.names) == 0 && len(base.Rules) == 0:
		return "NOT KNOWN is which drop rules the server runs: it does not scrape itself, or runs none. This file replaces them: " + brings +
			". Suggest with --extends=PROFILE, as in --extends=recommended, the default of the patched build."
	case len(f.names) == 0:
		return "Which drop rules the server runs is not known: it does not scrape itself, or runs none."
	case len(f.names) > 1:
		return fmt.Sprintf("NOT KNOWN is which drop rules the server runs: it has metrics of servers with %q. For each, %s. Suggest with --extends=PROFILE.", f.names, brings)
	case f.builtin.Name == "":
		return fmt.Sprintf("The server runs the drop rules %q, which are not a built-in profile of this build: %s. Put the rules below into its file.", f.names[0], brings)
	case f.builtin.Name != base.Name:
		return fmt.Sprintf("The server runs the profile %s, which this file does not extend: %s.", f.builtin.Name, brings)
	}
	return ""
}
