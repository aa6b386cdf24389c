// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promapi

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// byPath answers each path of the API with a text.
func byPath(answers map[string]string) transport {
	return func(r *http.Request) (*http.Response, error) {
		return respond(http.StatusOK, answers[strings.TrimPrefix(r.URL.Path, "/api/v1/")]), nil
	}
}

func TestResultThatIsNotWholeIsAnError(t *testing.T) {
	ctx := context.Background()
	row := `{"metric":{"a":"b"},"value":[1,"7"]}`
	for answer, want := range map[string]string{
		`{"status":"success","data":{"result":[{"metric":{},"value":[1,2]}]}}`:                    "is not a number",
		`{"status":"success","data":{"result":[{"metric":{},"value":[1]}]}}`:                      "is not a number",
		`{"status":"success","data":{"result":[` + row + `,` + row + `,` + row + `]}}`:            "more than 2 rows (--max-series)",
		`{"status":"success","warnings":["results truncated due to limit"],"data":{"result":[]}}`: "more than 2 rows (--max-series)",
	} {
		_, err := client(t, ample, always(http.StatusOK, answer)).Query(ctx, "up")
		require.ErrorContains(t, err, want, answer)
	}
	c := client(t, ample, byPath(map[string]string{
		"query":                 `{"status":"success","data":{"result":[` + row + `,{"metric":{},"histogram":[]}]}}`,
		"label/__name__/values": `{"status":"success","warnings":["results truncated due to limit"],"data":["a"]}`,
	}))
	rows, err := c.Query(ctx, "up")
	require.NoError(t, err)
	require.Equal(t, []Row{{labels.FromStrings("a", "b"), 7}}, rows)
	_, err = c.Names(ctx)
	require.ErrorContains(t, err, "more values of __name__ than the 1 that are listed")
}

func TestServerIsToldHowLongAndHowMuch(t *testing.T) {
	var asked []string
	c := client(t, ample, func(r *http.Request) (*http.Response, error) {
		_ = r.ParseForm()
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Form.Encode())
		return respond(http.StatusOK, `{"status":"success","data":{}}`), nil
	})
	_, err := c.Query(context.Background(), strings.Repeat("a", 10_000))
	require.NoError(t, err)
	_, err = c.Jobs(context.Background(), "up")
	require.Error(t, err)
	require.Contains(t, asked[0], "POST /api/v1/query limit=3&query=aaaa")
	require.Contains(t, asked[0], "&timeout=10")
	require.Regexp(t, `^GET /api/v1/label/job/values limit=50000&match%5B%5D=%7B__name__%3D%22up%22%7D&start=\d+$`, asked[1])
}

func TestWarningsAreKeptOnce(t *testing.T) {
	c := client(t, ample, always(http.StatusOK, `{"status":"success","warnings":["store is down","results truncated due to limit"],"data":[]}`))
	for range 2 {
		_, err := c.Names(context.Background())
		require.Error(t, err)
	}
	require.Equal(t, []string{"store is down"}, c.Warnings())
}

func TestTypesAreThoseThatTargetsState(t *testing.T) {
	c := client(t, ample, byPath(map[string]string{"metadata": `{"status":"success","data":{"a":[{"type":"counter","help":"x"}],"b":[]}}`}))
	types, err := c.Types(context.Background())
	require.NoError(t, err)
	require.Equal(t, map[string]model.MetricType{"a": model.MetricTypeCounter}, types)
}

func TestSizeOfANameIsBoundedByThoseThatAreListed(t *testing.T) {
	c := client(t, ample, byPath(map[string]string{
		"status/tsdb": `{"status":"success","data":{"headStats":{"numSeries":9},"seriesCountByMetricName":[{"name":"a","value":5},{"name":"b","value":4}]}}`,
	}))
	h, err := c.Head(context.Background())
	require.NoError(t, err)
	require.Equal(t, Head{Series: 9, ByName: map[string]int{"a": 5, "b": 4}}, h)
	require.Zero(t, h.AtMost("c"), "the list is complete")
	h.Rest = 3
	require.Equal(t, 3, h.AtMost("c"))
	require.Equal(t, 5, h.AtMost("a"))
}

func TestBatchesHoldNoMoreThanAQueryMayRead(t *testing.T) {
	h := Head{ByName: map[string]int{"a": 5, "b": 4, "c": 12}, Rest: 3}
	names := []string{"x", "a", "b", "c", "y"}
	require.Equal(t, []Batch{{[]string{"c"}, 12}, {[]string{"a", "b"}, 9}, {[]string{"x", "y"}, 6}}, h.Batches(names, 10))
	require.Equal(t, []string{"x", "a", "b", "c", "y"}, names, "the caller's stay as they are")
	many := h.Batches(make([]string, 2*maxBatch+1), 1000)
	require.Len(t, many, 3)

	// A server that does not say is asked for one name after the other.
	unknown, err := client(t, ample, always(http.StatusNotFound, "")).Head(context.Background())
	require.Error(t, err)
	require.Len(t, unknown.Batches(names, ample.Series), len(names))
}

func TestSelectorNamesWhatIsMeant(t *testing.T) {
	m := labels.MustNewMatcher(labels.MatchRegexp, "a.b", "x|y")
	require.Equal(t, `{__name__="up"}`, Selector([]string{"up"}))
	require.Equal(t, `{__name__=~"a\\.b|c","a.b"=~"x|y"}`, Selector([]string{"a.b", "c"}, m))
}

func FuzzAnswer(f *testing.F) {
	f.Add(200, "", []byte(`{"status":"success","data":{"result":[{"metric":{"a":"b"},"value":[1,"7"]}]}}`))
	f.Add(200, "", []byte(`{"status":"success","data":{"headStats":{"numSeries":9},"seriesCountByMetricName":[{"name":"a","value":5}]}}`))
	f.Add(200, "", []byte(`{"status":"success","warnings":["truncated"],"data":["a"]}`))
	f.Add(200, "", []byte(`{"status":"success","data":{"a":[{"type":"counter"}]}}`))
	f.Add(200, "", []byte(`{"status":"success","data":{"yaml":"a: b"}}`))
	f.Add(503, "3", []byte(`{"status":"error","error":"full"}`))
	f.Add(404, "x", []byte(`<html>`))
	b := ample
	b.Requests, b.Bytes = 1, 1000
	f.Fuzz(func(t *testing.T, code int, after string, text []byte) {
		server := always(code, string(text), "Retry-After", after)
		ask := func(what string, question func(*Client) error) {
			c := client(t, b, server)
			err := question(c)
			if err == nil && (code/100 != 2 || len(text) > 1000) {
				t.Errorf("%s: %d with %d bytes is an answer", what, code, len(text))
			}
			if c.bytes > b.Bytes+1 {
				t.Errorf("%s: %d bytes were read", what, c.bytes)
			}
		}
		ask("query", func(c *Client) error {
			rows, err := c.Query(context.Background(), "up")
			if len(rows) > b.Series {
				t.Errorf("%d rows", len(rows))
			}
			return err
		})
		ask("head", func(c *Client) error {
			h, err := c.Head(context.Background())
			packed := 0
			for _, batch := range h.Batches([]string{"a", "b", "c"}, b.Series) {
				packed += len(batch.Names)
			}
			if packed != 3 {
				t.Errorf("%d names of 3", packed)
			}
			return err
		})
		ask("names", func(c *Client) error { _, err := c.Names(context.Background()); return err })
		ask("types", func(c *Client) error { _, err := c.Types(context.Background()); return err })
		ask("config", func(c *Client) error { _, err := c.Config(context.Background()); return err })
	})
}
