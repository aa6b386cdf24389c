// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
	"github.com/promguard/promguard/bench/walreplay/internal/replay"
	"github.com/promguard/promguard/internal/cli"
)

func TestResultsHaveALinePerReplayAndWhatItWasMadeOn(t *testing.T) {
	t.Setenv("GOGC", "50")
	var out bytes.Buffer
	r := newResults(&out, cli.Text)
	b := binary.Binary{Name: "patched", Version: "prometheus, version 3.16.0+promguard.1", Args: []string{"--a=<b>", "--c"}}
	c := datadir.Contents{Segments: 3, Series: 1000, Samples: 5_000_000}
	require.NoError(t, r.log([]binary.Binary{b}, &datadir.Dir{WALBytes: 10 << 20}, c))
	require.NoError(t, r.replay(step{b, 64}, c, replay.Result{Wall: time.Second, Replay: time.Second / 2}))
	require.NoError(t, r.replay(step{b, 64}, c, replay.Result{Wall: time.Second, Replay: time.Second / 2}))
	all := benchResults(t, &out)
	require.Len(t, all, 2)
	rate, ok := all[1].Value("samples/s")
	require.True(t, ok)
	require.Equal(t, 1e7, rate)
	require.Equal(t, "50", all[1].GetConfig("env-gogc"))
	require.Equal(t, "--a=<b> --c", all[1].GetConfig("args-patched"))
	require.Equal(t, "3", all[1].GetConfig("wal-segments"))
	require.Equal(t, "Replay/binary=patched/gomaxprocs=64", string(all[1].Name))
}
