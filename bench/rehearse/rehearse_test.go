// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rehearse

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/promguard/promguard/bench/oomstorm/storm"
	"github.com/promguard/promguard/bench/walreplay/replays"
	"github.com/promguard/promguard/internal/rules/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// silent is a Progress that keeps the lines.
type silent struct{ strings.Builder }

func (*silent) Step(string, ...any) {}

func (*silent) Count(int, int) {}

func newRehearsal(t *testing.T) (*rehearsal, *silent) {
	t.Helper()
	out := &silent{}
	return &rehearsal{Input: Input{Dir: t.TempDir(), Progress: out, Recording: "x", Storm: time.Minute}, dir: &replays.Dir{Bytes: 1 << 30}, from: time.UnixMilli(1_000_000), at: time.UnixMilli(10_000_000)}, out
}

func decoded(body string) *answer {
	a := &answer{code: http.StatusOK}
	a.decode([]byte(body))
	return a
}

func TestAnswersDifferByWhatAReaderSees(t *testing.T) {
	vector := func(rows string) string {
		return `{"status": "success", "data": {"resultType": "vector", "result": [` + rows + `]}}`
	}
	matrix := func(values string) string {
		return `{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {"a": "b"}, ` + values + `}]}}`
	}
	const a, b = `{"metric": {"a": "1"}, "value": [1, "2"]}`, `{"metric": {"a": "2"}, "value": [1, "3"]}`
	for name, tc := range map[string]struct{ stock, patched, want string }{
		"order is no difference":     {vector(a + "," + b), vector(b + "," + a), ""},
		"nor is the last digit":      {vector(`{"metric": {}, "value": [1, "0.30000000000000004"]}`), vector(`{"metric": {}, "value": [1, "0.3"]}`), ""},
		"a value is":                 {vector(a), vector(`{"metric": {"a": "1"}, "value": [1, "4"]}`), `{"a":"1"}: stock has 2 at 1970-01-01T00:00:01Z, patched 4 at 1970-01-01T00:00:01Z`},
		"infinity is nothing else":   {vector(`{"metric": {}, "value": [1, "+Inf"]}`), vector(`{"metric": {}, "value": [1, "5"]}`), `{}: stock has +Inf at 1970-01-01T00:00:01Z, patched 5 at 1970-01-01T00:00:01Z`},
		"NaN is itself":              {vector(`{"metric": {}, "value": [1, "NaN"]}`), vector(`{"metric": {}, "value": [1, "NaN"]}`), ""},
		"a time is":                  {vector(a), vector(`{"metric": {"a": "1"}, "value": [2, "2"]}`), `{"a":"1"}: stock has 2 at 1970-01-01T00:00:01Z, patched 2 at 1970-01-01T00:00:02Z`},
		"a row that is missing":      {vector(a + "," + b), vector(a), `{"a":"2"}: stock has 3, patched none`},
		"a row too many":             {vector(a), vector(a + "," + b), `{"a":"2"}: stock has none, patched 3`},
		"a point that is missing":    {matrix(`"values": [[1, "1"], [2, "2"]]`), matrix(`"values": [[1, "1"]]`), `{"a":"b"}: stock has 2 values, patched 1`},
		"a point":                    {matrix(`"values": [[1, "1"], [2, "2"]]`), matrix(`"values": [[1, "1"], [2, "3"]]`), `{"a":"b"}: stock has 2 at 1970-01-01T00:00:02Z, patched 3 at 1970-01-01T00:00:02Z`},
		"a histogram":                {matrix(`"histograms": [[1, {"count": "1"}]]`), matrix(`"histograms": [[1, {"count": "2"}]]`), `{"a":"b"}: stock has the histogram [null,[[1,{"count":"1"}]]], patched [null,[[1,{"count":"2"}]]]`},
		"a scalar":                   {`{"data": {"resultType": "scalar", "result": [1, "1"]}}`, `{"data": {"resultType": "scalar", "result": [1, "2"]}}`, `stock has [1, "1"], patched [1, "2"]`},
		"another kind":               {vector(a), matrix(`"values": []`), "stock has a vector, patched a matrix"},
		"a row with values and none": {matrix(`"values": [[1, "1"]]`), matrix(`"histograms": [[1, {}]]`), `{"a":"b"}: stock has 1 values, patched 0`},
	} {
		require.Equal(t, tc.want, difference(decoded(tc.stock), decoded(tc.patched)), name)
	}
	require.Equal(t, "patched answered 422: too; much", difference(decoded(vector(a)), &answer{code: 422, said: "too\nmuch"}), "one line")
	require.Contains(t, difference(decoded(vector(a)), &answer{err: http.ErrServerClosed}), "patched gave no answer")
}

// serving answers every query.
func serving(t *testing.T, result string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("query") == "bad" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"status": "error", "error": "no"}`)
			return
		}
		fmt.Fprintf(w, `{"status": "success", "data": {"resultType": "vector", "result": [%s], "stats": {"samples": {"peakSamples": %d}}}}`, result, len(r.FormValue("query")))
	}))
	t.Cleanup(func() {
		asker.CloseIdleConnections()
		s.Close()
	})
	return s.URL
}

const oneRow = `{"metric": {}, "value": [1, "1"]}`

func TestServerThatAnswersFewerInTheTimeOfStockIsTold(t *testing.T) {
	found := &Answers{}
	c := &comparing{Answers: found, stock: serving(t, oneRow), patched: serving(t, oneRow)}
	for i := range 4 {
		c.compare(t.Context(), i, &Question{Endpoint: "query", Query: "up"})
	}
	c.stockTook, c.patchedTook = 200*time.Millisecond, 400*time.Millisecond
	c.took = slices.Repeat([]time.Duration{100 * time.Millisecond}, 4)
	c.settle()
	require.Equal(t, 4, found.Compared)
	require.Zero(t, found.Differing)
	require.Equal(t, 2, found.Within)
	require.False(t, found.Slow, "so little time is noise")

	found.Within, c.stockTook, c.patchedTook = 0, time.Minute, 2*time.Minute
	c.settle()
	require.True(t, found.Slow)
	r := &Report{Answers: found}
	r.settle()
	require.Equal(t, NoGo, r.Verdict)
	require.Equal(t, []string{"in the 1m0s in which stock answered 4 questions, the patched server answered 4"}, r.Reasons)

	require.False(t, c.late())
	c.patchedClock = 5 * time.Minute
	require.True(t, c.late(), "it is not waited for")
}

func TestHeaviestQuestionsAreThoseOfPeopleThatTookMost(t *testing.T) {
	found := &Answers{}
	server := serving(t, oneRow)
	c := &comparing{Answers: found, stock: server, patched: server}
	questions := []Question{{Query: "up"}, {Query: "rate(up[5m])"}, {Query: "a rule's, which is the longest", Rule: true}, {Query: "bad"}}
	for i := range questions {
		questions[i].Endpoint = "query"
		c.compare(t.Context(), i, &questions[i])
	}
	require.Equal(t, 1, found.Failed)
	require.Equal(t, "bad: 422 Unprocessable Entity: no", found.FailedAs)
	var got []string
	for _, q := range heaviest(questions, found.Costs, 2) {
		got = append(got, q.Query)
	}
	require.Equal(t, []string{"bad", "rate(up[5m])"}, got, "what stock could not answer comes first")
}

func TestRehearsalWithoutAnAnswerCannotSay(t *testing.T) {
	for why, a := range map[string]Answers{
		"nothing was asked":              {},
		"stock answered none of":         {Questions: 2, Failed: 2, FailedAs: "up: 500"},
		"what is asked is not in the re": {Questions: 2, Compared: 2, Empty: 2},
	} {
		r := &Report{Answers: &a}
		r.settle()
		require.Equal(t, Unknown, r.Verdict, why)
		require.Equal(t, 2, r.ExitCode())
		require.Contains(t, r.Unknown[0].Why, why)
	}
	r := &Report{Answers: &Answers{Questions: 2, Compared: 2, Empty: 1, Logged: 1}}
	r.settle()
	require.Equal(t, Go, r.Verdict)
	require.Zero(t, r.ExitCode())
}

func TestEveryReasonIsOneOfANoGo(t *testing.T) {
	for want, r := range map[string]*Report{
		"does not start: exec":                                      {Restart: &Restarts{Patched: Restart{Failed: "exec\nmore"}}},
		"the heads differ":                                          {Restart: &Restarts{Differ: "the heads differ: x"}},
		"the restart takes 1m0s, and 10s with stock":                {Restart: &Restarts{Equal: true, Stock: Restart{Seconds: 10}, Patched: Restart{Seconds: 60}}},
		"the restart takes 900 MiB of memory":                       {Restart: &Restarts{Equal: true, Stock: Restart{PeakBytes: 500 << 20}, Patched: Restart{PeakBytes: 900 << 20}}},
		"1 answer of 2 differs":                                     {Answers: &Answers{Compared: 2, Differing: 1, Differ: []Differ{{What: "x"}}}},
		"2 queries that are answered today would be refused, as by": {Refused: Refusals{Refused: 2, List: []Refusal{{By: "promguard"}}}},
		"had not answered 2 questions of 5":                         {Refused: Refusals{Asked: 3, Late: 2}},
		"under 1 MiB, and stock does: killed":                       {Storm: &Storms{Limit: 1 << 20, Stock: storm.OwnResult{Alive: true}, Patched: storm.OwnResult{Ended: "killed"}}},
	} {
		r.settle()
		require.Equal(t, NoGo, r.Verdict, want)
		require.Equal(t, 1, r.ExitCode())
		require.Contains(t, strings.Join(r.Reasons, "\n"), want)
	}
}

func TestStepIsDoneAgainIfItsInputsChanged(t *testing.T) {
	r, out := newRehearsal(t)
	times := 0
	do := func(inputs any) int {
		t.Helper()
		got, err := step(r, "answers", inputs, func() (int, error) { times++; return times, nil })
		require.NoError(t, err)
		return got
	}
	rule, asked := Question{Query: "up", Rule: true}, Question{Query: "up"}
	require.Equal(t, 1, do(rule))
	require.Equal(t, 1, do(rule))
	require.Contains(t, out.String(), "answers: kept")
	require.Equal(t, 2, do(asked), "it became one of a person")
	require.Equal(t, 2, do(asked))

	path := filepath.Join(r.Dir, "answers.json")
	for _, broken := range []string{"", "{", `{"inputs": 1}`} {
		require.NoError(t, os.WriteFile(path, []byte(broken), 0o600))
		before := times
		require.Equal(t, before+1, do(asked), "what was cut off is done again")
	}
	_, err := step(r, "series", nil, func() (int, error) { return 0, os.ErrClosed })
	require.ErrorIs(t, err, os.ErrClosed)
	require.NoFileExists(t, filepath.Join(r.Dir, "series.json"), "what failed is not kept")
}

func TestWhatIsLeftIsToldByThePaceOfWhatWasDone(t *testing.T) {
	r, _ := newRehearsal(t)
	require.Equal(t, "about 1m22s left", r.left("storm-patched", true), "22 seconds for each GiB, and the storm")
	r.paced("stock", 94*time.Second)
	require.Equal(t, "about 1m44s left", r.left("storm-patched", true), "twice as slow, but for the storm")
	require.Equal(t, "about 0s left", r.left("storm-patched", false))
}

func TestExpositionHasTheLabelsOfTheRecording(t *testing.T) {
	got := linesOf([]replays.Sampled{
		{Labels: labels.FromStrings("__name__", "up", "job", "a", "path", "C:\\\n\"x\"")},
		{Labels: labels.FromStrings("__name__", "a.b", "c.d", "e")},
	})
	require.Equal(t, `up{job="a",path="C:\\\n\"x\""}`, got[0].name)
	require.Equal(t, `{"a.b","c.d"="e"}`, got[1].name)
}

const twoLogs = `{"params":{"query":"sum( up )","start":"1970-01-01T00:00:00Z","end":"1970-01-01T01:00:00Z","step":15},"stats":{"timings":{"execTotalTime":1}},"httpRequest":{"clientIP":"10.0.0.1","path":"/api/v1/query_range"},"time":"1970-01-01T01:00:00Z"}
{"params":{"query":"sum(up)","start":"1970-01-01T01:00:00Z","end":"1970-01-01T02:00:00Z","step":15},"stats":{"timings":{"execTotalTime":1}},"httpRequest":{"clientIP":"10.0.0.2","path":"/api/v1/query_range"},"time":"1970-01-01T02:00:00Z"}
{"params":{"query":"of_a_rule","start":"1970-01-01T01:00:00Z","end":"1970-01-01T01:00:00Z","step":0},"ruleGroup":{"name":"g"},"time":"1970-01-01T02:00:00Z"}
{"ts":"2030-01-01T02:00:00Z","endpoint":"query","class":"query","dashboard":"abc","queries":["up == 1"],"code":200}
{"ts":"2030-01-01T02:00:00Z","endpoint":"query","class":"query","queries":["up == 2"],"code":503}
{"ts":"2030-01-01T02:00:00Z","endpoint":"series","class":"metadata","queries":["up"],"code":200}
{"ts":"2030-01-01T02:00:00Z","endpoint":"query","class":"query","queries":["up =="],"code":200}
no line
`

func TestQuestionsAreWhatIsAskedOnceAtATimeOfTheRecording(t *testing.T) {
	r, _ := newRehearsal(t)
	log := filepath.Join(t.TempDir(), "query.log")
	require.NoError(t, os.WriteFile(log, []byte(twoLogs), 0o600))
	r.QueryLogs = []string{log}
	r.Found = source.RuleText("rules.yml", []byte(`{groups: [{name: g, rules: [{record: a, expr: "up == 1"}, {alert: B, expr: "up == 0"}]}]}`))
	panels, err := json.Marshal(map[string]any{"title": "D", "uid": "d1", "panels": []any{map[string]any{"targets": []any{
		map[string]any{"expr": `sum(rate(x{job=~"$job", a="b"}[5m]))`}, map[string]any{"expr": `{job=~"$job"}`}, map[string]any{"expr": `sum by ($job) (x)`},
	}}}, "templating": map[string]any{"list": []any{map[string]any{"name": "job", "type": "query", "query": "label_values(x, job)"}}}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "d.json")
	require.NoError(t, os.WriteFile(file, panels, 0o600))
	r.Found.Add(source.Dashboards(file))

	a, err := r.questions()
	require.NoError(t, err)
	require.Equal(t, 3, a.logs)
	require.Len(t, a.fromLogs, 2)
	var got []string
	for _, q := range a.questions {
		got = append(got, fmt.Sprintf("%s %s [%d, %d] x%d rule=%t any=%t %s", q.Endpoint, q.Query, q.Start/1000, q.End/1000, q.Times, q.Rule, q.Any, q.Dashboard))
	}
	require.Equal(t, []string{
		"query_range sum(up) [3600, 7200] x2 rule=false any=false ",
		"query up == 1 [10000, 10000] x1 rule=false any=false ",
		"query up == 0 [10000, 10000] x0 rule=true any=false ",
		"query_range sum(rate(x{a=\"b\"}[5m])) [6400, 10000] x0 rule=false any=true d1",
	}, got)
	require.Equal(t, []string{"client 10.0.0.1", "client 10.0.0.2"}, a.questions[0].Who)
	require.Len(t, a.questions[1].Who, 2, "a dashboard and a rule")

	require.NoError(t, os.WriteFile(log, []byte("no line\n"), 0o600))
	_, err = r.questions()
	require.ErrorContains(t, err, "no line of it is of a query log of promguard or of Prometheus")
}
