// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package paritytest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/hostile"
)

// What is let through, Prometheus's own handlers understand as they understand
// the client's own bytes.
func TestHostileRequestsThatPassAreAnsweredAsWithoutPromguard(t *testing.T) {
	prom := newPrometheus(t)
	g := newProxy(t, prom.URL, nil)
	requests, err := hostile.Requests()
	require.NoError(t, err)
	compared := 0
	for _, tc := range requests {
		if tc.Sees == nil {
			continue
		}
		compared++
		t.Run(tc.Name, func(t *testing.T) {
			direct, err := tc.Send(prom.Listener.Addr().String())
			require.NoError(t, err)
			guarded, err := tc.Send(g.Listener.Addr().String())
			require.NoError(t, err)
			require.Equal(t, direct.Status, guarded.Status, guarded.Body)
			require.Equal(t, direct.Body, guarded.Body)
			require.Equal(t, direct.Header.Get("Content-Encoding"), guarded.Header.Get("Content-Encoding"))
		})
	}
	require.Greater(t, compared, 50)
}
