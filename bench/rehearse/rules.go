// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rehearse

import (
	"slices"

	"github.com/promguard/promguard/internal/rules/check"
	"github.com/promguard/promguard/internal/rules/estimate"
	"github.com/promguard/promguard/internal/rules/report"
)

// DropRules is what drop rules do to one's series and expressions.
type DropRules struct {
	Profile string `json:"profile"`
	// Saves is nil where nobody counted.
	Saves *estimate.Estimate `json:"saves,omitempty"`
	// Check has every expression that they touch; nil if there is none to check.
	Check *report.Report `json:"check,omitempty"`
}

// checkRules proves what the drop rules do to all expressions.
func (r *rehearsal) checkRules(k *known, a *asked) error {
	checker, err := check.New(r.Profile, nil)
	if err != nil {
		return err
	}
	r.report.Rules = &DropRules{Profile: r.Profile.Name}
	if k != nil {
		r.report.Rules.Saves = k.Saves
	}
	exprs := slices.Concat(r.Found.Expressions, a.fromLogs)
	if len(exprs) == 0 && len(r.Found.Problems) == 0 {
		r.report.lack("drop rules", "there is no expression to check: give --rule-files, --dashboards and --query-log")
		return nil
	}
	r.report.Rules.Check = report.New(report.Input{Profile: r.Profile, Results: checker.Check(exprs), Notes: checker.Notes(), Problems: r.Found.Problems})
	return nil
}
