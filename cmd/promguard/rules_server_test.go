// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"
)

// startStrange sets STRANGE to the URL of a server below which there are, by the
// first part of the path, servers of this kind:
//
//	page       a web page, with 200
//	login      401
//	moved      a redirect to page
//	absent     404
//	half       an answer that breaks off
//	endless    one that is longer than can be read
//	partial    two metric names, and a warning that there may be more
//	slow       no answer, until the client leaves; /asked counts those that wait
func startStrange(ts *testscript.TestScript, _ bool, _ []string) {
	mux := http.NewServeMux()
	mux.HandleFunc("/page/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<!doctype html>\n<title>Grafana</title>") })
	mux.HandleFunc("/login/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "Unauthorized", http.StatusUnauthorized) })
	mux.Handle("/moved/", http.RedirectHandler("/page/", http.StatusFound))
	mux.HandleFunc("/half/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":["up"`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/endless/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":["up"`)
		for {
			if _, err := fmt.Fprint(w, strings.Repeat(`,"requests_total"`, 1000)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/partial/", func(w http.ResponseWriter, r *http.Request) {
		data := `{"result":[]}`
		if strings.HasSuffix(r.URL.Path, "/values") {
			data = `["up","container_fs_reads_total"]`
		}
		fmt.Fprintf(w, `{"status":"success","warnings":["store a is down"],"data":%s}`, data)
	})
	var asked atomic.Int64
	mux.HandleFunc("/asked", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "asked %d", asked.Load()) })
	mux.HandleFunc("/slow/", func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // Only then the server sees the client leave.
		<-r.Context().Done()
	})
	srv := httptest.NewServer(mux)
	ts.Defer(srv.Close)
	ts.Setenv("STRANGE", srv.URL)
}
