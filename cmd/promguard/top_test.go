// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNothingThatAClientSendsMakesALineOfTopMuchLonger(t *testing.T) {
	require.Equal(t, "-", fingerprintText(""))
	require.Equal(t, "4295b598c6659b44", fingerprintText("4295b598c6659b44"))
	require.Equal(t, "4295b598c6659b44+7", fingerprintText(strings.TrimSuffix(strings.Repeat("4295b598c6659b44,", 8), ",")))
	long := strings.Repeat("x", 256)
	require.Len(t, lineText(long, maxQueryText), 123)
	require.Less(t, len(whoText("tenant", long, "alert", long, "dashboard", long, "panel", long)), 200)
}
