// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package jsonedit

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestWarningIsAddedToWhatTheServerAnswered(t *testing.T) {
	const added = `"w1","w\"2"`
	for in, want := range map[string]string{
		`{"status":"success","data":[]}`:                  `{"status":"success","data":[],"warnings":[` + added + `]}`,
		`{"status":"success","data":[],"warnings":["x"]}`: `{"status":"success","data":[],"warnings":[` + added + `,"x"]}`,
		`{"warnings":[],"data":{"warnings":["y"]}}`:       `{"warnings":[` + added + `],"data":{"warnings":["y"]}}`,
		"{\"warnings\" : [ \n ] }":                        "{\"warnings\" : [" + added + " \n ] }",
		`{"data":{"warnings":["y"]}}`:                     `{"data":{"warnings":["y"]},"warnings":[` + added + `]}`,
		`{"data":"\"warnings\":[","b":"}{"}`:              `{"data":"\"warnings\":[","b":"}{","warnings":[` + added + `]}`,
		`{"data":["warnings",["x"]]}`:                     `{"data":["warnings",["x"]],"warnings":[` + added + `]}`,
		`{"warnings2":["x"],"data":"warnings"}`:           `{"warnings2":["x"],"data":"warnings","warnings":[` + added + `]}`,
		`{}`:                                              `{"warnings":[` + added + `]}`,
		"{}\n":                                            `{"warnings":[` + added + "]}\n",
		`[{"a":1}]`:                                       `[{"a":1}]`,
		`"text"`:                                          `"text"`,
		``:                                                ``,
		`{"status":"success","data":`:                     `{"status":"success","data":`,
		`{"data":"` + strings.Repeat(`\\`, 40_000) + `"}`:                `{"data":"` + strings.Repeat(`\\`, 40_000) + `","warnings":[` + added + `]}`,
		`{"data":["` + strings.Repeat(`]}{["`+`,"`, 20_000) + `"]}`:      `{"data":["` + strings.Repeat(`]}{["`+`,"`, 20_000) + `"],"warnings":[` + added + `]}`,
		`{"infos":["a"],"data":{"result":[{"metric":{"a":"b"}}]}}` + " ": `{"infos":["a"],"data":{"result":[{"metric":{"a":"b"}}]},"warnings":[` + added + `]} `,
	} {
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"whole":     func(r io.Reader) io.Reader { return r },
			"bytewise":  iotest.OneByteReader,
			"with data": iotest.DataErrReader,
		} {
			w := New(io.NopCloser(wrap(strings.NewReader(in))), Options{Warnings: []string{"w1", `w"2`}, Lost: func() {}})
			got, err := io.ReadAll(w)
			require.NoError(t, err)
			require.Equal(t, want, string(got), name)
			if json.Valid([]byte(in)) {
				require.True(t, json.Valid(got), string(got))
			}
		}
	}
}

func FuzzWarningKeepsTheAnswer(f *testing.F) {
	for _, seed := range []string{`{"status":"success","data":[]}`, `{"warnings":["a"]}`, `[1]`, `{"a":{"warnings":[]}}`, `{"a":"\\\""}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var before map[string]json.RawMessage
		if json.Unmarshal([]byte(in), &before) != nil || before == nil || strings.Contains(in, `"warnings`) || strings.Contains(in, `\u`) {
			return
		}
		got, err := io.ReadAll(New(io.NopCloser(strings.NewReader(in)), Options{Warnings: []string{"w"}, Lost: func() {}}))
		require.NoError(t, err)
		var after map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(got, &after), "%s", got)
		require.Equal(t, `["w"]`, string(after["warnings"]))
		delete(after, "warnings")
		require.Equal(t, before, after)
	})
}

func BenchmarkWarnings(b *testing.B) {
	body := []byte(`{"status":"success","data":{"resultType":"matrix","result":[` +
		strings.TrimSuffix(strings.Repeat(`{"metric":{"__name__":"up","job":"api"},"values":[[1700000000,"1"],[1700000060,"1"]]},`, 10_000), ",") + `]}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.Copy(io.Discard, New(io.NopCloser(bytes.NewReader(body)), Options{Warnings: []string{"w"}, Lost: func() {}})); err != nil {
			b.Fatal(err)
		}
	}
}

func TestWarningsOfTheServerAreToldAndPassAsTheyAre(t *testing.T) {
	long := strings.Repeat("x", maxSeen)
	for in, want := range map[string][]string{
		`{"data":{"warnings":["no"]},"warnings":["a","b]\"[","c"]}`: {"a", `b]"[`, "c"},
		`{"warnings":[ "a" ] ,"data":[]}`:                           {"a"},
		`{"warnings":[]}`:                                           nil,
		`{"warnings":["a",1,"b"]}`:                                  {"a"},
		`{"warnings":["a","` + long + `"]}`:                         {"a"},
		`{"warnings":["a"`:                                          nil,
		`{"warnings":"a"}`:                                          nil,
		`{"data":["warnings",["a"]]}`:                               nil,
	} {
		for _, wrap := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader} {
			var seen []string
			got, err := io.ReadAll(New(io.NopCloser(wrap(strings.NewReader(in))), Options{Seen: func(list []string) { seen = append(seen, list...) }}))
			require.NoError(t, err)
			require.Equal(t, in, string(got))
			require.Equal(t, want, seen, in)
		}
	}
}

// FuzzWarningsAreSeenAsTheyAreDecoded compares with a decoder that holds all of the answer.
func FuzzWarningsAreSeenAsTheyAreDecoded(f *testing.F) {
	for _, seed := range []string{`{"warnings":["a"],"data":[]}`, `{"data":{"warnings":["b"]},"warnings":["\"]"]}`, `[1]`, `{"warnings":["a"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var seen []string
		got, err := io.ReadAll(New(io.NopCloser(strings.NewReader(in)), Options{Seen: func(list []string) { seen = append(seen, list...) }}))
		require.NoError(t, err)
		require.Equal(t, in, string(got))
		var want struct{ Warnings []string }
		if json.Unmarshal([]byte(in), &want) == nil && strings.Count(strings.ToLower(in), "warnings") == 1 && len(in) < maxSeen && strings.Contains(in, `"warnings":[`) && !strings.Contains(in, `\u`) && !strings.Contains(in, "null") {
			require.ElementsMatch(t, want.Warnings, seen)
		}
	})
}
