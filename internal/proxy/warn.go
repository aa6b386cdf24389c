// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/json"
	"net/http"
	"strings"
)

// injectWarnings makes the body of res carry warnings, which Grafana shows as
// notices, and calls lost once if it cannot. It streams: the answer is neither
// held in memory nor decoded.
func injectWarnings(res *http.Response, warnings []string, lost func()) {
	if res.StatusCode/100 != 2 || !isPlain(res) || !isJSON(res) {
		lost()
		return
	}
	res.Header.Del("Content-Length")
	res.ContentLength = -1
	res.Body = newEditor(res.Body, warningItems(warnings), lost)
}

// isPlain looks at all encodings: those of several lines add up.
func isPlain(res *http.Response) bool {
	for _, encoding := range res.Header["Content-Encoding"] {
		if encoding != "" && !strings.EqualFold(encoding, "identity") {
			return false
		}
	}
	return true
}

// isEncoded reports whether res has this encoding and no other.
func isEncoded(res *http.Response, encoding string) bool {
	all := res.Header["Content-Encoding"]
	return len(all) == 1 && strings.EqualFold(all[0], encoding)
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
