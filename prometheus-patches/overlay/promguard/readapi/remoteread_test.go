// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang/snappy"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
)

// Fields of the messages of a remote read request.
const (
	fieldQueries       = 1 // Of ReadRequest.
	fieldAcceptedTypes = 2 // Of ReadRequest.
	fieldMatchers      = 3 // Of Query.
	fieldHints         = 4 // Of Query.
	fieldMatcherType   = 1 // Of LabelMatcher.
	fieldMatcherValue  = 3 // Of LabelMatcher.
	fieldHintsGrouping = 5 // Of ReadHints.
)

// regexesOf returns what scanRead finds in a message, and checks that the body is left as
// it was.
func regexesOf(t testing.TB, message []byte) ([]string, error) {
	scan, err := scanned(t, message)
	return scan.regexes, err
}

func scanned(t testing.TB, message []byte) (readScan, error) {
	t.Helper()
	body := snappy.Encode(nil, message)
	r := httptest.NewRequest(http.MethodPost, "/api/v1/read", bytes.NewReader(body))
	scan, err := scanRead(r)
	if err == nil {
		left, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, body, left)
	}
	return scan, err
}

func TestRegexesOfARemoteReadAreFoundOnTheWire(t *testing.T) {
	req := &prompb.ReadRequest{Queries: []*prompb.Query{
		{StartTimestampMs: 1, EndTimestampMs: -2, Matchers: []*prompb.LabelMatcher{
			{Type: prompb.LabelMatcher_EQ, Name: "a", Value: "equal"},
			{Type: prompb.LabelMatcher_RE, Name: "b", Value: "x{1000}"},
		}, Hints: &prompb.ReadHints{StepMs: 1, Func: "rate", Grouping: []string{"a", "b"}}},
		{Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_NRE, Name: "c", Value: "y"}, {Type: prompb.LabelMatcher_NEQ}}},
	}}
	message, err := req.Marshal()
	require.NoError(t, err)
	regexes, err := regexesOf(t, message)
	require.NoError(t, err)
	require.Equal(t, []string{"x{1000}", "y"}, regexes)
}

func TestRemoteReadThatIsMuchLargerDecodedIsRefused(t *testing.T) {
	query := []byte{fieldQueries<<3 | 2, 0}
	for name, tc := range map[string]struct {
		message []byte
		want    string
	}{
		"queries":         {bytes.Repeat(query, maxReadQueries+1), "more than 1000"},
		"a million":       {bytes.Repeat(query, 16<<20), "33554432 bytes"},
		"matchers":        {nested(fieldQueries, bytes.Repeat([]byte{fieldMatchers<<3 | 2, 0}, maxReadMatchers+1)), "more than 10000 matchers"},
		"grouping labels": {nested(fieldQueries, nested(fieldHints, bytes.Repeat([]byte{fieldHintsGrouping<<3 | 2, 0}, maxReadMatchers+1))), "more than 10000 matchers"},
	} {
		_, err := regexesOf(t, tc.message)
		require.ErrorContains(t, err, tc.want, name)
	}
	_, err := regexesOf(t, bytes.Repeat(query, maxReadQueries))
	require.NoError(t, err)
}

// nested returns a message with one field that holds a message.
func nested(field byte, message []byte) []byte {
	n := len(message)
	return append([]byte{field<<3 | 2, byte(n&0x7f | 0x80), byte(n>>7&0x7f | 0x80), byte(n >> 14)}, message...)
}

// What the scan lets through decodes to little, and it finds what the decoder finds.
func FuzzRemoteReadOnTheWire(f *testing.F) {
	f.Add([]byte{fieldQueries<<3 | 2, 0})
	f.Add(nested(fieldQueries, nested(fieldMatchers, []byte{fieldMatcherType << 3, 2, fieldMatcherValue<<3 | 2, 1, 'x'})))
	f.Add([]byte{0xff, 0xff})
	f.Add([]byte{fieldAcceptedTypes<<3 | 2, 2, 7, 1})
	f.Add([]byte{fieldAcceptedTypes << 3, 0, fieldAcceptedTypes << 3, 1})
	f.Fuzz(func(t *testing.T, message []byte) {
		regexes, err := regexesOf(t, message)
		var req prompb.ReadRequest
		if err != nil || req.Unmarshal(message) != nil {
			return
		}
		var want []string
		matchers := 0
		for _, q := range req.Queries {
			for _, m := range q.Matchers {
				if m.Type == prompb.LabelMatcher_RE || m.Type == prompb.LabelMatcher_NRE {
					want = append(want, m.Value)
				}
			}
			matchers += len(q.Matchers)
		}
		require.LessOrEqual(t, len(req.Queries), maxReadQueries)
		require.LessOrEqual(t, matchers, maxReadMatchers)
		require.Equal(t, want, regexes)
		scan, err := scanned(t, message)
		require.NoError(t, err)
		kind, err := remote.NegotiateResponseType(req.AcceptedResponseTypes)
		require.Equal(t, err == nil && kind == prompb.ReadRequest_STREAMED_XOR_CHUNKS, scan.chunks)
	})
}

func TestARemoteReadHasTheTimeOfTheQueryThatItIsAPartOf(t *testing.T) {
	message := snappy.Encode(nil, nil)
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, Options{Timeout: 30 * time.Second, QueryTimeout: 2 * time.Minute, BulkConcurrency: 1, QueueTimeout: 10 * time.Second})
		ask := func(handler http.HandlerFunc) (code int, body string, took time.Duration) {
			rec, start := httptest.NewRecorder(), time.Now()
			handler(rec, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(message)))
			return rec.Code, rec.Body.String(), time.Since(start)
		}
		takes := func(d time.Duration) http.HandlerFunc {
			return func(_ http.ResponseWriter, r *http.Request) {
				select {
				case <-time.After(d):
				case <-r.Context().Done():
				}
			}
		}
		var others sync.WaitGroup
		others.Go(func() { ask(h.API("/read", takes(time.Minute))) })
		synctest.Wait()
		others.Go(func() {
			code, body, took := ask(h.Root("/federate", takes(0)))
			require.Equal(t, http.StatusServiceUnavailable, code, body)
			require.Equal(t, 10*time.Second, took)
		})
		code, body, took := ask(h.API("/read", takes(time.Second)))
		require.Equal(t, http.StatusOK, code, body)
		require.Equal(t, 61*time.Second, took, "it waits for its turn as upstream lets it")
		others.Wait()

		code, body, took = ask(h.API("/read", takes(time.Hour)))
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Contains(t, body, "--query.timeout=2m0s")
		require.Equal(t, 150*time.Second, took)
	})
}
