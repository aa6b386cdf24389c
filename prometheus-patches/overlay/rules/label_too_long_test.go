// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package rules

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

func TestARuleWithALabelThatIsTooLongIsAnError(t *testing.T) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr("up")
	require.NoError(t, err)
	query := func(context.Context, string, time.Time) (promql.Vector, error) {
		return promql.Vector{{Metric: labels.FromStrings("i", "1")}}, nil
	}
	alert := NewAlertingRule("a", expr, 0, 0, labels.FromStrings("l", strings.Repeat(`{{ printf "%999999d" 1 }}`, 17)), labels.EmptyLabels(), labels.EmptyLabels(), "", true, nil)
	_, err = alert.Eval(t.Context(), 0, time.Now(), query, nil, 0)
	require.ErrorAs(t, err, new(labels.TooLongError))
	_, err = NewRecordingRule(strings.Repeat("x", 1<<24), expr, labels.EmptyLabels()).Eval(t.Context(), 0, time.Now(), query, nil, 0)
	require.ErrorAs(t, err, new(labels.TooLongError))
}
