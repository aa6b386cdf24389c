// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/topqueries"
)

func TestNothingThatAClientSendsMakesALineOfTopMuchLonger(t *testing.T) {
	require.Equal(t, "-", fingerprintText(""))
	require.Equal(t, "4295b598c6659b44", fingerprintText("4295b598c6659b44"))
	require.Equal(t, "4295b598c6659b44+7", fingerprintText(strings.TrimSuffix(strings.Repeat("4295b598c6659b44,", 8), ",")))
	long := strings.Repeat("x", 256)
	require.Len(t, lineText(long, maxQueryText), 123)
	require.Less(t, len(whoText(&topqueries.Key{Tenant: long, Dashboard: long, Panel: long, Alert: true, AlertRule: long})), 200)
}
