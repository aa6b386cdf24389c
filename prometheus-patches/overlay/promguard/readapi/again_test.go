// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
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

func TestAReadThatIsStoppedWhenItHasToRunAgainGivesOneAnswer(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"the handler tells of an error": func(w http.ResponseWriter) { http.Error(w, "no room", http.StatusInternalServerError) },
		"the handler is silent":         func(http.ResponseWriter) {},
	} {
		t.Run(name, func(t *testing.T) {
			budget := reads.NewBudget(128<<20, nil)
			_, holdCtx, release := reads.NewTable(budget).Add(t.Context(), reads.Info{}, reads.Limits{})
			defer release()
			other := reads.FromContext(holdCtx)
			require.NoError(t, other.Expect(60<<20))
			require.NoError(t, other.Begin(holdCtx))
			h := limited(t, Options{Budget: budget})
			rec := httptest.NewRecorder()
			h.API("/query", func(w http.ResponseWriter, r *http.Request) {
				read := reads.FromContext(r.Context())
				_, _ = read.Expect(60<<20), read.Begin(r.Context())
				if !read.MustWait() {
					t.Error("there was room")
				}
				read.Stop(&reads.Stop{Reason: reads.ReasonMemory, Text: "Try again: memory"})
				answer(w)
			})(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			require.Equal(t, http.StatusServiceUnavailable, rec.Code)
			require.Equal(t, "Try again: memory", envelopeOf(t, rec.Body.String()).Error)
		})
	}
}

func TestALongReadOnAPlaceForQuickOnesRunsAgainOnAnother(t *testing.T) {
	h := limited(t, Options{QueryConcurrency: 2, QueueTimeout: time.Minute, Timeout: time.Minute})
	entered, end := make(chan struct{}, 2), make(chan struct{})
	var runs atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("/first", h.API("/query", func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-end
	}))
	mux.HandleFunc("/long", h.API("/query", func(w http.ResponseWriter, r *http.Request) {
		read := reads.FromContext(r.Context())
		if runs.Add(1) > 1 {
			_, _ = io.WriteString(w, "all of "+r.FormValue("query"))
			return
		}
		for {
			if err := read.Yield(r.Context()); err != nil {
				http.Error(w, err.Error(), http.StatusUnprocessableEntity)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}))
	mux.HandleFunc("/small", h.API("/query", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "small") }))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	answers := make(chan string, 2)
	ask := func(path string) {
		resp, err := http.PostForm(s.URL+path, url.Values{"query": {"it"}})
		if err != nil {
			answers <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answers <- string(body)
	}
	go ask("/first")
	<-entered
	go ask("/long")
	require.Eventually(t, func() bool { return h.query.Waiting() == 1 }, time.Minute, time.Millisecond)
	_, body := get(t, s.URL+"/small")
	require.Equal(t, "small", body)
	close(end)
	require.ElementsMatch(t, []string{"", "all of it"}, []string{<-answers, <-answers})
	require.EqualValues(t, 2, runs.Load())
}
