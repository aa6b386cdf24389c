// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package family

import (
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestEveryShippedFamilyIsARequestThatPrometheusReads(t *testing.T) {
	require.GreaterOrEqual(t, len(Shipped()), 60)
	_, err := Merge(Shipped(), nil)
	require.NoError(t, err)
	p := parser.NewParser(parser.Options{})
	for _, f := range Shipped() {
		require.NoError(t, f.Check(), f.Name)
		req, err := f.Request(t.Context(), "http://server", Data{Points: 4})
		require.NoError(t, err, f.Name)
		if f.Read != nil {
			if f.Read.Empty < 1000 {
				read, err := remote.DecodeReadRequest(req)
				require.NoError(t, err, f.Name)
				require.Len(t, read.Queries, f.Read.Queries)
			}
			continue
		}
		require.NoError(t, req.ParseForm())
		for _, query := range req.Form["query"] {
			_, err := p.ParseExpr(query)
			require.NoError(t, err, f.Name)
		}
		for _, match := range req.Form["match[]"] {
			_, err := p.ParseMetricSelector(match)
			require.NoError(t, err, f.Name)
		}
	}
}

func TestAValueOfSeveralLinesIsSeveralValues(t *testing.T) {
	found, err := Find(Shipped(), []string{"series-2000"})
	require.NoError(t, err)
	req, err := found[0].Request(t.Context(), "http://server", Data{Points: 1})
	require.NoError(t, err)
	require.NoError(t, req.ParseForm())
	require.Len(t, req.Form["match[]"], 2000)
}

func TestFamiliesAreFoundByPatterns(t *testing.T) {
	found, err := Find(Shipped(), []string{"federate*", "series"})
	require.NoError(t, err)
	for _, f := range found {
		require.True(t, f.Name == "series" || strings.HasPrefix(f.Name, "federate"), f.Name)
	}
	_, err = Find(Shipped(), []string{"serie"})
	require.ErrorContains(t, err, `no family is called "serie"`)
	_, err = Find(Shipped(), []string{"["})
	require.Error(t, err)
}

func TestAFamilyThatMakesNoSenseIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"{name: A, path: /x}": "the name \"A\" must be of",
		"{name: a, path: x}":  "family a: path must begin with /",
		"{name: a, path: /x, params: {query: '{{nothing}}'}}":              "family a: ",
		"{name: a, path: /x, params: {query: '{{repeat 9999999 \"x\"}}'}}": "repeat makes at most",
		"{name: a, path: /x, params: {query: '{{len (seq 99999999)}}'}}":   "seq counts to at most",
		"{name: a, path: /x, params: {start: '{{ago \"long\"}}'}}":         "invalid duration",
		"{name: a, path: /x, read: {empty: 999999999}}":                    "a read has no params",
	} {
		var f Family
		require.NoError(t, yaml.Unmarshal([]byte(text), &f), text)
		require.ErrorContains(t, f.Check(), want, text)
	}
	_, err := Merge(Shipped(), []Family{{Name: "series"}})
	require.ErrorContains(t, err, "two families are called series")
}

func TestRangeQueriesStayBelowTheLimitOfSamples(t *testing.T) {
	for series, want := range map[int]int{5000: 36, 1_000_000: 36, 2_000_000: 20, 100_000_000: 1} {
		require.Equal(t, want, PointsFor(series), series)
	}
}
