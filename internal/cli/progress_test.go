// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// drawn starts a Progress on a terminal of 40 columns.
func drawn(out io.Writer) *Progress {
	p := &Progress{out: out}
	p.start(func() int { return 40 })
	return p
}

func TestWhatIsDoneSoonSaysNoProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := drawn(&out)
		p.Step("reading")
		time.Sleep(quiet - time.Millisecond)
		p.End()
		require.Empty(t, out.String())
	})
}

func TestProgressSaysHowMuchIsDoneAndHowLongItWillTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := drawn(&out)
		last := func() string {
			time.Sleep(redrawPeriod)
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			_, text, _ := strings.Cut(out.String()[strings.LastIndex(out.String(), "\r"):], "\r")
			return strings.TrimSuffix(text, "\x1b[K")
		}
		p.Step("asking %s", "a")
		time.Sleep(10 * time.Second)
		require.Equal(t, "asking a, 10s", last())
		p.Set(25, 0)
		require.Equal(t, "asking a, 25 done, 10s", last())
		p.Step("reading")
		b := make([]byte, 25)
		r := p.Reader(strings.NewReader(strings.Repeat("x", 100)), 100)
		_, err := io.ReadFull(r, b)
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		require.Equal(t, "reading, 25 %, 10s, 31s left", last())
		p.Step("%s", strings.Repeat("x", 50))
		require.Equal(t, strings.Repeat("x", 39), last(), "it stays one line")

		fmt.Fprintln(p, "a line")
		require.True(t, strings.HasSuffix(out.String(), "\r\x1b[Ka line\n"), "above, and whole")
		p.End()
		require.True(t, strings.HasSuffix(out.String(), "a line\n"))
		p.End()
	})
}

func TestProgressIsForTerminalsOnly(t *testing.T) {
	var out strings.Builder
	p := NewProgress(&out)
	defer p.End()
	require.Nil(t, p.stop)
	p.Step("reading")
	fmt.Fprintln(p, "a line")
	require.Equal(t, "a line\n", out.String())
}
