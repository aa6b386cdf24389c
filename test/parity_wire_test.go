// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// request is sent as it stands, so that no client corrects what is malformed.
type request struct {
	method string
	// target is the path and the query, without the server's route prefix.
	target string
	// headers are whole lines. Host, Content-Length and Connection are added.
	headers []string
	body    string
	// http10 asks in HTTP/1.0.
	http10 bool
	// endless says that the answer has no end: the notifications that there are and what
	// comes in a moment after them is compared.
	endless bool
}

func (r request) path() string {
	path, _, _ := strings.Cut(r.target, "?")
	return path
}

// String is the request on one line, to be told from others by.
func (r request) String() string {
	s := r.method + " " + r.target
	for _, h := range r.headers {
		s += " [" + h + "]"
	}
	if r.http10 {
		s += " HTTP/1.0"
	}
	if r.body != "" {
		s += fmt.Sprintf(" < %.120q", r.body)
	}
	return s
}

func (r request) wire(prefix string) []byte {
	var b bytes.Buffer
	version := "1.1"
	if r.http10 {
		version = "1.0"
	}
	fmt.Fprintf(&b, "%s %s%s HTTP/%s\r\nHost: prometheus.test\r\nConnection: close\r\n", r.method, prefix, r.target, version)
	for _, h := range r.headers {
		b.WriteString(h + "\r\n")
	}
	if r.body != "" || r.method == http.MethodPost || r.method == http.MethodPut {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.body))
	}
	b.WriteString("\r\n" + r.body)
	return b.Bytes()
}

// reply is an answer taken apart, with nothing left out but the date.
type reply struct {
	status  string // With the protocol.
	headers []string
	body    string
	trailer string
	// broken says how the answer ended, if it ended before its end.
	broken string
}

const (
	replyTimeout   = patience
	endlessTimeout = 300 * time.Millisecond
)

func send(t *testing.T, address, prefix string, r request) reply {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(replyTimeout)))
	// A server may answer, and close, before it has read a request to its end.
	_, _ = conn.Write(r.wire(prefix))
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: r.method})
	if err != nil {
		return reply{broken: err.Error()}
	}
	defer resp.Body.Close()
	events := 0
	if r.endless {
		events = strings.Count(send(t, address, prefix, request{method: http.MethodGet, target: api + "/notifications"}).body, `"text":`)
	}
	var body strings.Builder
	reader := bufio.NewReader(resp.Body)
	for range 2 * events { // Lines: one is empty.
		line, _ := reader.ReadString('\n')
		body.WriteString(line)
	}
	if r.endless {
		require.NoError(t, conn.SetDeadline(time.Now().Add(endlessTimeout)))
	}
	_, err = reader.WriteTo(&body)
	a := reply{status: resp.Proto + " " + resp.Status, body: body.String()}
	if err != nil && (!r.endless || !errors.Is(err, os.ErrDeadlineExceeded)) {
		a.broken = err.Error()
	}
	for _, te := range resp.TransferEncoding {
		a.headers = append(a.headers, "Transfer-Encoding: "+te)
	}
	for name, values := range resp.Header {
		if name == "Date" {
			continue
		}
		for _, v := range values {
			a.headers = append(a.headers, name+": "+v)
		}
	}
	slices.Sort(a.headers)
	a.trailer = fmt.Sprint(resp.Trailer)
	return a
}

// difference says where two answers differ, or "".
func (want reply) difference(got reply) string {
	var out []string
	part := func(name, want, got string) {
		if want != got {
			out = append(out, fmt.Sprintf("%s: %s", name, firstDifference(want, got)))
		}
	}
	part("status", want.status, got.status)
	part("headers", strings.Join(want.headers, "\n"), strings.Join(got.headers, "\n"))
	part("body", want.body, got.body)
	part("trailer", want.trailer, got.trailer)
	part("end", want.broken, got.broken)
	return strings.Join(out, "; ")
}

// firstDifference shows two texts around the place where they part.
func firstDifference(want, got string) string {
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	window := func(s string) string { return s[max(0, min(at, len(s))-60):min(len(s), at+160)] }
	return fmt.Sprintf("at byte %d of %d and %d, %q became %q", at, len(want), len(got), window(want), window(got))
}
