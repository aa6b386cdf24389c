// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime/debug"
	"testing"

	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"
)

func TestGarbageIsCollectedLateUnlessGOGCSaysWhen(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	t.Setenv("GOMEMLIMIT", "off") // Otherwise the limit of the tests' container would become that of the tests.
	for gogc, want := range map[string]int{"": 400, "50": 100} {
		t.Setenv("GOGC", gogc)
		useMemory(promslog.NewNopLogger())
		require.Equal(t, want, debug.SetGCPercent(100), gogc)
	}
}
