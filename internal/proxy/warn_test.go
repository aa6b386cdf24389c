// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/querylimit"
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
			w := newEditor(io.NopCloser(wrap(strings.NewReader(in))), []byte(added), func() {})
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
		got, err := io.ReadAll(newEditor(io.NopCloser(strings.NewReader(in)), []byte(`"w"`), func() {}))
		require.NoError(t, err)
		var after map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(got, &after), "%s", got)
		require.Equal(t, `["w"]`, string(after["warnings"]))
		delete(after, "warnings")
		require.Equal(t, before, after)
	})
}

func TestWarningThatCannotBeAddedIsCountedAndTheAnswerKept(t *testing.T) {
	body := []byte{0x1f, 0x8b, 1, 2, 3}
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("the server behind was asked for encoding %q", got)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip") // Although nobody asked.
		_, _ = w.Write(body)
	})
	g := newGuard(t, upstream.URL, func(o *querylimit.Options) { o.Selectivity = querylimit.ModeWarn })
	req := newRequest(t, http.MethodGet, g.URL, "series", "match[]=%7Ble!%3D%22%22%7D")
	req.Header.Set("Accept-Encoding", "gzip") // Set by hand, so the client does not decode it.
	a := do(t, g.Client(), req)
	require.True(t, bytes.Equal(body, []byte(a.body)))
	require.Equal(t, 1.0, g.value(t, "promguard_warnings_lost_total"))
}

func BenchmarkWarnings(b *testing.B) {
	body := []byte(`{"status":"success","data":{"resultType":"matrix","result":[` +
		strings.TrimSuffix(strings.Repeat(`{"metric":{"__name__":"up","job":"api"},"values":[[1700000000,"1"],[1700000060,"1"]]},`, 10_000), ",") + `]}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.Copy(io.Discard, newEditor(io.NopCloser(bytes.NewReader(body)), []byte(`"w"`), func() {})); err != nil {
			b.Fatal(err)
		}
	}
}
