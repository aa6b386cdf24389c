// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// injectWarnings makes the body of res carry warnings, which Grafana shows as
// notices, and reports whether it could. It streams: the answer is neither held
// in memory nor decoded.
func injectWarnings(res *http.Response, warnings []string) bool {
	if res.StatusCode/100 != 2 || !isPlain(res) || !isJSON(res) {
		return false
	}
	items := warningItems(warnings)
	res.Header.Del("Content-Length")
	res.ContentLength = -1
	res.Body = &warningReader{src: res.Body, items: func() []byte { return items }}
	return true
}

func isPlain(res *http.Response) bool {
	encoding := res.Header.Get("Content-Encoding")
	return encoding == "" || encoding == "identity"
}

func isJSON(res *http.Response) bool {
	return strings.HasPrefix(res.Header.Get("Content-Type"), "application/json")
}

// warningItems writes warnings as JSON strings with commas between them.
func warningItems(warnings []string) []byte {
	list, err := json.Marshal(warnings)
	if err != nil { // Strings always marshal.
		panic(err)
	}
	return list[1 : len(list)-1]
}

// truncateWithWarning bounds an envelope, and adds the warning if that leaves
// something out.
func truncateWithWarning(body io.ReadCloser, limit int64, warning string, exceeded func()) io.ReadCloser {
	t := newTruncator(body, limit, exceeded)
	return &warningReader{src: t, items: func() []byte {
		if !t.truncated {
			t.unsaid = true
			return nil
		}
		return warningItems([]string{warning})
	}}
}

// warningReader reads a JSON object and adds items to its top-level array
// "warnings", or that array with the items if there is none. It follows strings
// and nesting, byte by byte, and passes anything that is no object on as it is.
type warningReader struct {
	src   io.ReadCloser
	items func() []byte // JSON strings with commas between them, as known at the end of data

	in   [16 << 10]byte
	out  bytes.Buffer
	err  error
	done bool

	depth     int
	inString  bool
	escaped   bool
	wantKey   bool   // at depth 1: the next string is a key
	key       []byte // the key being read or just read, cut to what matters
	members   bool   // the object has at least one
	needComma bool   // behind the items, unless the array ends here
}

const warningsKey = "warnings"

// Read implements io.Reader.
func (w *warningReader) Read(p []byte) (int, error) {
	for w.out.Len() == 0 {
		if w.err != nil {
			return 0, w.err
		}
		n, err := w.src.Read(w.in[:])
		w.err = err
		w.copy(w.in[:n])
	}
	return w.out.Read(p)
}

// Close implements io.Closer.
func (w *warningReader) Close() error { return w.src.Close() }

func (w *warningReader) copy(chunk []byte) {
	for i := range chunk {
		if w.done && !w.needComma {
			w.out.Write(chunk[i:])
			return
		}
		c := chunk[i]
		if w.inString {
			w.stringByte(c)
		} else {
			w.structureByte(c)
		}
		w.out.WriteByte(c)
		if c == '[' && !w.inString && w.depth == 2 && !w.done && string(w.key) == warningsKey {
			items := w.items()
			w.out.Write(items)
			w.done, w.needComma = true, len(items) > 0
		}
	}
}

func (w *warningReader) stringByte(c byte) {
	switch {
	case w.escaped:
		w.escaped = false
	case c == '\\':
		w.escaped = true
	case c == '"':
		w.inString = false
		return
	}
	if w.wantKey && len(w.key) <= len(warningsKey) {
		w.key = append(w.key, c)
	}
}

// structureByte handles c outside strings, and writes what belongs before it.
func (w *warningReader) structureByte(c byte) {
	if w.needComma && c != ' ' && c != '\n' && c != '\t' && c != '\r' {
		if c != ']' {
			w.out.WriteByte(',')
		}
		w.needComma = false
	}
	switch c {
	case '"':
		w.inString = true
		if w.depth == 1 {
			w.members = true
		}
		if w.wantKey {
			w.key = w.key[:0]
		}
	case ':':
		w.wantKey = false
	case ',':
		w.wantKey = w.depth == 1
	case '{', '[':
		w.depth++
		w.wantKey = c == '{' && w.depth == 1
		if c == '[' && w.depth == 1 {
			w.done = true // An array at the top: nowhere to put a warning.
		}
	case ']', '}':
		w.depth--
		if c == '}' && w.depth == 0 && !w.done {
			w.addArray()
		}
	}
}

func (w *warningReader) addArray() {
	w.done = true
	items := w.items()
	if len(items) == 0 {
		return
	}
	if w.members {
		w.out.WriteByte(',')
	}
	w.out.WriteString(`"` + warningsKey + `":[`)
	w.out.Write(items)
	w.out.WriteByte(']')
}
