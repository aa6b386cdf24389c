// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/promapi"
	"github.com/promguard/promguard/internal/running"
)

// server answers like a promguard or a patched Prometheus, and remembers what it ended.
type server struct {
	*promapi.Server

	mu    sync.Mutex
	ended []string
}

const (
	ofProxy  = `[{"id":"1","begun":"2026-01-02T03:04:05Z","sent":false,"endpoint":"query","query":"up","tenant":"a","bytes":5},{"id":"2","endpoint":"query_range","sent":true,"dashboard":"d1","bytes":9}]`
	ofServer = `[{"id":1,"state":"waiting","endpoint":"/api/v1/query","expressions":["up","up"],"client":"10.0.0.1","userAgent":"curl","started":"2026-01-02T03:04:05Z","series":3,"reservedBytes":5,"allowedBytes":50},
		{"id":2,"state":"running","endpoint":"/federate","origin":{"X-Dashboard-Uid":"d1","X-Panel-Id":"4","X-Grafana-User":"eve","FromAlert":"true","X-Rule-Uid":"r1"},"reservedBytes":9}]`
)

func serve(t *testing.T, lists map[string]string) *server {
	t.Helper()
	s := &server{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, id := strings.TrimPrefix(r.URL.Path, "/api/v1/"), r.FormValue("id")
		if r.Method == http.MethodDelete && strings.HasPrefix(path, serverQueries) {
			path, id = serverQueries, strings.TrimPrefix(path, serverQueries+"/")
		}
		data, ok := lists[path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if r.Method == http.MethodDelete {
			if id == "3" {
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"status":"error","error":"no request with id 3 runs"}`)
				return
			}
			s.mu.Lock()
			s.ended = append(s.ended, id)
			s.mu.Unlock()
			if path == serverQueries {
				data = `{"id":1,"ended":true}`
			}
		}
		fmt.Fprintf(w, `{"status":"success","data":%s}`, data)
	}))
	t.Cleanup(srv.Close)
	var err error
	s.Server, err = promapi.NewServer(srv.URL, http.DefaultTransport)
	require.NoError(t, err)
	return s
}

var begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestWhatRunsIsListedAlikeOfAPromguardAndOfAServer(t *testing.T) {
	list, err := List(t.Context(), serve(t, map[string]string{proxyQueries: ofProxy}).Server, nil)
	require.NoError(t, err)
	require.Equal(t, []running.Query{
		{ID: "2", Sent: true, Endpoint: "query_range", Dashboard: "d1", Bytes: 9},
		{ID: "1", Begun: begun, Endpoint: "query", Text: "up", Tenant: "a", Bytes: 5},
	}, list, "what takes most comes first")

	s := serve(t, map[string]string{serverQueries: ofServer})
	list, err = List(t.Context(), s.Server, nil)
	require.NoError(t, err)
	require.Equal(t, []running.Query{
		{ID: "2", Sent: true, Endpoint: "/federate", User: "eve", Dashboard: "d1", Panel: "4", Alert: "r1", Bytes: 9},
		{ID: "1", Begun: begun, Endpoint: "query", Text: "up", Client: "10.0.0.1", UserAgent: "curl", Series: 3, Bytes: 5, Allowed: 50},
	}, list)
	list, err = List(t.Context(), s.Server, Filters{"user": "eve", "dashboard": "d1"})
	require.NoError(t, err)
	require.Len(t, list, 1)
	_, err = List(t.Context(), s.Server, Filters{"tenant": "a"})
	require.EqualError(t, err, s.String()+" is no promguard, and knows no tenant: use --id, --user or --dashboard")
}

func TestOnlyWhatIsMeantIsEnded(t *testing.T) {
	withThird := strings.TrimSuffix(ofServer, "]") + `,{"id":3,"state":"running","origin":{"X-Dashboard-Uid":"d1"}}]`
	for name, tc := range map[string]struct {
		ids     []string
		filters Filters
		ended   []string
		err     string
	}{
		"by id":                          {ids: []string{"1"}, ended: []string{"1"}},
		"by dashboard":                   {filters: Filters{"dashboard": "d1"}, ended: []string{"2"}},
		"some":                           {ids: []string{"1", "2"}, ended: []string{"1", "2"}},
		"one that has ended":             {ids: []string{"2", "7"}, ended: []string{"2"}, err: "no request with id 7 runs"},
		"one that ends while it is told": {ids: []string{"3"}},
		"nobody":                         {filters: Filters{"user": "bob"}, err: "no request that runs is so"},
		"an id of another dashboard":     {ids: []string{"1"}, filters: Filters{"dashboard": "d1"}, err: "no request with id 1 runs"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, map[string]string{serverQueries: withThird})
			ended, err := End(t.Context(), s.Server, tc.ids, tc.filters)
			if tc.err != "" {
				require.EqualError(t, err, tc.err)
			} else {
				require.NoError(t, err)
			}
			var ids []string
			for _, q := range ended {
				ids = append(ids, q.ID)
			}
			slices.Sort(ids)
			slices.Sort(s.ended)
			require.Equal(t, tc.ended, ids)
			require.Equal(t, tc.ended, s.ended)
		})
	}
	s := serve(t, map[string]string{proxyQueries: ofProxy})
	_, err := End(t.Context(), s.Server, []string{"2"}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"2"}, s.ended)
}

func TestAServerWithoutListsIsToldWithWhomToAskInstead(t *testing.T) {
	s := serve(t, nil)
	_, err := List(t.Context(), s.Server, nil)
	require.ErrorContains(t, err, s.String()+" has no list of queries: give the --web.telemetry-address of promguard, or the --prometheus.url of a patched Prometheus")
	_, err = End(t.Context(), s.Server, []string{"1"}, nil)
	require.ErrorContains(t, err, "has no list of queries")
	_, err = Top(t.Context(), s.Server, "5m", "time", 20)
	require.ErrorContains(t, err, "has no top queries: give the --web.telemetry-address")

	const report = `{"window":"5m","by":"time","queries":[{"endpoint":"query","query":"up","requests":3}],"total":{"requests":4}}`
	for _, path := range []string{proxyTop, serverTop} {
		r, err := Top(t.Context(), serve(t, map[string]string{path: report}).Server, "5m", "time", 20)
		require.NoError(t, err)
		require.Equal(t, 4, r.Total.Requests)
		require.Equal(t, "up", r.Queries[0].Text)
	}
}
