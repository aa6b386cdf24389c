// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package jsonedit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func truncated(body string, limit, held int64, wrap func(io.Reader) io.Reader) (string, int, error) {
	exceeded := 0
	e := New(io.NopCloser(wrap(strings.NewReader(body))), Options{Limit: limit, Truncated: "cut", Exceeded: func() { exceeded++ }, Lost: func() {}})
	e.maxHeld = held
	got, err := io.ReadAll(e)
	return string(got), exceeded, err
}

func whole(r io.Reader) io.Reader { return r }

// matrix has n series, the second of native histograms, and a warning behind.
func matrix(n int) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf(`{"metric":{"a":"]},{%d"},"values":[[1,"1"],[2,"2"]]}`, i)
		if i == 1 {
			entries[i] = `{"metric":{},"histograms":[[1,{"count":"5","sum":"5","buckets":[[0,"0.5","1","1"]]}]]}`
		}
	}
	return `{"status":"success","data":{"resultType":"matrix","result":[` + strings.Join(entries, ",") + `]},"warnings":["of the server"],"infos":["x"]}`
}

type envelopeOf[T any] struct {
	Status          string
	Data            T
	Warnings, Infos []string
}

type result struct {
	ResultType string
	Result     []json.RawMessage
}

func TestLongListIsTruncatedToWholeEntriesAtAnyLimit(t *testing.T) {
	body := matrix(50)
	var all envelopeOf[result]
	require.NoError(t, json.Unmarshal([]byte(body), &all))
	last := -1
	for limit := 400; limit < 2*len(body); limit += 7 {
		got, exceeded, err := truncated(body, int64(limit), maxHeld, whole)
		require.NoError(t, err)
		var some envelopeOf[result]
		require.NoError(t, json.Unmarshal([]byte(got), &some), got)
		n := len(some.Data.Result)
		require.Equal(t, all.Data.Result[:n], append([]json.RawMessage{}, some.Data.Result...), "whole entries, in order")
		require.GreaterOrEqual(t, n, last, "a larger limit never sends less")
		last = n
		require.Equal(t, "matrix", some.Data.ResultType)
		require.Equal(t, []string{"x"}, some.Infos)
		if n == 50 {
			require.Equal(t, body, got)
			require.Zero(t, exceeded)
			continue
		}
		require.Equal(t, []string{"cut", "of the server"}, some.Warnings)
		require.Equal(t, 1, exceeded)
	}
	require.Equal(t, 50, last)
}

func TestTruncationFollowsTheShapeOfTheAnswer(t *testing.T) {
	long := strings.Repeat("a", 300)
	for name, tc := range map[string]struct{ body, want string }{
		"short list":        {`{"status":"success","data":["a","b"]}`, `{"status":"success","data":["a","b"]}`},
		"spaces":            {"{ \"status\" : \"success\" ,\n\"data\" : [ \"a\" , \"b\" ] }\n", ""},
		"empty list":        {`{"data":[]}`, `{"data":[]}`},
		"long values":       {`{"data":["a","` + long + `","b"]}`, `{"data":["a"],"warnings":["cut"]}`},
		"first is too long": {`{"data":["` + long + `","b"],"infos":["i"]}`, `{"data":[],"infos":["i"],"warnings":["cut"]}`},
		"nested":            {`{"data":[["a",["b"]],{"data":["c"]},"` + long + `"]}`, `{"data":[["a",["b"]],{"data":["c"]}],"warnings":["cut"]}`},
		"scalar":            {`{"data":{"resultType":"scalar","result":[1,"2"]}}`, `{"data":{"resultType":"scalar","result":[1,"2"]}}`},
		"string":            {`{"data":{"resultType":"string","result":[1,"` + long + `"]}}`, `{"data":{"resultType":"string","result":[1,"` + long + `"]}}`},
		"a map":             {`{"data":{"a":["` + long + `"]}}`, `{"data":{"a":["` + long + `"]}}`},
		"groups":            {`{"data":{"groups":["` + long + `"]}}`, `{"data":{"groups":["` + long + `"]}}`},
		"no object":         {`["` + long + `"]`, `["` + long + `"]`},
		"other data":        {`{"x":{"data":["` + long + `"]}}`, `{"x":{"data":["` + long + `"]}}`},
		"escapes":           {`{"da\u0074a":["a"],"data":["\"],","\\"]}`, `{"da\u0074a":["a"],"data":["\"],","\\"]}`},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{"whole": whole, "bytewise": iotest.OneByteReader} {
			got, _, err := truncated(tc.body, 400, maxHeld, wrap)
			require.NoError(t, err, name)
			if tc.want == "" {
				require.JSONEq(t, tc.body, got, name)
				continue
			}
			require.Equal(t, tc.want, got, "%s, %s", name, how)
		}
	}
}

func TestWhatCannotBeTruncatedIsBrokenOff(t *testing.T) {
	huge := strings.Repeat("a", 40_000)
	for _, body := range []string{`{"data":{"a":["` + huge + `"]}}`, `{"data":{"result":[1,"` + huge + `"]}}`, `{"data":[],"warnings":["` + huge + `"]}`, huge} {
		_, exceeded, err := truncated(body, 1000, maxHeld, whole)
		require.ErrorIs(t, err, ErrTooLarge)
		require.Equal(t, 1, exceeded)
	}
}

// endlessList is an answer whose list does not end.
type endlessList struct {
	head  string
	reads int
}

func (e *endlessList) Read(p []byte) (int, error) {
	e.reads++
	if e.head != "" {
		n := copy(p, e.head)
		e.head = e.head[n:]
		return n, nil
	}
	for i := range p {
		p[i] = `"a",`[i%4]
	}
	return len(p) / 4 * 4, nil
}

func TestListThatDoesNotEndIsEnded(t *testing.T) {
	src := &endlessList{head: `{"status":"success","data":[`}
	r := bufio.NewReaderSize(New(io.NopCloser(src), Options{Limit: 100_000, Truncated: "cut", Exceeded: func() {}, Lost: func() {}}), 64<<10)
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	var e envelopeOf[[]string]
	require.NoError(t, json.Unmarshal(got, &e))
	require.Equal(t, "cut", e.Warnings[0])
	require.Greater(t, len(e.Data), 10_000)
	require.LessOrEqual(t, len(got), 100_000)
	require.Less(t, src.reads, 200)
}

// The limit is far away from most of an answer; entries are not held there.
func TestEntriesFarFromTheLimitAreNotHeld(t *testing.T) {
	list := `{"data":["` + strings.Repeat(`],[\\","{},\"","`, 3000) + `"],"infos":["i"]}`
	mixed := `{"data":["a",{"b":[",]"]},1,[",",["]"]],` + strings.Repeat(`"x",true,{"a":"}"},[1,"]"],`, 1500) + `"end"],"infos":["i"]}`
	vector := `{"data":{"resultType":"vector","result":[` + strings.Repeat(`{"metric":{"a":"},{\"b\":[","c":","},"value":[1,"],{"]},`, 1500) + `{}]}}`
	series := `{"data":[` + strings.Repeat(`{"a":"b","c":"]},{","d":"\\"},`, 2500) + `{"z":""}],"infos":["i"]}`
	lists := `{"data":[` + strings.Repeat(`{"a":"b","c":"d","e":{"f":"g","h":1,"i":{}}},["x",["y"]],"z","}",-1,null,`, 1000) + `0]}`
	for name, body := range map[string]string{"matrix": matrix(1000), "texts": list, "mixed": mixed, "vector": vector, "series": series, "lists": lists} {
		t.Run(name, func(t *testing.T) {
			for limit := len(body) / 2; limit < len(body)+3*tailBytes; limit += 6007 {
				for how, wrap := range map[string]func(io.Reader) io.Reader{"whole": whole, "bytewise": iotest.OneByteReader, "half": iotest.HalfReader} {
					want, wantExceeded, err := truncated(body, int64(limit), maxHeld, whole)
					require.NoError(t, err)
					got, exceeded, err := truncated(body, int64(limit), 300, wrap)
					require.NoError(t, err)
					require.Equal(t, wantExceeded, exceeded)
					require.Equal(t, want, got, how)
				}
			}
		})
	}
}

func TestEmptyListIsNeverTruncated(t *testing.T) {
	body := matrix(0)
	for limit := int64(2); limit < 200; limit++ {
		got, exceeded, err := truncated(body, limit, maxHeld, iotest.OneByteReader)
		if limit < int64(len(body)) {
			require.ErrorIs(t, err, ErrTooLarge)
			require.Equal(t, 1, exceeded)
			continue
		}
		require.NoError(t, err)
		require.Zero(t, exceeded)
		require.Equal(t, body, got)
	}
}

// What follows the list takes of the same limit.
func TestTruncatedAnswerIsNeverLongerThanItsLimit(t *testing.T) {
	for _, limit := range []int64{400, 2000, 20_000, 100_000, 1 << 20} {
		truncations, breaks := 0, 0
		list := `{"status":"success","data":{"result":[{}` + strings.Repeat(`,{"a":"b"}`, int(limit)/10) + `],"stats":"`
		for rest := 0; rest < tailBytes+500; rest += 1 + min(int(limit), tailBytes)/40 {
			got, exceeded, err := truncated(list+strings.Repeat("s", rest)+`"}}`, limit, maxHeld, whole)
			require.LessOrEqual(t, int64(len(got)), limit)
			require.Equal(t, 1, exceeded)
			if err != nil {
				require.ErrorIs(t, err, ErrTooLarge)
				breaks++
				continue
			}
			require.True(t, json.Valid([]byte(got)))
			truncations++
		}
		require.Greater(t, truncations, 10)
		require.Positive(t, breaks)
	}
}

func TestWarningsOfTheServerFarBehindALongListAreToldToBeLost(t *testing.T) {
	for _, form := range []string{`{"data":[%s]%s`, `{"data":{"result":[%s]}%s`} {
		body := fmt.Sprintf(form, `{}`+strings.Repeat(`,{"a":"aaaaaaaaa"}`, 200_000), `,"warnings":["a store did not answer"],"infos":["i"]}`)
		for limit, want := range map[int64][]string{
			1 << 20: {"cut", "promguard did not read what follows the list, such as warnings of the server: the answer is too long"},
			3 << 20: {"cut", "a store did not answer"},
		} {
			lost := 0
			got, err := io.ReadAll(New(io.NopCloser(strings.NewReader(body)), Options{Limit: limit, Truncated: "cut", Exceeded: func() {}, Lost: func() { lost++ }}))
			require.NoError(t, err)
			var e envelopeOf[any]
			require.NoError(t, json.Unmarshal(got, &e))
			require.Equal(t, want, e.Warnings)
			require.Equal(t, len(e.Infos) == 0, lost == 1)
			require.LessOrEqual(t, lost, 1)
		}
	}
}

// Metadata is a map of what metrics are called.
func TestMetricCalledResultIsNoList(t *testing.T) {
	body := `{"status":"success","data":{"a":[{"type":"gauge"}],"result":[{"type":"counter"}` + strings.Repeat(`,{"type":"gauge"}`, 1000) + `],"z":[{"type":"gauge"}]}}`
	for limit := int64(5000); limit < 25_000; limit += 1000 {
		e := New(io.NopCloser(strings.NewReader(body)), Options{Limit: limit, Truncated: "cut", Exceeded: func() {}, IsMap: true, Lost: func() {}})
		got, err := io.ReadAll(e)
		if limit < int64(len(body)) {
			require.ErrorIs(t, err, ErrTooLarge)
			require.True(t, e.TooLarge())
			continue
		}
		require.NoError(t, err)
		require.Equal(t, body, string(got))
	}
}

func TestEntryThatIsLargerThanWhatIsHeldBreaksTheAnswerOff(t *testing.T) {
	body := `{"data":["a","` + strings.Repeat("b", 100_000) + `"]}`
	_, exceeded, err := truncated(body, 80_000, 1000, whole)
	require.ErrorIs(t, err, ErrTooLarge)
	require.Equal(t, 1, exceeded)
	got, exceeded, err := truncated(body, 200_000, 1000, whole)
	require.NoError(t, err)
	require.Zero(t, exceeded)
	require.Equal(t, body, got)
}

// FuzzTruncate compares with what encoding/json makes of an answer before and
// after it was truncated.
func FuzzTruncate(f *testing.F) {
	for _, seed := range []string{
		matrix(5), `{"data":["a","b"]}`, `{"data":{"result":[1,"2"]}}`, `{"data":{"result":[{}, {}]}}`, `[1]`, `{"data":[[[]],{}]} `, `{"data":{"data":[1]}}`,
		`{"data":["\"],",{"a":"}\\"},[[",]"]],null , -1e5]}`, `{"warnings":["w"],"data":[1,2]}`, `{"data":[{"a":"b","c":"]},{"},{"d":["e"]},["x",["y"]],"z",null,{"e":{"f":1}},"}"]}`, `{"data":[1,2],"warnings":[ ]}`, `{"data":{"result":[{"a":[{}]},{"b":"{"}],"x":[1]},"warnings":null}`,
	} {
		f.Add(seed, int64(60), int64(20))
		f.Add(seed, int64(len(seed)), int64(1))
	}
	f.Fuzz(func(t *testing.T, body string, limit, maxHeld int64) {
		if limit < 2 || limit > 1<<30 || maxHeld < 0 || maxHeld > 1<<30 {
			return
		}
		got, exceeded, err := truncated(body, limit, maxHeld, whole)
		require.LessOrEqual(t, exceeded, 1)
		require.LessOrEqual(t, int64(len(got)), limit)
		bytewise, exceededBytewise, errBytewise := truncated(body, limit, maxHeld, iotest.OneByteReader)
		if exceeded == 0 {
			require.NoError(t, err)
			require.Equal(t, body, got, "nothing is changed")
			return
		}
		if err != nil || !json.Valid([]byte(body)) {
			return
		}
		requireTruncated(t, body, got)
		if exceededBytewise == 1 && errBytewise == nil && json.Valid([]byte(body)) {
			requireTruncated(t, body, bytewise)
		}
	})
}

// requireTruncated checks that got is the envelope of body with a shorter list,
// and the warning.
func requireTruncated(t *testing.T, body, got string) {
	t.Helper()
	var before, after map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(body), &before))
	require.NoError(t, json.Unmarshal([]byte(got), &after), got)
	require.Contains(t, string(after[warningsKey]), `"cut"`)
	if strings.Count(body, `"data"`) != 1 || strings.Count(body, `"result"`) > 1 || strings.Contains(body, `\u`) {
		return // Of two members with one key it is not said which counts.
	}
	requirePrefix(t, before["data"], after["data"])
}

func requirePrefix(t *testing.T, before, after json.RawMessage) {
	t.Helper()
	var some, all []json.RawMessage
	if json.Unmarshal(before, &all) == nil {
		require.NoError(t, json.Unmarshal(after, &some))
		require.LessOrEqual(t, len(some), len(all))
		for i := range some {
			require.Equal(t, string(all[i]), string(some[i]))
		}
		return
	}
	var data, cut map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(before, &data))
	require.NoError(t, json.Unmarshal(after, &cut))
	requirePrefix(t, data["result"], cut["result"])
}

// No other place is left for the warning that entries are left out.
func TestAnswerWithItsWarningsInFrontIsNotTruncatedInSilence(t *testing.T) {
	const warnings = `{"status":"success","warnings":["of the server"],`
	long := `"data":["` + strings.Repeat(`a","`, 100_000) + `"]}`
	got, exceeded, err := truncated(warnings+long, 10_000, maxHeld, whole)
	require.ErrorIs(t, err, ErrTooLarge)
	require.Equal(t, 1, exceeded)
	require.False(t, json.Valid([]byte(got)))
	short := warnings + `"data":["a"]}`
	got, exceeded, err = truncated(short, 10_000, maxHeld, whole)
	require.NoError(t, err)
	require.Zero(t, exceeded)
	require.Equal(t, short, got)
}

// The bodies are of about the same length; what differs is how many bytes of them
// matter.
func BenchmarkTruncator(b *testing.B) {
	values := strings.TrimSuffix(strings.Repeat(`[1700000000,"1234.5"],`, 1000), ",")
	buckets := strings.TrimSuffix(strings.Repeat(`[0,"0.5","1","12"],`, 40), ",")
	for name, entry := range map[string]string{
		"matrix":     `{"metric":{"__name__":"http_requests_total","job":"api","instance":"10.0.0.1:9090"},"values":[` + values + `]}`,
		"vector":     `{"metric":{"__name__":"http_requests_total","job":"api","instance":"10.0.0.1:9090","path":"/api/v1/query"},"value":[1700000000,"1234.5"]}`,
		"histograms": `{"metric":{"job":"api"},"histograms":[[1700000000,{"count":"5","sum":"5","buckets":[` + buckets + `]}]]}`,
		"series":     `{"__name__":"http_requests_total","job":"api","instance":"10.0.0.1:9090","namespace":"monitoring","pod":"prometheus-k8s-0"}`,
		"texts":      `"10.0.0.1:9090"`,
		"escapes":    `{"__name__":"x","path":"^/api/v1\\.(query|query_range)\\/[a-z]+\\.json$","job":"api"}`,
	} {
		list := `[` + strings.TrimSuffix(strings.Repeat(entry+",", 16<<20/len(entry)), ",") + `]`
		body := []byte(`{"status":"success","data":{"resultType":"matrix","result":` + list + `}}`)
		if name == "series" || name == "texts" {
			body = []byte(`{"status":"success","data":` + list + `}`)
		}
		for how, limit := range map[string]int64{"far": 1 << 40, "near": int64(len(body)) + 1<<20} {
			b.Run(name+"/limit="+how, func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				buf := make([]byte, 64<<10)
				for b.Loop() {
					r := New(io.NopCloser(bytes.NewReader(body)), Options{Limit: limit, Truncated: "cut", Exceeded: func() {}, Lost: func() {}})
					if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
