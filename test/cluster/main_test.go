// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"fmt"
	"os"
	"testing"
)

// notRun says which tests were skipped, and why.
var notRun []string

// lacks skips a test for what is missing on this machine, or fails it where nothing
// may be missing.
func lacks(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("PROMGUARD_CLUSTER_COMPLETE") != "" {
		t.Fatalf(format, args...)
	}
	notRun = append(notRun, t.Name()+": "+fmt.Sprintf(format, args...))
	t.Skip(notRun[len(notRun)-1])
}

func TestMain(m *testing.M) {
	status := m.Run()
	for _, test := range notRun {
		fmt.Fprintln(os.Stderr, "NOT TESTED:", test)
	}
	os.Exit(status)
}
