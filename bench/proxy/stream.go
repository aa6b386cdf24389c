// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// streamOptions are those of the subcommand stream.
type streamOptions struct {
	count  int
	bytes  int64
	bodies []string
}

// bodies are kinds of long answers: an endpoint, and an entry of its list.
var bodies = map[string]struct{ path, entry string }{
	"matrix": {
		"/api/v1/query_range?query=up&start=0&end=3600&step=15",
		`{"metric":{"__name__":"http_requests_total","instance":"10.0.0.1:9090","job":"api","code":"200"},"values":[` + repeat(`[1700000000,"1234.5"]`, 240) + `]}`,
	},
	"histograms": {
		"/api/v1/query_range?query=up&start=0&end=3600&step=15",
		`{"metric":{"__name__":"http_request_duration_seconds","job":"api"},"histograms":[` +
			repeat(`[1700000000,{"count":"5","sum":"5","buckets":[`+repeat(`[0,"0.5","1","12"]`, 40)+`]}]`, 240) + `]}`,
	},
	"vector": {
		"/api/v1/query?query=up",
		`{"metric":{"__name__":"http_requests_total","instance":"10.0.0.1:9090","job":"api","code":"200"},"value":[1700000000,"1234.5"]}`,
	},
	"series": {
		"/api/v1/series?match[]=up",
		`{"__name__":"http_requests_total","instance":"10.0.0.1:9090","job":"api","namespace":"monitoring","pod":"prometheus-k8s-0","container":"prometheus"}`,
	},
	"values": {"/api/v1/label/instance/values?match[]=up", `"10.0.0.1:9090"`},
}

// pieces are about 1 MiB of entries of each kind.
var pieces = sync.OnceValue(func() map[string][]byte {
	all := map[string][]byte{}
	for kind, body := range bodies {
		all[kind] = []byte(strings.Repeat(body.entry+",", max(1, 1<<20/len(body.entry))))
	}
	return all
})

func repeat(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }

// writeLong answers with a list of about so many bytes. It is written in large
// pieces that are made once, so that the server takes as little as can be.
func writeLong(w http.ResponseWriter, kind string, size int64) {
	w.Header().Set("Content-Type", "application/json")
	body := bodies[kind]
	head, tail := `{"status":"success","data":[`, `]}`
	if strings.HasPrefix(body.path, "/api/v1/query") {
		head, tail = `{"status":"success","data":{"resultType":"matrix","result":[`, `]}}`
	}
	piece := pieces()[kind]
	_, _ = io.WriteString(w, head)
	for sent := int64(0); sent < size; sent += int64(len(piece)) {
		if _, err := w.Write(piece); err != nil {
			return // The client has enough.
		}
	}
	_, _ = io.WriteString(w, body.entry+tail)
}

// measureStream reads long answers through every target, in turn.
func measureStream(o streamOptions, stdout io.Writer) error {
	targets, stop, err := startKinds("", "server", "bare", "promguard", "promguard-truncate")
	if err != nil {
		return err
	}
	defer stop()
	writeHeader(stdout)
	for range o.count {
		for _, kind := range o.bodies {
			for _, t := range targets {
				if err := stream(t, kind, o.bytes, stdout); err != nil {
					return fmt.Errorf("%s: %s: %w", t.name, kind, err)
				}
			}
		}
	}
	return nil
}

func stream(t *target, kind string, size int64, stdout io.Writer) error {
	before, err := t.usage()
	if err != nil {
		return err
	}
	start := time.Now()
	n, err := t.read(kind, size)
	if err != nil {
		return err
	}
	took := time.Since(start)
	after, err := t.usage()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "BenchmarkStream/body=%s/proxy=%s 1 %d ns/op %.1f MB/s %.2f cpu-ns/B %d peak-rss-bytes\n", kind, t.name,
		took.Nanoseconds(), float64(n)/1e6/took.Seconds(), float64((after.CPU-before.CPU).Nanoseconds())/float64(n), after.PeakRSS)
	return nil
}

// read reads one long answer and checks that it is whole.
func (t *target) read(kind string, size int64) (int64, error) {
	req, err := http.NewRequest(http.MethodGet, t.url+bodies[kind].path, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set(longHeader, kind+" "+strconv.FormatInt(size, 10))
	res, err := t.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, res.Body, make([]byte, 256<<10))
	if err == nil && (res.StatusCode != http.StatusOK || n < size) {
		err = fmt.Errorf("answered %s with %d bytes", res.Status, n)
	}
	return n, err
}

// longHeader tells the upstream server to give a long answer: its kind and size.
const longHeader = "X-Bench-Long"
