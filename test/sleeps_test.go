// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sleepers are the functions of tests that sleep, and wait for nothing by it.
var sleepers = []string{
	"TestNoMoreIsAskedThanTheBudgetHas", "twoMachines", "newSimulation", "happen", "modelBudget", // In a bubble of synctest.
	"TestContextSwitchesAgreeWithTheKernelsAccounts", "TestBoundsHoldUnderLoadAndEveryPermitComesBack", // Something to measure.
	"TestAnErrorThatIsLateStillArrives", "TestShutdownStopsEveryRead", // Handlers that are late.
	"scrapedHeap", // The least of several values.
}

func TestNoTestSleepsInsteadOfWaitingForACondition(t *testing.T) {
	files, err := exec.Command("git", "-C", "..", "ls-files", "*_test.go").Output()
	require.NoError(t, err)
	for name := range strings.FieldsSeq(string(files)) {
		file, err := parser.ParseFile(token.NewFileSet(), "../"+name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || slices.Contains(sleepers, f.Name.Name) {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if _, ok := n.(*ast.ForStmt); ok { // It has a condition.
					return false
				}
				call, ok := n.(*ast.CallExpr)
				if ok {
					require.NotEqual(t, "time.Sleep", types.ExprString(call.Fun), "%s: %s", name, f.Name.Name)
				}
				return !ok || types.ExprString(call.Fun) != "synctest.Test"
			})
		}
	}
}
