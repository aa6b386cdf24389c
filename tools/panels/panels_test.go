// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/tools/panels/grafana"
	"github.com/promguard/promguard/tools/panels/sample"
)

const root = "../.."

func TestEveryPanelHasAnAnswerThroughTheGuardAsItIsDeployed(t *testing.T) {
	bin := os.Getenv("PROMGUARD_BIN")
	if bin == "" {
		t.Skip("PROMGUARD_BIN is not set: make test-e2e builds the binaries and sets it")
	}
	work := t.TempDir()
	data := filepath.Join(work, "data")
	require.NoError(t, writeData(t.Context(), data, filepath.Join(root, rules), sample.Small, false))
	s, err := startServers(t.Context(), bin, data, work, filepath.Join(root, policy))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.stop()) })

	pages, err := askAll(t.Context(), s.guard, filepath.Join(root, dashboards))
	require.NoError(t, err)
	require.NoError(t, check(pages))
	t.Log(summary(pages))

	guarded, err := askGuarded(t.Context(), s)
	require.NoError(t, err)
	require.ErrorContains(t, check([]page{guarded}), "422")
}

func TestAPanelIsWrong(t *testing.T) {
	panel := grafana.Panel{Title: "Requests"}
	panel.FieldConfig.Defaults.Unit = "reqps"
	target := grafana.Target{LegendFormat: "{{class}} of {{pod}}{{instance}}"}
	series := []grafana.Series{{Metric: map[string]string{"class": "query", "instance": "a"}}}
	for what, c := range map[string]struct {
		wrong      string
		answer     grafana.Result
		mayBeEmpty bool
	}{
		"not":                            {answer: grafana.Result{Code: 200, Series: series}},
		"not, for it may be empty":       {answer: grafana.Result{Code: 200}, mayBeEmpty: true},
		"refused":                        {wrong: "422: no", answer: grafana.Result{Code: 422, Error: "no"}},
		"warned about":                   {wrong: "warnings", answer: grafana.Result{Code: 200, Series: series, Warnings: []string{"cut"}}},
		"empty":                          {wrong: "no series", answer: grafana.Result{Code: 200}},
		"listed as empty, and is not":    {wrong: "may be empty", answer: grafana.Result{Code: 200, Series: series}, mayBeEmpty: true},
		"of a legend that has no labels": {wrong: "{{pod}}{{instance}}", answer: grafana.Result{Code: 200, Series: []grafana.Series{{Metric: map[string]string{"class": "query"}}}}},
	} {
		err := checkAnswer(panel, target, c.answer, c.mayBeEmpty)
		if c.wrong == "" {
			require.NoError(t, err, what)
		} else {
			require.ErrorContains(t, err, c.wrong, what)
		}
	}
}
