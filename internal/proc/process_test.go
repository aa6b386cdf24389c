// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestAProcessThatEndsIsToldWithItsLastWords(t *testing.T) {
	defer goleak.VerifyNone(t)
	var lines []string
	p, err := Start(exec.Command("sh", "-c", `for i in $(seq 20); do echo "word $i" >&2; done
		echo "gc 7 @1.5s 8%: 0.1+2.0+0.1 ms clock, 0.2+0/3/1+0.2 ms cpu, 400->500->300 MB, 420 MB goal" >&2; exit 3`), func(text string) { lines = append(lines, text) })
	require.NoError(t, err)
	<-p.Dead()
	require.False(t, p.Alive())
	require.WithinDuration(t, time.Now(), p.Ended(), time.Minute)
	require.ErrorIs(t, p.Wait(t.Context()), ErrEnded)
	require.Len(t, lines, 21)
	live, ok := Collected(lines[20])
	require.True(t, ok)
	require.EqualValues(t, 300<<20, live)
	require.Len(t, p.Tail(), tailLines, "traces are no words")
	require.ErrorContains(t, p.Error("it ended", p.How()), "it ended (exit status 3); its last log lines:\n  word 9\n")
	p.Kill()
}

func TestAProcessThatDoesNotEndIsKilledWithItsChildren(t *testing.T) {
	p, err := Start(exec.Command("sh", "-c", `trap "" TERM; sleep 1000 & echo begun >&2; while :; do sleep 1000; done`), nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(p.Tail()) > 0 }, time.Minute, time.Millisecond)
	require.True(t, p.Alive())
	require.False(t, p.Stop(t.Context(), time.Millisecond))
	require.Equal(t, "signal: killed", p.How())
	_, err = Start(exec.Command("/absent"), nil)
	require.Error(t, err)
}

func TestMetricsAreReadByWholeNames(t *testing.T) {
	collections := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.String() {
		case "/metrics":
			fmt.Fprint(w, "# TYPE a gauge\nab 1\na 2e+06\nc{d=\"e\"} 3\nf x\n")
		case "/debug/pprof/heap?gc=1":
			collections++
			fmt.Fprint(w, collections)
		default:
			http.Error(w, "no such thing", http.StatusNotFound)
		}
	}))
	defer s.Close()
	values, err := Metrics(t.Context(), s.URL, "a", "ab")
	require.NoError(t, err)
	require.Equal(t, []float64{2e6, 1}, values)
	_, err = Metrics(t.Context(), s.URL, "c")
	require.ErrorContains(t, err, "/metrics has no c")
	_, err = Metrics(t.Context(), s.URL, "f")
	require.ErrorContains(t, err, "invalid syntax")
	_, err = Get(t.Context(), s.URL+"/other")
	require.EqualError(t, err, "/other: 404 Not Found: no such thing\n")
	profile, err := Collect(t.Context(), s.URL)
	require.NoError(t, err)
	require.Equal(t, "2", string(profile))
}
