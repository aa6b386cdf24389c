// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proc"
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

func TestTheLiveHeapIsReadFromTheLog(t *testing.T) {
	s := &Server{}
	for _, live := range []string{"300", "200"} {
		s.line("gc 7 @1.5s 8%: 0.1+2.0+0.1 ms clock, 0.2+0/3/1+0.2 ms cpu, 400->500->" + live + " MB, 420 MB goal, 0 MB stacks, 0 MB globals, 2 P (forced)")
		s.line("a word")
	}
	now, peak := s.Live()
	require.EqualValues(t, 200<<20, now)
	require.EqualValues(t, 300<<20, peak)
}
