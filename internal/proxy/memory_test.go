// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/admission"
	"github.com/promguard/promguard/internal/proxy/upstream"
)

func TestRequestsTogetherTakeNoMoreMemoryThanTheServerHas(t *testing.T) {
	begun, end := make(chan struct{}, 10), make(chan struct{})
	finish := sync.OnceFunc(func() { close(end) })
	behind := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "status/tsdb"):
			fmt.Fprint(w, `{"status":"success","data":{"headStats":{"numSeries":400000,"minTime":1},"seriesCountByMetricName":[{"name":"heavy","value":69000},{"name":"heaviest","value":200000},{"name":"up","value":5}]}}`)
		case r.URL.Path == "/metrics":
			fmt.Fprint(w, "process_resident_memory_bytes 1.5e9\ngo_gc_gomemlimit_bytes 2e9\n")
		case strings.Contains(r.FormValue("query"), "heavy"):
			begun <- struct{}{}
			<-end
			fallthrough
		default:
			io.WriteString(w, `{"status":"success"}`)
		}
	})
	root, err := url.Parse(behind.URL)
	require.NoError(t, err)
	g := newProxy(t, behind.URL, nil, func(o *Options) {
		o.Pool = upstream.NewPool(upstream.Options{
			URLs: []*url.URL{root}, Probe: upstream.ProbeWarn, Transport: o.Transport, Registerer: prometheus.NewRegistry(), Logger: promslog.NewNopLogger(),
		})
		o.Policy.Admission = admission.DefaultOptions()
		o.Policy.Admission.Wait = 50 * time.Millisecond
	})
	t.Cleanup(finish) // Else the servers wait for it, where the test fails before.
	require.NoError(t, g.proxy.Probe(t.Context()))
	ask := func(query string) answer { return g.get(t, "/api/v1/query?query="+url.QueryEscape(query)) }

	a := ask("count(heaviest)")
	require.Equal(t, http.StatusUnprocessableEntity, a.code)
	require.Contains(t, a.body, "Limit series: a request that reads 200000 series exceeds the 137276 allowed")
	answers := make(chan answer, 2)
	for i := range 2 { // 247 MB each, of 500.
		go func() { answers <- ask(fmt.Sprintf("count(heavy) + %d", i)) }()
		select {
		case <-begun:
		case a := <-answers:
			require.Fail(t, "it was not sent", a.body)
		}
	}
	a = ask("count(heavy) + 2")
	require.Equal(t, http.StatusServiceUnavailable, a.code)
	require.Contains(t, a.body, "requests in flight take the memory that the server has for them")
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.Equal(t, http.StatusOK, ask("up").code, "what is light passes")
	finish()
	for range 2 {
		require.Equal(t, http.StatusOK, (<-answers).code)
	}
	require.Eventually(t, func() bool { return ask("count(heavy) + 2").code == http.StatusOK }, time.Minute, time.Millisecond)
}
