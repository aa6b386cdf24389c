// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package answercache

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// server counts what it is asked.
type server struct {
	asked  int
	status int
	header http.Header
	body   string
}

func (s *server) send(req *http.Request) (*http.Response, error) {
	s.asked++
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	maps.Copy(w.Header(), s.header)
	if s.status != 0 {
		w.WriteHeader(s.status)
	}
	fmt.Fprint(w, s.body)
	res := w.Result()
	res.Request = req
	return res, nil
}

const success = `{"status":"success","data":["a"]}`

func newCache(change func(*Options)) *Cache {
	o := Options{MaxBytes: MinBytes, TTL: 30 * time.Second}
	if change != nil {
		change(&o)
	}
	return New(o, NewStats(prometheus.NewRegistry()))
}

// ask returns the body and the header Age, "-" for an answer of the server.
func ask(t *testing.T, c *Cache, s *server, key string, header ...string) (body, age string) {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := c.RoundTrip(req, key, s.send)
	require.NoError(t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	age = "-"
	if values := res.Header["Age"]; len(values) > 0 {
		age = values[0]
	}
	return string(text), age
}

func TestAnAnswerIsGivenAgainUntilItIsTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newCache(nil), &server{body: success}
		for _, step := range []struct {
			after time.Duration
			age   string
			asked int
		}{{0, "-", 1}, {0, "0", 1}, {12 * time.Second, "12", 1}, {17 * time.Second, "29", 1}, {time.Second, "-", 2}, {time.Second, "1", 2}} {
			time.Sleep(step.after)
			body, age := ask(t, c, s, "k")
			require.Equal(t, success, body) //nolint:testifylint // To the byte.
			require.Equal(t, step.age, age)
			require.Equal(t, step.asked, s.asked)
		}
		_, age := ask(t, c, s, "other key")
		require.Equal(t, "-", age)
		require.InDelta(t, 4, testutil.ToFloat64(c.stats.Hits), 0)
		require.InDelta(t, 3, testutil.ToFloat64(c.stats.Misses), 0)
	})
}

func TestAClientThatAsksForAFreshAnswerGetsOne(t *testing.T) {
	c, s := newCache(nil), &server{body: success}
	ask(t, c, s, "k")
	for _, header := range [][]string{{"Cache-Control", "No-Cache"}, {"Pragma", "no-cache"}, {"Cache-Control", "max-age=0"}} {
		s.asked, s.body = 0, strings.Replace(success, `"a"`, `"`+header[1]+`"`, 1)
		body, age := ask(t, c, s, "k", header...)
		require.Equal(t, "-", age)
		require.Equal(t, s.body, body)
		body, age = ask(t, c, s, "k")
		require.Equal(t, "0", age, "and the others get it, too")
		require.Equal(t, s.body, body)
	}
	s.body = "not to be kept"
	ask(t, c, s, "k", "Cache-Control", "no-store")
	body, _ := ask(t, c, s, "k")
	require.NotEqual(t, s.body, body)
}

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

func TestOnlyWholeSuccessIsKept(t *testing.T) {
	gz := http.Header{"Content-Encoding": {"gzip"}}
	for name, c := range map[string]struct {
		server
		kept bool
	}{
		"success":                   {server{body: success}, true},
		"success, compressed":       {server{header: gz, body: zipped(success)}, true},
		"an error":                  {server{status: 503, body: `{"status":"error"}`}, false},
		"an error with 200":         {server{body: `{"status":"error","data":[]}`}, false},
		"another status":            {server{status: 206, body: success}, false},
		"warnings":                  {server{body: `{"status":"success","data":[],"warnings":["results truncated due to limit"]}`}, false},
		"infos":                     {server{body: `{"status":"success","data":[],"infos":["x"]}`}, false},
		"warnings, compressed":      {server{header: gz, body: zipped(`{"status":"success","data":[],"warnings":["x"]}`)}, false},
		"half of it":                {server{body: success[:20]}, false},
		"half of it, compressed":    {server{header: gz, body: zipped(success)[:30]}, false},
		"an unknown encoding":       {server{header: http.Header{"Content-Encoding": {"br"}}, body: success}, false},
		"no JSON":                   {server{header: http.Header{"Content-Type": {"text/plain"}}, body: success}, false},
		"a cookie":                  {server{header: http.Header{"Set-Cookie": {"a=b"}}, body: success}, false},
		"a part of it":              {server{body: `{"status":"success","isPartial":true,"data":["a"]}`}, false},
		"all of it":                 {server{body: `{"status":"success","isPartial":false,"data":["a"],"stats":{"seriesFetched":"1"}}`}, true},
		"what is not known":         {server{body: `{"status":"success","data":["a"],"partialResponse":true}`}, false},
		"more than one answer":      {server{body: success + success}, false},
		"deep nesting":              {server{body: `{"status":"success","data":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`}, false},
		"some nesting":              {server{body: `{"status":"success","data":{"a":[{"b":[1e999,null,"]"]}]}}`}, true},
		"no-cache":                  {server{header: http.Header{"Cache-Control": {"public, No-Cache"}}, body: success}, false},
		"an age of none":            {server{header: http.Header{"Cache-Control": {"max-age=0, must-revalidate"}}, body: success}, false},
		"an age of some":            {server{header: http.Header{"Cache-Control": {"max-age=0600"}}, body: success}, true},
		"an age that is none":       {server{header: http.Header{"Cache-Control": {"s-maxage=x"}}, body: success}, false},
		"varied by what is known":   {server{header: http.Header{"Vary": {"Origin", "accept-encoding, Origin"}}, body: success}, true},
		"varied by all":             {server{header: http.Header{"Vary": {"Origin, *"}}, body: success}, false},
		"varied by the client":      {server{header: http.Header{"Vary": {"Origin", "X-Forwarded-For"}}, body: success}, false},
		"a long header":             {server{header: http.Header{"X-Long": {strings.Repeat("x", MinBytes/share)}}, body: success}, false},
		"private":                   {server{header: http.Header{"Cache-Control": {"Private"}}, body: success}, false},
		"more than may be":          {server{body: `{"status":"success","data":["` + strings.Repeat("x", MinBytes/share) + `"]}`}, false},
		"a bomb":                    {server{header: gz, body: zipped(`{"status":"success","data":"` + strings.Repeat("x", 17<<20) + `"}`)}, false},
		"nothing":                   {server{}, false},
		"an answer to be varied by": {server{header: http.Header{"Vary": {"*"}}, body: success}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cache := newCache(nil)
			first, _ := ask(t, cache, &c.server, "k")
			again, age := ask(t, cache, &c.server, "k")
			require.Equal(t, c.body, first)
			require.Equal(t, first, again)
			require.Equal(t, c.kept, age != "-")
			require.Equal(t, c.kept, cache.bytes > 0, "what is not kept takes no room")
			require.Zero(t, cache.reading)
		})
	}
}

func TestAnAnswerThatIsNotReadToItsEndIsNotKept(t *testing.T) {
	c, s := newCache(nil), &server{body: success}
	res, err := c.RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil), "k", s.send)
	require.NoError(t, err)
	_, err = io.ReadFull(res.Body, make([]byte, 5))
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Zero(t, c.bytes)
	ask(t, c, s, "k")
	_, age := ask(t, c, s, "k")
	require.Equal(t, "0", age)
}

func TestTheServerSaysForHowLongAnAnswerIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newCache(nil), &server{body: success, header: http.Header{"Cache-Control": {"max-age=30, s-maxage=15"}, "Age": {"5"}}}
		ask(t, c, s, "k")
		time.Sleep(10*time.Second - time.Nanosecond)
		_, age := ask(t, c, s, "k")
		require.Equal(t, "14", age, "with that from before")
		require.Equal(t, 1, s.asked)
		time.Sleep(time.Nanosecond)
		ask(t, c, s, "k")
		require.Equal(t, 2, s.asked)
		s.header = http.Header{"Cache-Control": {"max-age=9223372036854775807"}, "Age": {"9223372036854775807"}}
		ask(t, c, s, "odd")
		s.header = http.Header{"Age": {"9223372036854775807"}}
		ask(t, c, s, "odd")
		_, age = ask(t, c, s, "odd")
		require.Equal(t, "2147483647", age)
		s.asked = 2
		s.header = http.Header{"Cache-Control": {"max-age=30, s-maxage=15"}, "Age": {"15"}}
		ask(t, c, s, "other")
		ask(t, c, s, "other")
		require.Equal(t, 4, s.asked)
	})
}

// begin asks and does not read the answer.
func begin(t *testing.T, c *Cache, s *server, key string) *http.Response {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.Header.Set("Cache-Control", "no-cache")
	res, err := c.RoundTrip(req, key, s.send)
	require.NoError(t, err)
	return res
}

func TestAClientThatReadsSlowlyKeepsNobodyFromTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newCache(nil), &server{body: strings.Replace(success, `"a"`, `"old"`, 1)}
		slow := begin(t, c, s, "k")
		time.Sleep(time.Second)
		s.body = success
		ask(t, c, s, "k")
		_, age := ask(t, c, s, "k")
		require.Equal(t, "0", age)
		_, err := io.Copy(io.Discard, slow.Body)
		require.NoError(t, err)
		require.NoError(t, slow.Body.Close())
		body, _ := ask(t, c, s, "k")
		require.Equal(t, success, body) //nolint:testifylint // To the byte.
		require.Zero(t, c.reading)
	})
}

func TestWhatIsBeingReadLeavesHalfOfTheRoom(t *testing.T) {
	c, s := newCache(nil), &server{body: `{"status":"success","data":["` + strings.Repeat("x", 100_000) + `"]}`}
	for i := range 4 {
		ask(t, c, s, fmt.Sprint("kept", i))
	}
	var reading []*http.Response
	for range 20 {
		res := begin(t, c, s, "slow")
		_, err := io.ReadFull(res.Body, make([]byte, 90_000))
		require.NoError(t, err)
		require.LessOrEqual(t, c.reading, int64(MinBytes/2))
		require.LessOrEqual(t, c.bytes, int64(MinBytes))
		reading = append(reading, res)
	}
	require.Len(t, c.answers, 4)
	for _, res := range reading {
		require.NoError(t, res.Body.Close())
	}
	require.Zero(t, c.reading)
}

func FuzzIsSuccess(f *testing.F) {
	for _, seed := range []string{success, `{"data":{"a":[1,{}]},"isPartial":false,"status":"success"}`, `{"status":"success","data":[1,]}`, `{"status":"error","data":null}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !isSuccess(strings.NewReader(text)) {
			return
		}
		var e struct {
			Status                        string
			Data, Warnings, Infos, Errors json.RawMessage
			IsPartial                     bool
		}
		require.NoError(t, json.Unmarshal([]byte(text), &e))
		require.Equal(t, "success", e.Status)
		require.NotEmpty(t, e.Data)
		require.Empty(t, e.Warnings)
		require.Empty(t, e.Infos)
		require.Empty(t, e.Errors)
		require.False(t, e.IsPartial)
	})
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	c, s := newCache(nil), &server{}
	for i := range 120 {
		s.body = fmt.Sprintf(`{"status":"success","data":["%s"]}`, strings.Repeat("x", i%100*1000))
		s.header = http.Header{"X-Long": {strings.Repeat("x", 10_000)}}
		ask(t, c, s, fmt.Sprint("key", i))
		ask(t, c, s, "key0") // Used all the time, and so kept.
		sum := int64(0)
		for _, e := range c.answers {
			sum += e.Value.(*answer).size()
		}
		require.Equal(t, sum, c.bytes)
		require.LessOrEqual(t, c.bytes, int64(MinBytes))
	}
	require.Less(t, len(c.answers), 30)
	require.Contains(t, c.answers, "key0")
	require.Equal(t, c.bytes, c.Bytes())
}

func TestOptionsAreChecked(t *testing.T) {
	require.NoError(t, (&Options{TTL: time.Second}).Validate())
	for want, o := range map[string]Options{
		"max_bytes is 5": {MaxBytes: 5, TTL: time.Second}, "ttl is 0s": {MaxBytes: MinBytes}, "ttl is 2h": {TTL: 2 * time.Hour}, "round is 2h": {TTL: 1, Round: 2 * time.Hour},
	} {
		require.ErrorContains(t, o.Validate(), want)
	}
	o := DefaultOptions()
	require.NoError(t, o.Validate())
	require.Nil(t, New(o, NewStats(prometheus.NewRegistry())), "off by default")
}
