// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// watched runs watch for some seconds of a second each.
func watched(t *testing.T, seconds int, size func() (int, int), write func(io.Writer) error) (out, told string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second-time.Millisecond)
		defer cancel()
		var o, e strings.Builder
		err = watch(ctx, "prog", &o, &e, size, time.Second, write)
		out, told = o.String(), e.String()
	})
	return out, told, err
}

// tables writes tables of which the second fails.
func tables() func(io.Writer) error {
	n := 0
	return func(w io.Writer) error {
		n++
		if n == 2 {
			return errors.New("refused:\nno server")
		}
		fmt.Fprintf(w, "QUERY\n%d%s\n", n, strings.Repeat("x", n))
		return nil
	}
}

func TestInAPipeAWatchedTableIsWrittenAgainAndAgainWithoutEscapes(t *testing.T) {
	out, told, err := watched(t, 3, nil, tables())
	require.NoError(t, err)
	require.Equal(t, "QUERY\n1x\nQUERY\n3xxx\n", out)
	require.Equal(t, "prog: refused: no server\n", told)
}

func TestOnATerminalAWatchedTableIsDrawnInPlaceAndNothingOfItStays(t *testing.T) {
	out, told, err := watched(t, 3, func() (int, int) { return 4, 4 }, tables())
	require.NoError(t, err)
	require.Empty(t, told)
	require.True(t, strings.HasPrefix(out, enterScreen))
	require.True(t, strings.HasSuffix(out, leaveScreen))
	frames := strings.Split(out, firstCell)[1:]
	require.Len(t, frames, 3)
	require.Equal(t, "200\x1b[K\r\n\x1b[K\r\nQUE\x1b[K\r\n1x\x1b[K\x1b[J", frames[0])
	require.Equal(t, "200\x1b[K\r\nref\x1b[K\r\n\x1b[K\x1b[J", frames[1])
	require.Contains(t, frames[2], "\r\n3xx\x1b[K\x1b[J")
}

func TestWhatCannotBeSeenEvenOnceIsAnError(t *testing.T) {
	out, _, err := watched(t, 3, func() (int, int) { return 80, 24 }, func(io.Writer) error { return errors.New("no server") })
	require.EqualError(t, err, "no server")
	require.Empty(t, out)
}
