// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
)

// refusing is an appendable that refuses all series.
type refusing struct{ storage.AppenderTransaction }

func (r refusing) AppenderV2(context.Context) storage.AppenderV2 { return r }
func (refusing) Commit() error                                   { return nil }
func (refusing) Append(storage.SeriesRef, labels.Labels, int64, int64, float64, *histogram.Histogram, *histogram.FloatHistogram, storage.AOptions) (storage.SeriesRef, error) {
	return 0, storage.ErrSeriesRefused
}

// A rule may have a hundred thousand new series, and is evaluated again and again.
func TestRefusedSeriesOfARuleAreLoggedInOneLine(t *testing.T) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr("up")
	require.NoError(t, err)
	var log bytes.Buffer
	opts := &ManagerOptions{
		Context:      t.Context(),
		AppendableV2: refusing{},
		Logger:       slog.New(slog.NewTextHandler(&log, nil)),
		QueryFunc: func(context.Context, string, time.Time) (promql.Vector, error) {
			return promql.Vector{{Metric: labels.FromStrings("i", "1")}, {Metric: labels.FromStrings("i", "2")}}, nil
		},
	}
	rule := NewRecordingRule("r", expr, labels.EmptyLabels())
	NewGroup(GroupOptions{Name: "g", Interval: time.Minute, Rules: []Rule{rule}, Opts: opts}).Eval(t.Context(), time.Now())

	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "num_dropped=2")
	require.Equal(t, HealthBad, rule.Health())
	require.ErrorIs(t, rule.LastError(), storage.ErrSeriesRefused)
}
