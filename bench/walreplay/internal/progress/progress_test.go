// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLineSaysHowFarHowFastAndHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(&out, "writing", "samples", 3_000_000)
		time.Sleep(5 * time.Second)
		l.Add(500_000)
		require.Empty(t, out.String(), "no terminal: only now and then")
		time.Sleep(5 * time.Second)
		l.Add(500_000)
		require.Equal(t, "writing:  33%, 100k samples/s, 20s left\n", out.String())
		out.Reset()
		time.Sleep(10 * time.Second)
		l.Add(2_000_000)
		out.Reset()
		l.Done()
		require.Equal(t, "writing: 100%, 150k samples/s, took 20s\n", out.String())
	})
}

func TestNilLineIsSilent(*testing.T) {
	var l *Line
	l.Add(1)
	l.Done()
}
