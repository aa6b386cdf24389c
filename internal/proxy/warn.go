// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/json"
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
	res.Header.Del("Content-Length")
	res.ContentLength = -1
	res.Body = newEditor(res.Body, warningItems(warnings))
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
