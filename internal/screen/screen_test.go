// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// served is a page with what it was asked.
type served struct {
	*httptest.Server
	t       *testing.T
	page    *Page
	state   State
	stopped []string
}

func serve(t *testing.T, state State) *served {
	s := &served{t: t, state: state}
	s.page = New(Source{
		State: func() *State { c := s.state; return &c },
		Stop: func(id string) error {
			if id != "7" {
				return errors.New("no such request runs")
			}
			s.stopped = append(s.stopped, id)
			return nil
		},
		Explain: func(query, window string) *Explanation {
			return &Explanation{Refusals: []string{query + " of " + window}}
		},
	})
	s.Server = httptest.NewServer(http.StripPrefix("/prefix", s.page))
	t.Cleanup(s.Close)
	return s
}

func (s *served) get(path string) (string, *http.Response) {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Body.String(), w.Result()
}

func (s *served) stop(id string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, Route+"/stop", strings.NewReader(url.Values{"id": {id}}.Encode()))
	r.Header = header
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	s.page.ServeHTTP(w, r)
	return w
}

func busy(n int) State {
	s := State{Program: "Prometheus", Health: "tight", Level: Warn}
	for i := range n {
		s.Running = append(s.Running, Query{ID: strconv.Itoa(i), Begun: time.Now(), Endpoint: "query", Text: fmt.Sprintf(`rate(m%d{a="<b>"}[5m])`, i), Bytes: int64(i), Asker: Asker{User: fmt.Sprintf("user%d", i)}})
	}
	return s
}

func TestThePageIsWholeWithoutAScriptAndLoadsNothingOfOthers(t *testing.T) {
	s := serve(t, busy(2))
	body, res := s.get("/any/prefix" + Route + "?query=up&window=1h")
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, policy, res.Header.Get("Content-Security-Policy"))
	require.Contains(t, body, `rate</span>(m1{a=<span class="str">&#34;&lt;b&gt;&#34;</span>}`)
	require.Contains(t, body, `action="guard/stop"`)
	require.Contains(t, body, "up of 1h", "what is asked by the form is explained")
	for _, foreign := range []string{"http:", "https:", "//", "style=", "onclick", "<style"} {
		require.NotContains(t, body, foreign)
	}
	for _, part := range []string{"screen.css", "screen.js", "icon.svg"} {
		require.Contains(t, body, `"guard/`+part+`"`)
		_, res := s.get(Route + "/" + part)
		require.Equal(t, http.StatusOK, res.StatusCode, part)
		require.NotEmpty(t, res.Header.Get("ETag"))
	}
	_, res = s.get(Route + "/page.html")
	require.Equal(t, http.StatusNotFound, res.StatusCode, "the template is nobody's affair")
}

func TestOfManyRequestsThoseThatHoldMostAreShownAndTheOthersAreFound(t *testing.T) {
	s := serve(t, busy(5000))
	body, _ := s.get(Route + "/now")
	require.Equal(t, maxRows, strings.Count(body, "<tr id="))
	require.Contains(t, body, `id="q4999"`)
	require.NotContains(t, body, `id="q1234"`)
	body, _ = s.get(Route + "/now?find=USER1234")
	require.Equal(t, 1, strings.Count(body, "<tr id="))
	require.Contains(t, body, `id="q1234"`)
}

func TestADashboardIsNamedByItsTitleWhereThatIsKnownAndFoundEverywhere(t *testing.T) {
	top := NewTopQueries(10)
	for uid, seconds := range map[string]float64{"abc": 3, "def": 2} {
		top.Add(time.Now(), TopKey{Endpoint: "query", Dashboard: uid, Fingerprint: uid}, "up"+uid, TopCost{Requests: 1, Seconds: seconds})
	}
	state := busy(1)
	state.Costs = top.Costs(time.Now())
	state.Refusals = []Refusal{{Asker: Asker{Dashboard: "abc"}, Reason: "memory"}, {Asker: Asker{Dashboard: "def"}, Reason: "samples"}}
	s := serve(t, state)
	var titles Titles
	titles.Add("abc", "API server")
	titles.Add("def", "")
	s.page.source.Titles = &titles
	body, _ := s.get(Route + "/now")
	require.Equal(t, 3, strings.Count(body, "</small> API server (abc)</a>"), "five minutes, an hour, refused")
	require.Contains(t, body, `href="?find=abc"`)
	require.Contains(t, body, "</small> def</a>")
	require.Less(t, strings.Index(body, "upabc"), strings.Index(body, "updef"), "what cost most is first")
	body, _ = s.get(Route + "/now?find=api+server")
	require.Contains(t, body, "upabc")
	require.NotContains(t, body, "updef")
	require.NotContains(t, body, "samples")
	require.Contains(t, body, "Nothing of “api server” runs")
}

func TestTitlesAreBounded(t *testing.T) {
	var titles Titles
	for i := range 3 * maxTitles {
		titles.Add(strconv.Itoa(i), strings.Repeat("x", 2*maxText))
	}
	require.LessOrEqual(t, len(titles.byUID), maxTitles)
	require.Len(t, titles.of(strconv.Itoa(3*maxTitles-1)), maxText+len("..."))
}

func TestOnlyThePageItselfStopsARequest(t *testing.T) {
	s := serve(t, busy(1))
	require.Equal(t, http.StatusForbidden, s.stop("7", http.Header{"Sec-Fetch-Site": {"cross-site"}}).Code)
	require.Empty(t, s.stopped)
	w := s.stop("7", http.Header{"Sec-Fetch-Site": {"same-origin"}})
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "../guard", w.Header().Get("Location"))
	require.Equal(t, []string{"7"}, s.stopped)
	require.Equal(t, http.StatusNotFound, s.stop("8", http.Header{}).Code)
	_, res := s.get(Route + "/stop")
	require.Equal(t, http.StatusMethodNotAllowed, res.StatusCode)
}

func TestWhereNothingMayBeStoppedThereIsNoButtonAndTheReason(t *testing.T) {
	state := busy(1)
	state.NoStop = "Start the server otherwise"
	s := serve(t, state)
	body, _ := s.get(Route)
	require.NotContains(t, body, "guard/stop")
	require.Contains(t, body, state.NoStop)
	require.Equal(t, http.StatusForbidden, s.stop("7", http.Header{}).Code)
	require.Empty(t, s.stopped)
}

func TestListenersAreToldUntilTheyLeaveAndAreBounded(t *testing.T) {
	s := serve(t, busy(1))
	listen := func(ctx context.Context) *http.Response {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/prefix"+Route+"/events", http.NoBody)
		require.NoError(t, err)
		res, err := s.Client().Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { _ = res.Body.Close() })
		return res
	}
	ctx, leave := context.WithCancel(t.Context())
	res := listen(ctx)
	for lines, told := bufio.NewScanner(res.Body), 0; told < 2; {
		require.True(t, lines.Scan())
		if line := lines.Text(); line == "" {
			told++
		} else {
			require.True(t, strings.HasPrefix(line, "data: "), line)
		}
	}
	for range maxListeners - 1 {
		require.Equal(t, http.StatusOK, listen(ctx).StatusCode)
	}
	require.Equal(t, http.StatusServiceUnavailable, listen(ctx).StatusCode)
	leave()
	require.Eventually(t, func() bool { return s.page.listeners.Load() == 0 }, time.Minute, 10*time.Millisecond)
}

func TestTheStateIsAskedForOnceHoweverManyLook(t *testing.T) {
	asked := 0
	p := New(Source{State: func() *State { asked++; return &State{Health: "ok"} }})
	for range 10 {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, Route+"/state", nil))
		var got State
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		require.Equal(t, "ok", got.Health)
	}
	require.Equal(t, 1, asked)
}

func TestRefusalsOfOneKindAreCountedAndTheOldestKindIsForgotten(t *testing.T) {
	var l Refusals
	for i := range remembered {
		l.Add(Refusal{Reason: strconv.Itoa(i), Offer: "first"})
	}
	l.Add(Refusal{Reason: "1", Offer: strings.Repeat("é", maxText)})
	l.Add(Refusal{Reason: "new"})
	list := l.List()
	require.Len(t, list, remembered)
	require.Equal(t, "new", list[0].Reason)
	require.Equal(t, "1", list[1].Reason)
	require.Equal(t, 2, list[1].Count)
	require.LessOrEqual(t, len(list[1].Offer), maxText+len("..."))
	for _, r := range list {
		require.NotEqual(t, "0", r.Reason)
	}
}

func TestNumbersAreForPeople(t *testing.T) {
	require.Equal(t, []string{"0 B", "999 B", "1.0 KiB", "1.5 GiB", "64 MiB"}, []string{size(0), size(999), size(1000), size(3 << 29), size(64 << 20)})
	require.Equal(t, []string{"0.0s", "9.9s", "59s", "1m 05s", "2h 03m"}, []string{seconds(-1), seconds(9.9), seconds(59.4), seconds(65), seconds(7384)})
	require.Equal(t, "1\u202f234\u202f567", count(1234567))
	require.Equal(t, Bad, Gauge{Used: 9, Of: 10}.Level())
	require.Equal(t, "100.0%", Gauge{Used: 11, Of: 10}.Bar())
}

func TestAllOfAQueryIsShownWhateverItIs(t *testing.T) {
	for _, text := range []string{
		`sum by (pod) (rate(container_cpu_usage_seconds_total{a="x\"y"}[5m] offset 1h)) / on(pod) group_left 2`,
		"not \"closed", "", "é{ö='", `{__name__=~"a.*"} > bool 1e9`,
	} {
		var whole strings.Builder
		for _, piece := range tokens(text) {
			whole.WriteString(piece.Text)
		}
		require.Equal(t, text, whole.String())
	}
}

func BenchmarkNow(b *testing.B) {
	p := New(Source{State: func() *State { s := busy(5000); return &s }})
	for b.Loop() {
		write(httptest.NewRecorder(), "now", p.view(httptest.NewRequest(http.MethodGet, Route, nil)))
	}
}
