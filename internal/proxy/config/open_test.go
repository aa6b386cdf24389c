// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/admission"
)

func TestOnlyNamedEndpointsAreOpenedAndFourOfThemRunAtATime(t *testing.T) {
	c, err := Parse([]byte("open: [read]\n"))
	require.NoError(t, err)
	require.Equal(t, []string{"read"}, c.Open)
	require.Equal(t, 4, c.Admission.Classes[admission.Bulk].Max, "without a bound for all")
	none, err := Load("")
	require.NoError(t, err)
	require.Empty(t, none.Open)
	_, err = Parse([]byte("open: read\n"))
	require.ErrorContains(t, err, "use a list of endpoints")
}
