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

	"github.com/promguard/promguard/internal/proxy/identity"
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
	}, time.Minute, 10*time.Millisecond)
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
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, "selectivity", refusals[0].Reason)
	require.Equal(t, `{le!=""}`, refusals[0].Text)
	require.True(t, strings.HasPrefix(refusals[0].Offer, "Name a metric"), refusals[0].Offer)
}

func TestOnlyUsersWhomThePolicyNamesSeeThePageBesideTheAPIAndTheyStopNothing(t *testing.T) {
	behind := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	g := newProxy(t, behind.URL, nil, func(o *Options) { o.Policy.PageUsers = []string{"ann"} })
	serve := func(r *http.Request) (*httptest.ResponseRecorder, bool) {
		w := httptest.NewRecorder()
		return w, g.proxy.ServePage(w, r)
	}
	get := func(path string) *http.Request {
		return httptest.NewRequest(http.MethodGet, "/prefix"+screen.Route+path, nil)
	}

	claims := get("")
	claims.RemoteAddr = "127.0.0.1:1" // A peer that is believed.
	claims.Header.Set("X-Grafana-User", "ann")
	claims.SetBasicAuth("ann", "nobody has checked it")
	for name, r := range map[string]*http.Request{"nobody": get(""), "another": identity.WithUser(get(""), "bob"), "a header": claims} {
		w, served := serve(r)
		require.False(t, served, name)
		require.Empty(t, w.Body.String(), name)
	}

	w, served := serve(identity.WithUser(get(""), "ann"))
	require.True(t, served)
	require.Contains(t, w.Body.String(), "Runs now")
	require.NotContains(t, w.Body.String(), "guard/stop")
	w, _ = serve(identity.WithUser(httptest.NewRequest(http.MethodPost, "/prefix"+screen.Route+"/stop", strings.NewReader("id=1")), "ann"))
	require.Equal(t, http.StatusForbidden, w.Code)

	g.proxy.Stop()
	_, served = serve(identity.WithUser(get("/events"), "ann")) // Else it would listen for ever.
	require.True(t, served)

	policy := newPolicy(t, nil)
	g.proxy.SetPolicy(policy)
	_, served = serve(identity.WithUser(get(""), "ann"))
	require.False(t, served, "a reload took the page away")
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
