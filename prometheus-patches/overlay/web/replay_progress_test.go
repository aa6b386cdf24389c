// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/tsdb"
)

func TestReplayProgressIsTextForTheReadinessProbe(t *testing.T) {
	require.Empty(t, replayProgressText(nil))
	require.Equal(t, ": replaying the WAL, 0.0 % done\n", replayProgressText(&tsdb.WALReplayProgress{}))
	require.Equal(t, ": replaying the WAL, 42.0 % done, 3.0 MiB/s, about 3m10s left\n",
		replayProgressText(&tsdb.WALReplayProgress{Ratio: 0.42, Rate: 3 << 20, ETA: 190 * time.Second}))
}
