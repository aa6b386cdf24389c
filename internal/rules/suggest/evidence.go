// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/rules/source"
)

// Evidence is what may read series.
type Evidence struct {
	source.Found

	// RuleFiles, Dashboards and QueryLogs say what was searched.
	RuleFiles, Dashboards, QueryLogs bool
}

// Reason says what was searched, as the reason of a rule.
func (e Evidence) Reason() string {
	text := "nothing reads it in " + e.searched()
	if !e.QueryLogs {
		text += "; no query log was searched"
	}
	return text
}

func (e Evidence) searched() string {
	var where []string
	if e.RuleFiles {
		where = append(where, "rule files")
	}
	if e.Dashboards {
		where = append(where, "dashboards")
	}
	if e.QueryLogs {
		where = append(where, "a query log of "+e.Period())
	}
	return fmt.Sprintf("%d expressions of %s", len(e.Expressions), strings.Join(where, ", "))
}

// Period says when the logged queries were made.
func (e Evidence) Period() string {
	p := e.Logged
	if p.From.IsZero() {
		return fmt.Sprintf("%d queries at unknown times", p.Queries)
	}
	return fmt.Sprintf("%d queries from %s to %s (%s)", p.Queries, p.From.UTC().Format("2006-01-02 15:04"), p.To.UTC().Format("2006-01-02 15:04"),
		model.Duration(p.To.Sub(p.From).Truncate(1e9)))
}
