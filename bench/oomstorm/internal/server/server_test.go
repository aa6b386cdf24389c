// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/bench/internal/proc"
)

func TestPeaksAreKeptAndTheLimitKills(t *testing.T) {
	s := &Server{}
	require.False(t, s.sample(proc.Memory{RSS: 300, Anon: 90, Peak: 310}, 100))
	require.False(t, s.sample(proc.Memory{RSS: 100, Anon: 99, Peak: 310}, 100))
	now, peak := s.Memory()
	require.EqualValues(t, 100, now.RSS)
	require.Equal(t, proc.Memory{RSS: 310, Anon: 99}, peak)
	require.False(t, s.sample(proc.Memory{Anon: 1 << 40}, 0), "no limit")
	require.True(t, s.sample(proc.Memory{Anon: 100}, 100))
}
