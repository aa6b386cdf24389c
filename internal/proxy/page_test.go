// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/screen"
)

// page returns what the page says.
func (g *testProxy) page(t *testing.T) (s screen.State) {
	t.Helper()
	w := httptest.NewRecorder()
	g.proxy.Page().ServeHTTP(w, httptest.NewRequest(http.MethodGet, screen.Route+"/state", nil))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &s))
	return s
}

func TestThePageNamesWhatRunsAndStopsIt(t *testing.T) {
	come := make(chan struct{})
	behind := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		close(come)
		<-r.Context().Done()
	})
	g := newProxy(t, behind.URL, nil)
	ended := make(chan int)
	req := newRequest(t, http.MethodGet, g.URL, "query", url.Values{"query": {`sum(up{job="x"})`}}.Encode())
	req.Header.Set("X-Dashboard-Uid", "abc")
	go func() {
		res, err := g.Client().Do(req)
		if err != nil {
			ended <- 0
			return
		}
		_ = res.Body.Close()
		ended <- res.StatusCode
	}()
	<-come
	s := g.page(t)
	require.Len(t, s.Running, 1)
	run := s.Running[0]
	require.Equal(t, `sum(up{job="x"})`, run.Text)
	require.Equal(t, "abc", run.Dashboard)
	require.Less(t, time.Since(run.Begun), time.Minute)

	stop := httptest.NewRequest(http.MethodPost, screen.Route+"/stop", strings.NewReader("id="+run.ID))
	stop.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	g.proxy.Page().ServeHTTP(w, stop)
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, http.StatusServiceUnavailable, <-ended)
	require.Eventually(t, func() bool {
		refusals := g.page(t).Refusals
		return len(refusals) == 1 && refusals[0].Reason == reasonStopped
	}, 5*time.Second, 10*time.Millisecond)
}

func TestThePageSaysWhatWasRefusedAndWithWhichOffer(t *testing.T) {
	behind := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	g := newProxy(t, behind.URL, nil)
	for range 2 {
		res, err := g.Client().Do(newRequest(t, http.MethodGet, g.URL, "series", url.Values{"match[]": {`{le!=""}`}}.Encode()))
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
	}
	var refusals []screen.Refusal
	require.Eventually(t, func() bool {
		refusals = g.page(t).Refusals
		return len(refusals) == 1 && refusals[0].Count == 2
	}, 5*time.Second, 10*time.Millisecond)
	require.Equal(t, "selectivity", refusals[0].Reason)
	require.Equal(t, `{le!=""}`, refusals[0].Text)
	require.True(t, strings.HasPrefix(refusals[0].Offer, "Name a metric"), refusals[0].Offer)
}

func TestThePageExplainsAQueryBeforeItIsAsked(t *testing.T) {
	behind := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	g := newProxy(t, behind.URL, nil)
	for query, want := range map[string]string{`up{job="x"}`: "Passes", `{le!=""}`: "Is refused", `up{`: "parse error"} {
		w := httptest.NewRecorder()
		g.proxy.Page().ServeHTTP(w, httptest.NewRequest(http.MethodGet, screen.Route+"/explain?window=24h&query="+url.QueryEscape(query), nil))
		require.Contains(t, w.Body.String(), want, query)
	}
}
