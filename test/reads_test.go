// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// everything selects each series of the cluster.
var everything = "match[]=" + url.QueryEscape(`{job!=""}`)

// clusterServer starts the patched Prometheus on the cluster's data, whose
// samples are old, and counts them as current.
func clusterServer(t *testing.T, flags ...string) *server {
	t.Helper()
	return prometheus(t, cluster.data(t), emptyConfig, append([]string{"--query.lookback-delta=50y"}, flags...)...)
}

// apiAnswer is the API's JSON envelope.
type apiAnswer struct {
	Status    string          `json:"status"`
	Data      json.RawMessage `json:"data"`
	ErrorType string          `json:"errorType"`
	Error     string          `json:"error"`
	Warnings  []string        `json:"warnings"`
}

func envelopeOf(t *testing.T, a answer) apiAnswer {
	t.Helper()
	var e apiAnswer
	require.NoError(t, json.Unmarshal([]byte(a.body), &e), "%d %s", a.code, a.body)
	return e
}

// requireRefusal says that the answer is an error of the API that names what was
// exceeded.
func requireRefusal(t *testing.T, a answer, code int, errorType, names string) {
	t.Helper()
	require.Equal(t, code, a.code, a.body)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	e := envelopeOf(t, a)
	require.Equal(t, "error", e.Status)
	require.Equal(t, errorType, e.ErrorType)
	require.Contains(t, e.Error, names)
}

// runningRead is an element of /api/v1/status/guard/queries.
type runningRead struct {
	ID            uint64   `json:"id"`
	State         string   `json:"state"`
	Endpoint      string   `json:"endpoint"`
	Expressions   []string `json:"expressions"`
	Client        string   `json:"client"`
	UserAgent     string   `json:"userAgent"`
	Series        int64    `json:"series"`
	Bytes         int64    `json:"bytes"`
	ReservedBytes int64    `json:"reservedBytes"`
	Ended         bool     `json:"ended"`
}

const guardQueries = "/api/v1/status/guard/queries"

func runningReads(t *testing.T, s *server) []runningRead {
	t.Helper()
	a := get(t, s.url+guardQueries)
	require.Equal(t, http.StatusOK, a.code, a.body)
	var list []runningRead
	require.NoError(t, json.Unmarshal(envelopeOf(t, a).Data, &list))
	return list
}

// neverReads sends a request and leaves its answer in the connection. It returns
// when the server waits for the client, with what the server says of it.
func neverReads(t *testing.T, s *server, target string) (net.Conn, runningRead) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: test\r\nUser-Agent: never-reads\r\n\r\n", target)
	require.NoError(t, err)
	var read runningRead
	stands := 0 // Since how many looks: a busy machine may leave the server no time between two.
	eventually(t, "the server waits for the client", func() bool {
		for _, r := range runningReads(t, s) {
			if r.UserAgent == "never-reads" && r.Bytes > 0 {
				stands++
				if r.Bytes != read.Bytes {
					stands = 0
				}
				read = r
			}
		}
		return stands == 5
	})
	return conn, read
}

func call(t *testing.T, method, target string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, target, http.NoBody)
	require.NoError(t, err)
	return do(t, req)
}

func TestListsAreWholeOrRefused(t *testing.T) {
	t.Parallel()
	whole, small := clusterServer(t), clusterServer(t, "--guard.response-max-bytes=1KB")
	const values = "/api/v1/label/pod/values"
	requireRefusal(t, get(t, small.url+values), http.StatusUnprocessableEntity, "execution", "Narrow match[] or the time range, or set limit=: GET /api/v1/label/:name/values has an answer of more than")
	require.Equal(t, get(t, whole.url+"/api/v1/series?"+everything).body, get(t, small.url+"/api/v1/series?"+everything).body, "series are streamed")

	for target, n := range map[string]int{"/series?limit=7&" + everything: 7, "/label/pod/values?limit=7": 7} {
		e := envelopeOf(t, get(t, small.url+"/api/v1"+target))
		var list []json.RawMessage
		require.NoError(t, json.Unmarshal(e.Data, &list))
		require.Len(t, list, n, target)
		require.Equal(t, []string{"results truncated due to limit"}, e.Warnings, "as upstream does")
	}
}

// seriesIn returns the series of an answer of /series, as text, and fails if one
// is there twice.
func seriesIn(t *testing.T, e apiAnswer) map[string]bool {
	t.Helper()
	var list []json.RawMessage
	require.NoError(t, json.Unmarshal(e.Data, &list))
	seen := map[string]bool{}
	for _, series := range list {
		require.False(t, seen[string(series)], "twice: %s", series)
		seen[string(series)] = true
	}
	return seen
}

func TestSeriesThatSeveralSelectorsMatchComeOnce(t *testing.T) {
	t.Parallel()
	s := clusterServer(t)
	series := func(selectors ...string) map[string]bool {
		a := get(t, s.url+"/api/v1/series?"+url.Values{"match[]": selectors}.Encode())
		require.Equal(t, http.StatusOK, a.code, a.body)
		return seriesIn(t, envelopeOf(t, a))
	}
	pods, kube := series("kube_pod_info"), series(`{__name__=~"kube_pod_(info|owner)"}`)
	require.NotEmpty(t, pods)
	require.Greater(t, len(kube), len(pods))
	require.Equal(t, kube, series("kube_pod_info", `{__name__=~"kube_pod_(info|owner)"}`))
	require.Equal(t, kube, series(`{__name__=~"kube_pod_(info|owner)"}`, "kube_pod_info", "kube_pod_info"))
}

func TestAnswerThatIsTooLargeIsRefusedAndSmallOnesPass(t *testing.T) {
	t.Parallel()
	s := clusterServer(t, "--guard.read-memory-budget=16MB", "--guard.response-max-bytes=10KB")
	const api = "/api/v1"
	newest := metric(t, s.url, "prometheus_tsdb_head_max_time_seconds", nil)
	for _, target := range []string{
		api + "/query?query=" + url.QueryEscape(`{job!=""}`),
		api + "/query?query=" + url.QueryEscape(`count({job!=""})`),
		api + fmt.Sprintf("/query_range?start=%f&end=%f&step=15&query=", newest-30, newest) + url.QueryEscape(`{job!=""}`),
	} {
		requireRefusal(t, get(t, s.url+target), http.StatusUnprocessableEntity, "execution", "--guard.read-memory-budget=16MiB")
	}
	federated := get(t, s.url+"/federate?"+everything)
	require.Equal(t, http.StatusUnprocessableEntity, federated.code)
	require.Contains(t, federated.body, "--guard.read-memory-budget=16MiB")

	requireRefusal(t, get(t, s.url+api+"/query?query=kube_pod_info"), http.StatusUnprocessableEntity, "execution", "--guard.response-max-bytes=10240")
	a := get(t, s.url+api+"/query?query="+url.QueryEscape("count(kube_pod_info)"))
	require.Equal(t, http.StatusOK, a.code, a.body)
	require.Equal(t, 5.0, metric(t, s.url, "prometheus_guard_api_requests_stopped_total", map[string]string{"reason": "too_large"}))
	require.Zero(t, metric(t, s.url, "prometheus_guard_read_memory_reserved_bytes", nil), "what is refused gives back what it had")
}

// TestClientsThatDoNotReadStopNothingElse has one server to which clients come
// that never read their answer, which no rate cuts off.
func TestClientsThatDoNotReadStopNothingElse(t *testing.T) {
	t.Parallel()
	s := clusterServer(t, "--web.enable-lifecycle", "--guard.min-client-rate=off", "--guard.api-timeout=10m",
		"--guard.metadata-concurrency=1", "--guard.queue-timeout=1m", "--guard.read-memory-budget=1GB")

	t.Run("they are listed, and nobody waits for them", func(t *testing.T) {
		conn, read := neverReads(t, s, "/api/v1/series?"+everything)
		require.Equal(t, "running", read.State)
		require.Equal(t, "/api/v1/series", read.Endpoint)
		require.Equal(t, []string{`{job!=""}`}, read.Expressions)
		require.Equal(t, "127.0.0.1", read.Client)
		require.Positive(t, read.ReservedBytes)

		for _, target := range []string{"/api/v1/series?match[]=kube_pod_info", "/api/v1/query?query=1", "/api/v1/rules", "/api/v1/alerts", "/metrics", "/-/healthy", "/federate?match[]=kube_pod_info"} {
			require.Equal(t, http.StatusOK, get(t, s.url+target).code, target)
		}

		a := call(t, http.MethodDelete, fmt.Sprintf("%s%s/%d", s.url, guardQueries, read.ID))
		require.Equal(t, http.StatusOK, a.code, a.body)
		var stopped runningRead
		require.NoError(t, json.Unmarshal(envelopeOf(t, a).Data, &stopped))
		require.Equal(t, read.ID, stopped.ID)
		require.Equal(t, read.ReservedBytes, stopped.ReservedBytes)
		require.True(t, stopped.Ended, "the read has not given back what it held")
		require.Empty(t, runningReads(t, s))
		require.Equal(t, 1.0, metric(t, s.url, "prometheus_guard_api_requests_stopped_total", map[string]string{"endpoint": "/api/v1/series", "reason": "operator"}))
		requireBroken(t, conn)
		requireRefusal(t, call(t, http.MethodDelete, fmt.Sprintf("%s%s/%d", s.url, guardQueries, read.ID)),
			http.StatusNotFound, "not_found", "no request with id")
		requireRefusal(t, call(t, http.MethodDelete, s.url+guardQueries+"/first"), http.StatusBadRequest, "bad_data", `"first"`)
	})

	t.Run("a reload waits for none", func(t *testing.T) {
		conn, read := neverReads(t, s, "/federate?"+everything)
		require.Equal(t, http.StatusOK, call(t, http.MethodPost, s.url+"/-/reload").code)
		require.Equal(t, http.StatusOK, get(t, s.url+"/federate?match[]=kube_pod_info").code)
		require.Equal(t, http.StatusOK, get(t, s.url+"/api/v1/status/config").code)
		require.Equal(t, read.ID, runningReads(t, s)[0].ID, "the client still waits, unread")
		conn.Close()
		eventually(t, "the read ends with its client", func() bool { return len(runningReads(t, s)) == 0 })
	})

	t.Run("the server ends without them", func(t *testing.T) {
		neverReads(t, s, "/api/v1/series?"+everything)
		neverReads(t, s, "/federate?"+everything)
		s.stop(t)
		require.True(t, s.cmd.ProcessState.Success(), s.cmd.ProcessState)
	})
}

// requireBroken reads the connection to its end, which must not look like the
// end of an answer in chunks.
func requireBroken(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	require.Error(t, err, "a part of the answer looks like the whole")
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestClientThatReadsTooSlowlyIsCutOff(t *testing.T) {
	t.Parallel()
	s := clusterServer(t, "--guard.min-client-rate=1MB", "--guard.api-timeout=10m")
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET /api/v1/series?%s HTTP/1.1\r\nHost: test\r\n\r\n", everything)
	require.NoError(t, err)
	slow := func() float64 {
		return metric(t, s.url, "prometheus_guard_api_requests_stopped_total", map[string]string{"endpoint": "/api/v1/series", "reason": "slow"})
	}
	eventually(t, "the client is cut off", func() bool { return slow() == 1 })
	requireBroken(t, conn)
	require.Empty(t, runningReads(t, s))
	require.Equal(t, http.StatusOK, get(t, s.url+"/api/v1/series?"+everything).code, "a client that reads gets all")
	require.Equal(t, 1.0, slow())
}

func TestWhatMustNeverWaitIsServedWhateverTheConnectionsDo(t *testing.T) {
	t.Parallel()
	s := prometheus(t, t.TempDir(), emptyConfig, "--web.max-connections=3")
	http.DefaultClient.CloseIdleConnections()
	anew := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	status := func(target string) (int, http.Header) {
		resp, err := anew.Get(s.url + target)
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode, resp.Header
	}
	for range 100 {
		idle, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		require.NoError(t, err)
		defer idle.Close()
	}
	for range 3 { // Each when the connection of the one before may not be closed yet.
		code, _ := status("/api/v1/query?query=1")
		require.Equal(t, http.StatusOK, code, "idle connections make room")
	}

	ctx, end := context.WithCancel(t.Context())
	defer end()
	for range 3 {
		eventually(t, "the connections before are closed", func() bool {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/notifications/live", http.NoBody)
			require.NoError(t, err)
			live, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req) // Goes on for as long as it likes.
			require.NoError(t, err)
			t.Cleanup(func() { live.Body.Close() })
			return live.StatusCode == http.StatusOK
		})
	}
	for _, target := range []string{"/-/healthy", "/-/ready", "/metrics", "/api/v1/rules", "/api/v1/alerts", guardQueries} {
		code, _ := status(target)
		require.Equal(t, http.StatusOK, code, target)
	}
	code, header := status("/api/v1/query?query=1")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.NotEmpty(t, header.Get("Retry-After"))
	end()
	eventually(t, "the place is given back", func() bool {
		code, _ := status("/api/v1/query?query=1")
		return code == http.StatusOK
	})
}

func TestWhatIsMalformedIsRefusedInTheEnvelope(t *testing.T) {
	t.Parallel()
	s := prometheus(t, t.TempDir(), emptyConfig)
	const api = "/api/v1"
	for _, target := range []string{
		"/series?match[]=up&limit=x", "/series?match[]=up&limit=-1", "/series?match[]=up&timeout=nonsense", "/series?match[]=up&timeout=0",
		"/series?match[]={job=", "/series?match[]=%zz", "/series?match[]=a;b", "/series", "/series?match[]=up&start=x",
		"/labels?limit=x", "/labels?timeout=-1", "/labels?match[]={", "/label/job/values?limit=x", "/label/job/values?timeout=x",
		"/query?query=up&timeout=nonsense", "/query?query=up&limit=x", "/query?query=sum(", "/query?query=%zz",
		"/query_range?query=up&start=1&end=2&step=1&timeout=x", "/query_exemplars?query=up&start=x&end=1",
		"/metadata?limit=x", "/status/tsdb?limit=x", "/rules?timeout=x",
	} {
		a := get(t, s.url+api+target)
		require.Equal(t, http.StatusBadRequest, a.code, "%s: %s", target, a.body)
		require.Equal(t, "bad_data", envelopeOf(t, a).ErrorType, target)
	}
	for path, form := range map[string]string{"/series": "match[]=%zz", "/query": "query=%zz", "/labels": "limit=%zz"} {
		requireRefusal(t, post(t, s.url+api+path, form), http.StatusBadRequest, "bad_data", "")
	}
	require.Equal(t, http.StatusBadRequest, get(t, s.url+"/federate?match[]={").code)
	require.Equal(t, http.StatusForbidden, call(t, http.MethodDelete, s.url+guardQueries+"/1").code, "the lifecycle API is not enabled")
}

func TestTextThatCostsTooMuchToParseIsRefused(t *testing.T) {
	t.Parallel()
	s := prometheus(t, t.TempDir(), emptyConfig)
	for name, text := range map[string]string{
		"operators":    "1" + strings.Repeat("+1", 10_001),
		"bytes":        `{job="` + strings.Repeat("x", 1<<20) + `"}`,
		"instructions": `{job=~"` + strings.Repeat("(a{100}){10}", 301) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			a := post(t, s.url+"/api/v1/query", url.Values{"query": {text}}.Encode())
			requireRefusal(t, a, http.StatusUnprocessableEntity, "execution", "(--guard.query-text-limits)")
			require.Less(t, len(a.body), 2<<10, "the refusal does not repeat the text")
		})
	}
	require.Equal(t, 3.0, metric(t, s.url, "prometheus_guard_api_requests_stopped_total", map[string]string{"endpoint": "/api/v1/query", "reason": "text"}))
	long := "1" + strings.Repeat("+1", 1_000)
	require.Equal(t, http.StatusOK, post(t, s.url+"/api/v1/query", url.Values{"query": {long}}.Encode()).code)
}

func TestServerThatReplaysSaysSoInTheEnvelope(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	require.NoError(t, os.WriteFile(config, []byte(emptyConfig), 0o644))
	address, data := freeAddress(t), few.data(t)
	feed := holdReplay(t, data)
	s := &server{url: "http://" + address, out: newOutput(t), exited: make(chan struct{})}
	s.cmd = exec.Command(binary(t, "prometheus"), "--config.file="+config, "--storage.tsdb.path="+data,
		"--storage.tsdb.retention.time=100y", "--web.listen-address="+address)
	s.cmd.Stdout, s.cmd.Stderr = s.out.File, s.out.File
	require.NoError(t, s.cmd.Start())
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	t.Cleanup(func() { s.stop(t) })
	var first answer
	eventually(t, "the server answers", func() bool {
		resp, err := http.Get(s.url + "/api/v1/query?query=1")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		first = answer{resp.StatusCode, resp.Header, string(b)}
		return true
	})
	requireRefusal(t, first, http.StatusServiceUnavailable, "unavailable", "the server is not ready")
	feed()
	s.waitReady(t)
	require.Equal(t, http.StatusOK, get(t, s.url+"/api/v1/query?query=1").code)
}
