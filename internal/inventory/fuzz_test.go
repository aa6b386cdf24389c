// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"
)

// fixed answers every request with a text.
type fixed []byte

func (f fixed) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Body: io.NopCloser(bytes.NewReader(f))}, nil
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"status":"success","data":{"result":[{"metric":{"a":"b"},"value":[1,"7"]}]}}`))
	f.Add([]byte(`{"status":"success","data":{"headStats":{"numSeries":9},"seriesCountByMetricName":[{"name":"a","value":5}]}}`))
	f.Add([]byte(`{"status":"success","warnings":["truncated"],"data":["a"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := &Server{
			URL: "http://x", Client: &http.Client{Transport: fixed(text)}, Timeout: time.Minute, Total: time.Minute, MaxQueries: 9, MaxSeries: 2,
			Sleep: func(context.Context, time.Duration) {},
		}
		rows, err := s.Query(context.Background(), "up")
		if err == nil && len(rows) > 2 {
			t.Errorf("%d rows", len(rows))
		}
		if h, err := s.Head(context.Background()); err == nil && len(h.ByName) > 0 {
			h.AtMost("a")
		}
		_, _ = s.Names(context.Background())
		_, _ = s.Config(context.Background())
	})
}
