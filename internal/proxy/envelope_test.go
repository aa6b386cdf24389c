// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireEnvelope checks that a is an error as Prometheus writes it and that its
// text has all parts.
func requireEnvelope(t testing.TB, a answer, errorType string, parts ...string) {
	t.Helper()
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &got), a.body)
	require.Equal(t, "error", got["status"])
	require.Equal(t, errorType, got["errorType"])
	require.Len(t, got, 3, "no data key: it would hide the message in Grafana")
	for _, part := range parts {
		require.Contains(t, got["error"], part)
	}
}
