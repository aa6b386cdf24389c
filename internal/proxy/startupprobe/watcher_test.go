// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package startupprobe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const stall = 10 * time.Minute

// server is a Prometheus of which a test says what it does at a time since its
// start. It answers without a network, so that time can be that of synctest.
type server struct {
	started time.Time
	// at returns whether it is ready, the share of the log that is replayed in
	// percent, and the seconds of CPU that were used. An error: it does not answer.
	at func(since time.Duration) (ready bool, percent, cpu float64, err error)
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	ready, percent, cpu, err := s.at(time.Since(s.started))
	if err != nil {
		return nil, err
	}
	status, body := http.StatusOK, ""
	switch r.URL.Path {
	case "/prefix/-/ready":
		if !ready {
			status = http.StatusServiceUnavailable
		}
	case "/prefix/api/v1/status/walreplay":
		body = fmt.Sprintf(`{"status":"success","data":{"min":0,"max":9,"current":3,"percent":%g,"rate":1,"eta":5}}`, percent)
	case "/prefix/metrics":
		body = fmt.Sprintf("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total %g\n", cpu)
	default:
		status = http.StatusNotFound
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// probe returns the status that a probe gets and how long it took, which is asked
// as soon as the server starts.
func probe(t *testing.T, at func(time.Duration) (bool, float64, float64, error)) (status int, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		base, err := url.Parse("http://localhost:9090/prefix")
		require.NoError(t, err)
		w := New(base, &server{time.Now(), at}, stall)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go w.Run(ctx)
		start, rw := time.Now(), httptest.NewRecorder()
		w.ServeHTTP(rw, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		status, took = rw.Code, time.Since(start)
	})
	return status, took
}

func TestAReplayThatMovesMayTakeHours(t *testing.T) {
	status, took := probe(t, func(since time.Duration) (bool, float64, float64, error) {
		return since >= 8*time.Hour, since.Hours() / 8 * 100, 0, nil // Its disk is slow: no CPU to speak of.
	})
	require.Equal(t, http.StatusOK, status)
	require.InDelta(t, 8*time.Hour, took, float64(2*every))
}

func TestAReplayThatSaysNothingOfItsProgressCountsByItsCPU(t *testing.T) {
	status, took := probe(t, func(since time.Duration) (bool, float64, float64, error) {
		return since >= time.Hour, 0, since.Seconds() / 2, nil
	})
	require.Equal(t, http.StatusOK, status)
	require.InDelta(t, time.Hour, took, float64(2*every))
}

func TestAReplayThatStopsIsStalled(t *testing.T) {
	status, took := probe(t, func(since time.Duration) (bool, float64, float64, error) {
		moved := min(since, time.Hour)
		// What it uses while it waits is for answers.
		return false, moved.Minutes(), moved.Seconds() + since.Seconds()*minCPU/4, nil
	})
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.InDelta(t, time.Hour+stall, took, float64(2*every))
}

func TestAServerThatNeverAnswersIsStalled(t *testing.T) {
	status, took := probe(t, func(time.Duration) (bool, float64, float64, error) {
		return false, 0, 0, errors.New("connection refused")
	})
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.InDelta(t, stall, took, float64(2*every))
}

func TestAServerThatStartsAnewHasAllTheTimeAgain(t *testing.T) {
	const crash = 9 * time.Minute
	status, took := probe(t, func(since time.Duration) (bool, float64, float64, error) {
		if since < crash {
			return false, 5, 100, nil
		}
		return false, 5, 1, nil // The same place, but another process.
	})
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.InDelta(t, crash+stall, took, float64(2*every))
}

func TestAProbeThatGivesUpLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, err := url.Parse("http://localhost:9090/prefix")
		require.NoError(t, err)
		w := New(base, &server{time.Now(), func(time.Duration) (bool, float64, float64, error) { return false, 0, 0, nil }}, stall)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		w.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		require.Error(t, ctx.Err())
	})
}

func FuzzAnswers(f *testing.F) {
	f.Add("process_cpu_seconds_total 1.5\n", `{"data":{"current":3,"percent":50}}`)
	f.Add("process_cpu_seconds_total NaN", `{"data":null}`)
	f.Add("process_cpu_seconds_total", `{`)
	f.Fuzz(func(t *testing.T, metrics, status string) {
		cpu, err := readCPU(strings.NewReader(metrics))
		if err != nil {
			require.Zero(t, cpu)
		}
		var p position
		if err := p.read(strings.NewReader(status)); err != nil {
			require.Zero(t, p)
		}
	})
}
