// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package answercache

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
)

// decoded returns the body of an answer, or nil if its encoding is not known.
func (a *answer) decoded() io.Reader {
	body := bytes.NewReader(a.body)
	switch a.header.Get("Content-Encoding") {
	case "", "identity":
		return body
	case "gzip":
		if gz, err := gzip.NewReader(body); err == nil {
			return gz
		}
	}
	return nil
}

// isSuccess reports whether a text is the whole of an answer that says success and
// has data, and nothing besides that may matter: no error, no warning such as that
// something was left out, and nothing that is not known. It holds one token of the
// text at a time.
func isSuccess(text io.Reader) bool {
	dec := json.NewDecoder(text)
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	success, data := false, false
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return false
		}
		switch key {
		case "status":
			success = next(dec, "success")
			if !success {
				return false
			}
		case "isPartial": // As VictoriaMetrics says that a part of it was away.
			if !next(dec, false) {
				return false
			}
		case "data":
			data = true
			if !skip(dec) {
				return false
			}
		case "stats", "trace":
			if !skip(dec) {
				return false
			}
		default:
			return false
		}
	}
	if _, err := dec.Token(); err != nil {
		return false
	}
	_, err := dec.Token()
	return success && data && errors.Is(err, io.EOF)
}

// next reports whether the next token is the one that is wanted.
func next(dec *json.Decoder, wanted any) bool {
	t, err := dec.Token()
	return err == nil && t == wanted
}

// deepest is more than any answer nests; the decoder remembers each level.
const deepest = 1000

// skip reads a value.
func skip(dec *json.Decoder) bool {
	for depth := 0; ; {
		t, err := dec.Token()
		if err != nil || depth > deepest {
			return false
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return true
		}
	}
}
