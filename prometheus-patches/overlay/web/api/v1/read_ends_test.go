// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/route"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/accounttest"
)

// endsWithin is how long a read may go on after it was stopped: in the wall's time or
// in that of the process, whichever is less, so that neither a busy machine nor the
// garbage collector is held against it.
const endsWithin = 100 * time.Millisecond

// stopped runs a request, stops it after a time, and returns how long it went on, and
// where it was after a quarter of the time that it may.
func stopped(t testing.TB, r *route.Router, target string, after time.Duration) (wentOn time.Duration, where string) {
	_, ctx := accounttest.New(t.Context(), storage.ReadBounds{SeriesBytes: 512})
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var began time.Time
	var cpu time.Duration
	returned, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-returned:
			return
		case <-time.After(after):
		}
		began, cpu = time.Now(), cpuTime()
		stop(errors.New("stopped"))
		select {
		case <-returned:
		case <-time.After(endsWithin / 4):
			where = handlerStack()
		}
	}()
	r.ServeHTTP(&discardRecorder{header: http.Header{}, first: func() {}}, httptest.NewRequest(http.MethodGet, target, http.NoBody).WithContext(ctx))
	ended, cpuEnded := time.Now(), cpuTime()
	close(returned)
	<-watched
	if began.IsZero() || ended.Before(began) {
		return 0, ""
	}
	return min(ended.Sub(began), cpuEnded-cpu), where
}

// cpuTime returns the time of all processors that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// handlerStack returns the functions that the read's goroutine is in, from the inner
// one to its handler.
func handlerStack() string {
	buf := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if inner, _, ok := strings.Cut(stack, "api/v1.(*API)"); ok {
			var names []string
			for line := range strings.Lines(inner) {
				if at := strings.LastIndex(line, "/"); strings.HasPrefix(line, "\t") && at >= 0 {
					name, _, _ := strings.Cut(line[at+1:], " ")
					names = append(names, strings.TrimSpace(name))
				}
			}
			return strings.Join(names[:min(len(names), 6)], " < ")
		}
	}
	return ""
}

func shortRangeQuery(expr string) string {
	return "/query_range?" + url.Values{
		"query": {expr}, "start": {strconv.FormatInt(accountEnd.Unix()-30, 10)}, "end": {strconv.FormatInt(accountEnd.Unix(), 10)}, "step": {"15"},
	}.Encode()
}

// readEnd is the longest that a read went on after it was stopped.
type readEnd struct {
	wentOn        time.Duration
	target, where string
}

// longestEnd stops a request in each of as many parts of its time, at random. What goes
// on for too long is stopped there again, twice: a pause of the machine does not come
// back.
func longestEnd(t testing.TB, rng *rand.Rand, r *route.Router, target string, parts int) readEnd {
	began := time.Now()
	stopped(t, r, target, time.Hour)
	whole := time.Since(began)
	longest := readEnd{target: target}
	for part := range parts {
		after := (whole*time.Duration(part) + time.Duration(rng.Int64N(int64(whole)))) / time.Duration(parts)
		wentOn, where := stopped(t, r, target, after)
		for again := 0; again < 2 && wentOn > endsWithin; again++ {
			if w, at := stopped(t, r, target, after); w < wentOn {
				wentOn, where = w, cmp.Or(at, where)
			}
		}
		if wentOn > longest.wentOn {
			longest.wentOn, longest.where = wentOn, where
		}
	}
	return longest
}

func TestReadsEndSoonAfterTheyAreStopped(t *testing.T) {
	e, parts, lists := exposed{series: 20_000, histograms: 500, buckets: 2, samples: 3}, 3, []string(nil)
	exprs := []string{`m + m`, `sort_by_label(m, "pod")`, `quantile(0.9, m)`, `topk(20000, m)`, `count_values("v", h)`}
	seed, _ := strconv.ParseUint(os.Getenv("PROMGUARD_READ_ENDS_SEED"), 10, 64)
	rng := rand.New(rand.NewPCG(seed, 0))
	if os.Getenv("PROMGUARD_READ_ENDS") != "" {
		e, parts, exprs, lists = exposed{series: 100_000, histograms: 20_000, buckets: 2, samples: 3}, 4, accountExprs(), accountLists()
		for range 100 {
			exprs = append(exprs, randomExpr(rng))
		}
	}
	targets := lists
	for _, expr := range exprs {
		targets = append(targets, shortRangeQuery(expr), instantQuery(expr))
	}
	r := accountAPI(t, e)
	ends := make([]readEnd, len(targets))
	for i, target := range targets {
		ends[i] = longestEnd(t, rng, r, target, parts)
	}
	slices.SortFunc(ends, func(a, b readEnd) int { return cmp.Compare(b.wentOn, a.wentOn) })
	for _, e := range ends[:min(len(ends), 30)] {
		name, _ := url.QueryUnescape(e.target)
		t.Logf("%6.1f ms  %s  %s", float64(e.wentOn.Microseconds())/1000, name[:min(len(name), 130)], e.where)
	}
	require.Less(t, ends[0].wentOn, endsWithin, "from the stop to the end of %s", ends[0].target)
}
