// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostile is a corpus of requests by which a proxy that understands a
// request one way, and the server behind it another, can be got around; and of
// some that look hostile and are harmless. requests.jsonl holds one a line, for
// every language to read. The limits on parameters and on the bytes of a request
// are 20 and 1000 for them.
package hostile

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

//go:embed requests.jsonl
var requests []byte

// Request is what is sent, and what should come of it.
type Request struct {
	Name string `json:"name"`
	// Request is sent as it is: each character is one byte, up to U+00FF.
	Request string `json:"request"`
	// Status is that of the answer, and Says is contained in its body.
	Status int    `json:"status"`
	Says   string `json:"says"`
	// NetHTTP is set if Go's HTTP server answers it, before any handler.
	NetHTTP bool `json:"net_http"`
	// Sees is what the upstream server gets to see; nil if it sees nothing. Lacks
	// names headers that it does not.
	Sees *struct {
		Method string              `json:"method"`
		Target string              `json:"target"`
		Params map[string][]string `json:"params"`
	} `json:"sees"`
	Lacks []string `json:"lacks"`
}

// Requests returns the corpus.
func Requests() ([]Request, error) {
	var list []Request
	dec := json.NewDecoder(bytes.NewReader(requests))
	dec.DisallowUnknownFields()
	for dec.More() {
		var r Request
		if err := dec.Decode(&r); err != nil {
			return nil, fmt.Errorf("request %d: %w", len(list)+1, err)
		}
		list = append(list, r)
	}
	return list, nil
}

// Bytes returns what is sent.
func (r *Request) Bytes() []byte {
	var out []byte
	for _, c := range r.Request {
		out = append(out, byte(c))
	}
	return out
}

// Answer is a whole answer.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Send sends the request to the server at address, over a connection of its own.
func (r *Request) Send(address string) (Answer, error) {
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return Answer{}, err
	}
	if _, err := conn.Write(r.Bytes()); err != nil {
		return Answer{}, err
	}
	method, _, _ := strings.Cut(r.Request, " ")
	in := bufio.NewReader(conn)
	for {
		res, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return Answer{}, err
		}
		if res.StatusCode < http.StatusOK {
			continue // 100 Continue: the rest is sent already.
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		return Answer{res.StatusCode, res.Header, string(body)}, err
	}
}
