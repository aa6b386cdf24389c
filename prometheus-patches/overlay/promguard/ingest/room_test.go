// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang/snappy"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/prometheus/prometheus/promguard/memory"
)

const mib = 1 << 20

// A scrape, a request or a rule may take all that is left before a collection tells.
func TestSeriesThatNoCollectionHasSeenCountAtOnce(t *testing.T) {
	for _, source := range []Source{Scrape, RemoteWrite, Rule} {
		t.Run(string(source), func(t *testing.T) {
			w := newWorld(t, Options{})
			w.memory.usage = memory.Usage{Limit: 40 * mib, Live: 24 * mib, Heap: 24 * mib, Cycle: 1}
			j := judge{gate: w.gate, source: source}
			w.gate.Observe(&told{})
			head := w.gate.Created(&told{})
			let := 0
			for i := range 18_000 {
				ls := series(t, fmt.Sprintf("m{i=%d}", i))
				if j.refuse(ls) == nil {
					let++
					head.NewSeries(ls, false)
				}
			}
			// Up to 85 % of the limit, and 95 for rules.
			want := map[Source]int{Scrape: 10 * mib / seriesBytes, RemoteWrite: 10 * mib / seriesBytes, Rule: 14 * mib / seriesBytes}[source]
			require.InDelta(t, want, let, 0.1*float64(want))

			before := w.gate.Generation()
			w.memory.usage.Live, w.memory.usage.Cycle = 25*mib, 2
			w.gate.room.lookedAt.Store(0)
			require.Nil(t, j.refuse(series(t, "after{}")), "the collection found most of it dead")
			after := w.gate.Generation()
			require.NotEqual(t, before, after, "what was refused is asked again")
			require.Equal(t, after, w.gate.Generation())
		})
	}
}

func TestASeriesWithMoreLabelsThanThereIsRoomForIsRefusedByItself(t *testing.T) {
	w := newWorld(t, Options{})
	w.memory.usage = memory.Usage{Limit: 100 * mib, Live: 60 * mib, Heap: 60 * mib}
	var wide strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&wide, ",l%d=v", i)
	}
	require.Equal(t, []string{"wide{a=1" + wide.String() + "}"}, w.scrape("a{}", "wide{a=1"+wide.String()+"}", "b{}"))
}

func TestWhatIsGivenBackCanBeTakenAgain(t *testing.T) {
	w := newWorld(t, Options{})
	w.memory.usage = memory.Usage{Limit: 100 * mib, Live: 60 * mib, Heap: 60 * mib}
	for range 100 {
		require.True(t, w.gate.Take(28*mib))
		require.False(t, w.gate.Take(10*mib))
		w.gate.Give(28 * mib)
	}
}

// received posts a body and returns the answer. The handler answers 204 and reads all.
func receive(t *testing.T, g *Gate, source Source, body []byte, header http.Header) (*httptest.ResponseRecorder, []byte) {
	var got []byte
	h := g.Answer(source, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusNoContent)
	}))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
	r.Header = header
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w, got
}

func zipped(body []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(body)
	_ = z.Close()
	return b.Bytes()
}

func TestRequestsAreLetInWhenThereIsMemoryForWhatTheyDecodeTo(t *testing.T) {
	points := bytes.Repeat([]byte{0x0a, 0}, mib) // A million empty series, or resources.
	text := append([]byte{0x0a, 0x80, 0x80, 0x80, 0x01}, make([]byte, 2*mib)...)
	for name, c := range map[string]struct {
		source Source
		body   []byte
		gzip   bool
		live   int64
		status int
	}{
		"a small request":             {RemoteWrite, []byte{0x0a, 0}, false, 60, 204},
		"a large one of one text":     {RemoteWrite, text, false, 60, 204},
		"a million series":            {RemoteWrite, points, false, 10, 413},
		"a million resources":         {OTLP, points, false, 10, 413},
		"the same, compressed":        {OTLP, points, true, 10, 413},
		"objects of JSON":             {OTLP, bytes.Repeat([]byte("{},"), mib), false, 10, 413},
		"a long name of many points":  {OTLP, manyPoints(), false, 10, 413},
		"a long symbol of many":       {RemoteWrite, manySeries(), false, 10, 413},
		"a hundred thousand, full":    {RemoteWrite, points[:100_000], false, 90, 503},
		"a hundred thousand, empty":   {RemoteWrite, points[:100_000], false, 10, 204},
		"more than handlers let in":   {RemoteWrite, make([]byte, maxReceived+1), false, 10, 204},
		"what is not compressed well": {OTLP, []byte("no gzip"), false, 60, 204},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Options{})
				w.memory.usage = memory.Usage{Limit: 200 * mib, Live: 2 * c.live * mib, Heap: 2 * c.live * mib}
				header, body := http.Header{}, c.body
				switch {
				case c.source == RemoteWrite:
					if strings.Contains(name, "symbol") {
						header.Set("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")
					}
					body = snappy.Encode(nil, body)
				case c.gzip:
					header.Set("Content-Encoding", "gzip")
					body = zipped(body)
				case c.body[0] == '{':
					header.Set("Content-Type", "application/json")
				}
				answer, got := receive(t, w.gate, c.source, body, header)
				require.Equal(t, c.status, answer.Code, answer.Body.String())
				if c.status == http.StatusNoContent && !c.gzip {
					require.True(t, bytes.Equal(body, got), "the handler reads what was sent")
				}
				require.Equal(t, c.status == 503, answer.Header().Get("Retry-After") != "")
				require.Zero(t, w.gate.room.taken.Load())
				require.Zero(t, w.gate.worst.Load())
			})
		})
	}
}

func TestARequestWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		w.memory.usage = memory.Usage{Limit: 200 * mib, Live: 190 * mib, Heap: 190 * mib}
		go func() {
			time.Sleep(3 * time.Second)
			w.gate.opts.Memory.(*fakeMemory).lower(50 * mib)
		}()
		answer, _ := receive(t, w.gate, RemoteWrite, snappy.Encode(nil, bytes.Repeat([]byte{0x0a, 0}, 100_000)), http.Header{})
		require.Equal(t, http.StatusNoContent, answer.Code)
	})
}

// manyPoints is a metric of OTLP with a name of 300 KiB and a thousand points.
func manyPoints() []byte {
	field := func(number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	points := bytes.Repeat(field(1, nil), 1000)
	metric := append(field(1, make([]byte, 300<<10)), field(5, points)...)
	return field(1, field(2, field(2, metric)))
}

// manySeries is a request of remote write 2 with a symbol of 300 KiB and a thousand series.
func manySeries() []byte {
	symbols := append([]byte{0x22, 0}, protowire.AppendBytes([]byte{0x22}, make([]byte, 300<<10))...)
	return append(symbols, bytes.Repeat([]byte{0x2a, 4, 0x0a, 2, 0, 1}, 1000)...)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("gone") }

func TestABodyThatIsSaidToBeTooLongIsReadAndNotKept(t *testing.T) {
	w := newWorld(t, Options{})
	w.memory.usage = memory.Usage{Limit: 1000 * mib}
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(make([]byte, maxReceived+1)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a := httptest.NewRecorder()
	w.gate.Answer(RemoteWrite, http.NotFoundHandler()).ServeHTTP(a, r)
	require.Equal(t, http.StatusRequestEntityTooLarge, a.Code)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(mib))
	n, _ := r.Body.Read(make([]byte, 1))
	require.Zero(t, n)
	require.Equal(t, "request body exceeds the 33554432 bytes limit\n", a.Body.String())
}

func TestABodyThatEndsEarlyIsABadRequest(t *testing.T) {
	w := newWorld(t, Options{})
	w.memory.usage = memory.Usage{Limit: 200 * mib, Live: 10 * mib}
	h := w.gate.Answer(OTLP, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it is not handled") }))
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", broken{}))
	require.Equal(t, http.StatusBadRequest, answer.Code)
}

// FuzzDecoded looks for a body whose walk ends in anything but a number.
func FuzzDecoded(f *testing.F) {
	f.Add([]byte{0x0a, 0x02, 0x0a, 0x00})
	f.Add(bytes.Repeat([]byte{0x0a, 0x80}, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range []*message{writeRequest, writeRequest2, otlpRequest} {
			n := m.decoded(b, 0)
			require.GreaterOrEqual(t, n, int64(0))
			require.LessOrEqual(t, n, 512*int64(len(b)))
		}
		require.GreaterOrEqual(t, builtOfSymbols(b), int64(0))
		require.GreaterOrEqual(t, builtOfMetrics(b, 0), int64(0))
		require.LessOrEqual(t, longestText(b), int64(len(b)))
	})
}
