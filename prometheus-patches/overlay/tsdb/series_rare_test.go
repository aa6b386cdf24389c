// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/compression"
)

func TestASeriesOfFloatsHasNoRareFields(t *testing.T) {
	h, _ := newTestHead(t, 1000, compression.None, false)
	app := h.Appender(t.Context())
	ref, err := app.Append(0, labels.FromStrings("a", "b"), 1, 1)
	require.NoError(t, err)
	require.NoError(t, app.Commit())
	s := h.series.getByID(chunks.HeadSeriesRef(ref))
	s.setOOO(nil)
	s.setLastHistogram(nil, nil)
	require.Same(t, &noRareFields, s.rareFields)
	require.LessOrEqual(t, unsafe.Sizeof(*s), uintptr(128), "the next size of an allocation is 144")
}

func TestRareFieldsBelongToOneSeries(t *testing.T) {
	one, other := newMemSeries(labels.EmptyLabels(), 1, 0, true, false), newMemSeries(labels.EmptyLabels(), 2, 0, true, false)
	one.updateExemplarTimestamp(7)
	one.setOOO(&memSeriesOOOFields{})
	one.setLastHistogram(&histogram.Histogram{}, nil)
	one.setLastHistogram(nil, &histogram.FloatHistogram{})
	require.True(t, one.hasExemplar)
	require.Equal(t, int64(7), one.lastExemplarTs)
	require.NotNil(t, one.ooo)
	require.Nil(t, one.lastHistogramValue)
	require.NotNil(t, one.lastFloatHistogramValue)
	require.Same(t, &noRareFields, other.rareFields)
	require.Zero(t, noRareFields)
	one.setLastHistogram(nil, nil)
	one.setOOO(nil)
	require.Nil(t, one.lastFloatHistogramValue)
	require.Nil(t, one.ooo)
}

// A write of `s.ooo = x` compiles and would write to all series. Those of upstream that
// are left are known to come after a write through rare.
func TestRareFieldsAreWrittenThroughRare(t *testing.T) {
	rare := map[string]bool{}
	for f := range reflect.TypeFor[rareFields]().Fields() {
		rare[f.Name] = true
	}
	var found []string
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".go") {
			found = append(found, writesOf(t, f.Name(), rare)...)
		}
	}
	require.Equal(t, []string{
		"head.go: s.ooo",                                    // It is not nil there.
		"head_append.go: a.app", "head_append_v2.go: a.app", // Of other types.
		"head_wal.go: csr.lastFloatHistogramValue", "head_wal.go: csr.lastHistogramValue",
	}, found)
}

// writesOf returns what is assigned to in a file, if it ends with one of the names.
func writesOf(t *testing.T, file string, names map[string]bool) (found []string) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	seen := map[string]bool{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		assign, ok := n.(*ast.AssignStmt)
		if !ok {
			return true
		}
		for _, left := range assign.Lhs {
			field, ok := left.(*ast.SelectorExpr)
			if !ok || !names[field.Sel.Name] {
				continue
			}
			if of, ok := field.X.(*ast.Ident); ok && of.Name != "r" {
				seen[file+": "+of.Name+"."+field.Sel.Name] = true
			}
		}
		return true
	})
	for s := range seen {
		found = append(found, s)
	}
	slices.Sort(found)
	return found
}
