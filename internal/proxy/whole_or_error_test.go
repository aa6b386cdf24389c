// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
)

func gzipped(t testing.TB, text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.WriteString(z, text)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.Bytes()
}

// TestAnAnswerThatBreaksAtTheServerIsWholeOrAnErrorToTheClient breaks answers of the server
// before and after their first byte. A client that reads to the end and decompresses gets
// the whole answer or an error, whatever promguard does with the answer.
func TestAnAnswerThatBreaksAtTheServerIsWholeOrAnErrorToTheClient(t *testing.T) {
	exposition := strings.Repeat("up{job=\"api\"} 1 1700000000000\n", 5000)
	list := `{"status":"success","data":["a"` + strings.Repeat(`,"label"`, 20_000) + `]}`
	whole := map[string]string{
		"/federate?match[]=up": exposition, "/api/v1/labels": list, "/api/v1/label/pod/values": list, "/api/v1/series?match[]=up": list,
		"/api/v1/metadata": list, "/api/v1/query?query=up": matrix(4000), "/api/v1/rules": list[:1000] + `"]}`,
	}
	var (
		breakAt   int
		hasLength bool
		always    bool // Compressed, whatever is asked for.
	)
	server := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		uri := r.URL.RequestURI()
		for path, text := range whole {
			if bare, _, _ := strings.Cut(path, "?"); !strings.HasPrefix(uri, bare) {
				continue
			}
			w.Header().Set("Content-Type", "application/json")
			if strings.HasPrefix(uri, "/federate") {
				w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			}
			body := []byte(text)
			if always || r.Header.Get("Accept-Encoding") == "gzip" {
				w.Header().Set("Content-Encoding", "gzip")
				body = gzipped(t, text)
			}
			if hasLength {
				w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			}
			if breakAt < 0 {
				_, _ = w.Write(body)
				return
			}
			_, _ = w.Write(body[:len(body)*breakAt/100])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	enforced := func(o *querylimit.Options) {
		o.Responses.Mode = querylimit.ModeEnforce
		for _, c := range querylimit.Classes() {
			o.Responses.Classes[c].Max = 1 << 20
		}
	}
	answered := 0
	for name, g := range map[string]*testProxy{
		"passes":   newProxy(t, server.URL, nil, opened),
		"measured": newProxy(t, server.URL, enforced, opened),
		"warned":   newProxy(t, server.URL, func(o *querylimit.Options) { o.Selectivity, o.EqualityLabels = querylimit.ModeWarn, nil }, opened),
		"partial":  newProxy(t, server.URL, nil, opened, func(o *Options) { o.Kind = upstream.KindThanos }),
		"shared":   newProxy(t, server.URL, nil, opened, func(o *Options) { o.Policy.Collapse = true }),
	} {
		for _, encoding := range []string{"identity", "gzip"} {
			for path, want := range whole {
				for _, hasLength = range []bool{false, true} {
					for _, always = range []bool{false, true} {
						for _, breakAt = range []int{-1, 0, 1, 50, 99, 100} {
							where := fmt.Sprintf("%s: %s %s length=%t compressed=%t, breaks at %d %%", name, encoding, path, hasLength, always, breakAt)
							got, err := askAll(g, path, encoding)
							if err == nil {
								requireSame(t, want, got, where)
								require.True(t, breakAt < 0 || breakAt == 100 && hasLength, where)
								answered++
							}
						}
					}
				}
			}
		}
	}
	require.Greater(t, answered, 5*2*len(whole), "most that do not break are answered")
}

// requireSame says that an answer has all data; warnings may have been added.
func requireSame(t *testing.T, want, got, where string) {
	t.Helper()
	if want == got {
		return
	}
	var a, b struct{ Data json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(want), &a), where)
	require.NoError(t, json.Unmarshal([]byte(got), &b), where)
	require.Equal(t, string(a.Data), string(b.Data), where)
}

// askAll reads an answer as clients do.
func askAll(g *testProxy, path, encoding string) (string, error) {
	req, err := http.NewRequest(http.MethodGet, g.URL+path, http.NoBody)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept-Encoding", encoding)
	res, err := g.Client().Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%d %s", res.StatusCode, body)
	}
	if res.Header.Get("Content-Encoding") != "gzip" {
		return string(body), nil
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	body, err = io.ReadAll(z)
	return string(body), err
}
