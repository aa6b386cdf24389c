// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/promguard/reads"
)

func TestAReadThatFindsNoMemoryWaitsWithoutAPlaceAndRunsAgain(t *testing.T) {
	const total = 128 << 20
	budget := reads.NewBudget(total, nil)
	h := limited(t, Options{Budget: budget, BulkConcurrency: 1, QueueTimeout: time.Minute})
	message := snappy.Encode(nil, nil)
	holds, end := make(chan struct{}), make(chan struct{})
	var runs atomic.Int32
	handlers := map[string]http.HandlerFunc{
		"/read": h.API("/read", func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil || !bytes.Equal(body, message) {
				t.Errorf("the body is %q, %v", body, err)
			}
			w.Header().Add("X-Run", "x")
			a := reads.FromContext(r.Context())
			runs.Add(1)
			if a.Expect(50<<20) != nil {
				return
			}
			if err := a.Begin(r.Context()); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = io.WriteString(w, "all of it")
		}),
		"/small": h.API("/read", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "small") }),
	}
	mux := http.NewServeMux()
	for path, handler := range handlers {
		mux.Handle(path, handler)
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	post := func(path string) (*http.Response, string) {
		resp, err := http.Post(s.URL+path, "application/x-protobuf", bytes.NewReader(message))
		if err != nil {
			t.Error(err)
			return &http.Response{}, ""
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp, string(body)
	}

	other := limited(t, Options{Budget: budget})
	first := make(chan struct{})
	go func() { // Of a pool of its own.
		defer close(first)
		a := httptest.NewRequest(http.MethodGet, "/federate", http.NoBody)
		other.Root("/federate", func(_ http.ResponseWriter, r *http.Request) {
			account := reads.FromContext(r.Context())
			if account.Expect(60<<20) == nil && account.Begin(r.Context()) == nil {
				close(holds)
				<-end
			}
		})(httptest.NewRecorder(), a)
	}()
	<-holds
	got := make(chan struct{})
	go func() {
		defer close(got)
		resp, body := post("/read")
		if resp.StatusCode != http.StatusOK || body != "all of it" || len(resp.Header["X-Run"]) != 1 {
			t.Errorf("%v: %s", resp, body)
		}
	}()
	require.Eventually(t, func() bool { return budget.Waiting() == 1 }, time.Minute, time.Millisecond)
	require.EqualValues(t, 1, runs.Load())
	resp, body := post("/small")
	require.Equal(t, http.StatusOK, resp.StatusCode, "it holds no place")
	require.Equal(t, "small", body)
	close(end)
	<-first
	<-got
	require.EqualValues(t, 2, runs.Load())
	require.Eventually(t, func() bool { return budget.Held() == 0 }, time.Minute, time.Millisecond)
}
