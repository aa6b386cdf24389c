// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/storage/remote"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMixNamesKindsAndTheirWeights(t *testing.T) {
	m, err := ParseMix("series=3, dashboard=1,query=0")
	require.NoError(t, err)
	require.Equal(t, Mix{"series": 3, "dashboard": 1, "query": 0}, m)

	r := rand.New(rand.NewPCG(1, 2))
	picked := map[string]int{}
	for range 4000 {
		picked[m.pick(r).Name]++
	}
	require.Len(t, picked, 2)
	require.InDelta(t, 3000, picked["series"], 150)
}

func TestDefaultMixPicksEveryKind(t *testing.T) {
	m, r, picked := DefaultMix(), rand.New(rand.NewPCG(1, 2)), map[string]bool{}
	for range 2000 {
		picked[m.pick(r).Name] = true
	}
	require.Len(t, picked, len(Kinds))
}

func TestMixThatMakesNoSenseIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                        `"" is not KIND=WEIGHT`,
		"series":                  `"series" is not KIND=WEIGHT`,
		"series=1,":               `"" is not KIND=WEIGHT`,
		"serie=1":                 `"serie" is not a kind of request; there are series, series2, label-values,`,
		"series=-1":               "the weight of series must be a whole number from 0 to 1000000",
		"series=1.5":              "the weight of series must be a whole number",
		"series=9999999999999999": "the weight of series must be a whole number",
		"series=1,series=2":       "series is named twice",
		"series=0":                "has no weight above 0",
	} {
		_, err := ParseMix(text)
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzMixCanBePickedFrom(f *testing.F) {
	f.Add("series=3, dashboard=1,query=0")
	f.Add("series=1000000,query=1000000")
	f.Fuzz(func(t *testing.T, s string) {
		if m, err := ParseMix(s); err == nil {
			require.Positive(t, m[m.pick(rand.New(rand.NewPCG(1, 2))).Name])
		}
	})
}

func TestSameSeedPlansTheSameRequests(t *testing.T) {
	s := &storm{Config: Config{Mix: DefaultMix(), Slow: 0.2, Leave: 0.3, Gzip: 0.5, Post: 0.5}}
	type manners struct {
		kind             string
		gzip, post, slow bool
		leave            time.Duration
	}
	plans := func(seed uint64) (all []manners) {
		r := rand.New(rand.NewPCG(seed, 0))
		for range 300 {
			p := s.plan(r)
			all = append(all, manners{p.kind.Name, p.gzip, p.post, p.slow, p.leave})
		}
		return all
	}
	once, again := plans(1), plans(1)
	require.Equal(t, once, again)
	require.NotEqual(t, plans(1), plans(2))
	slow, left := 0, 0
	for _, p := range plans(1) {
		if p.slow {
			slow++
		}
		if p.leave > 0 {
			left++
			require.GreaterOrEqual(t, p.leave, minLeave)
			require.LessOrEqual(t, p.leave, maxLeave)
		}
		if p.kind == "dashboard" {
			require.False(t, p.slow || p.leave > 0)
		}
	}
	require.Positive(t, slow)
	require.Positive(t, left)
}

func TestRequestsAreWhatPrometheusReads(t *testing.T) {
	from := time.Now().Add(-time.Minute)
	b := Builder{URL: "http://server", From: from, Points: 4}
	build := func(name string, post bool) *http.Request {
		kind, err := Find(name)
		require.NoError(t, err)
		req, err := b.Build(t.Context(), kind, rand.New(rand.NewPCG(1, 1)), true, post)
		require.NoError(t, err)
		require.Equal(t, "gzip", req.Header.Get("Accept-Encoding"))
		return req
	}
	require.Equal(t, []string{`{le!=""}`, `{job!=""}`}, build("series2", false).URL.Query()["match[]"])
	form := build("series", true)
	require.Equal(t, http.MethodPost, form.Method)
	require.Equal(t, `{le!=""}`, form.FormValue("match[]"))
	require.Equal(t, http.MethodGet, build("federate", true).Method)
	require.Equal(t, "5.000", build("query-range", false).URL.Query().Get("step"))

	for name, streamed := range map[string]bool{"read-samples": false, "read-chunks": true} {
		body := build(name, false)
		read, err := remote.DecodeReadRequest(body)
		require.NoError(t, err)
		require.Equal(t, from.UnixMilli(), read.Queries[0].StartTimestampMs)
		require.Equal(t, "le", read.Queries[0].Matchers[0].Name)
		kind, err := remote.NegotiateResponseType(read.AcceptedResponseTypes)
		require.NoError(t, err)
		require.Equal(t, streamed, kind.String() == "STREAMED_XOR_CHUNKS")
	}
}

func TestRangeQueriesStayBelowTheLimitOfSamples(t *testing.T) {
	for series, want := range map[int]int{5000: 36, 1_000_000: 36, 2_000_000: 20, 100_000_000: 1} {
		require.Equal(t, want, PointsFor(series), series)
	}
}

func TestOutcomesTellWhoEndedIt(t *testing.T) {
	open := context.Background()
	done, cancel := context.WithCancel(open)
	cancel()
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, tc := range []struct {
		outer, inner context.Context
		leaving      bool
		err          error
		want         string
	}{
		{open, open, false, nil, "200"},
		{done, done, true, nil, "200"},
		{done, done, true, io.ErrUnexpectedEOF, Ended},
		{open, done, true, context.Canceled, Left},
		{open, done, false, context.Canceled, Timeout},
		{open, open, true, refused, Refused},
		{open, open, false, io.ErrUnexpectedEOF, Cut},
	} {
		require.Equal(t, tc.want, classify(tc.outer, tc.inner, 200, tc.leaving, tc.err))
	}
}

// run storms against a handler for a moment.
func run(t *testing.T, c Config, handler http.HandlerFunc) Result {
	t.Helper()
	srv := httptest.NewServer(handler)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	c.URL, c.Points, c.Seed = srv.URL, 1, 1
	if c.Mix == nil {
		c.Mix = Mix{"series": 1}
	}
	return Run(ctx, c)
}

func TestClientsCountAnswersByStatusAndBytes(t *testing.T) {
	var n atomic.Int64
	r := run(t, Config{Clients: 3, Timeout: time.Second}, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		_, _ = io.WriteString(w, "0123456789")
	})
	a := r["series"]
	require.Positive(t, a.Outcomes["200"])
	require.Positive(t, a.Outcomes["422"])
	require.EqualValues(t, 10*(a.Outcomes["200"]+a.Outcomes["422"]), a.Bytes)
}

func TestSilentServerIsLeftOrTimesOut(t *testing.T) {
	silent := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	require.Positive(t, run(t, Config{Clients: 1, Timeout: 100 * time.Millisecond}, silent)["series"].Outcomes[Timeout])
	require.Positive(t, run(t, Config{Clients: 40, Timeout: time.Minute, Leave: 1}, silent)["series"].Outcomes[Left])
	require.Equal(t, 2, run(t, Config{Clients: 2, Timeout: time.Minute}, silent)["series"].Outcomes[Ended])
}

func TestSlowReaderReadsAKilobyteAtATime(t *testing.T) {
	r := run(t, Config{Clients: 1, Timeout: time.Minute, Slow: 1}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1<<20))
	})
	require.EqualValues(t, slowBytes, r["series"].Bytes)
}

func TestAnswerThatIsCutIsNotWhole(t *testing.T) {
	r := run(t, Config{Clients: 1, Timeout: time.Minute}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "not all")
		panic(http.ErrAbortHandler)
	})
	require.Positive(t, r["series"].Outcomes[Cut])
	require.Zero(t, r["series"].Outcomes["200"])
}

func TestSingleRequestIsTimedToItsFirstByteAndItsEnd(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(50 * time.Millisecond)
		_, _ = io.WriteString(w, "first")
		w.(http.Flusher).Flush()
		time.Sleep(50 * time.Millisecond)
		_, _ = io.WriteString(w, "last")
	}))
	defer srv.Close()
	s, err := Once(t.Context(), Builder{URL: srv.URL, Points: 1}, Kinds[0], false, 0, time.Minute)
	require.NoError(t, err)
	require.Equal(t, "200", s.Outcome)
	require.EqualValues(t, 9, s.Bytes)
	require.GreaterOrEqual(t, s.FirstByte, 50*time.Millisecond)
	require.GreaterOrEqual(t, s.Total, s.FirstByte+40*time.Millisecond)

	s, err = Once(t.Context(), Builder{URL: srv.URL, Points: 1}, Kinds[0], false, 20*time.Millisecond, time.Minute)
	require.NoError(t, err)
	require.Equal(t, Left, s.Outcome)
	require.Zero(t, s.FirstByte)
}

func TestChildStormsUntilItsInputEnds(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	in, parent := io.Pipe()
	go func() {
		_ = json.NewEncoder(parent).Encode(Config{URL: srv.URL, Clients: 2, Mix: Mix{"query": 1}, Timeout: time.Second, Points: 1})
		time.Sleep(100 * time.Millisecond)
		parent.Close()
	}()
	var out strings.Builder
	require.NoError(t, RunChild(in, &out))
	var r Result
	require.NoError(t, json.Unmarshal([]byte(out.String()), &r))
	require.Positive(t, r["query"].Outcomes["200"])

	require.ErrorContains(t, RunChild(strings.NewReader("not JSON"), io.Discard), "reading what to do")
}
