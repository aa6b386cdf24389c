// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package jsonedit

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
)

// items writes texts as JSON strings with commas between them.
func items(texts []string) []byte {
	if len(texts) == 0 {
		return nil
	}
	list, _ := json.Marshal(texts) // Strings always marshal.
	return list[1 : len(list)-1]
}

// insertWarnings puts them in front of those of the server, which begin at i.
func (e *Editor) insertWarnings(i int) {
	e.send(i)
	e.insert(e.warnings)
	e.told, e.needComma, e.next = true, len(e.warnings) > 0, (*Editor).firstWarning
}

func (e *Editor) firstWarning(i int) int {
	c := e.chunk[i]
	if isSpace(c) {
		return i + 1
	}
	if e.needComma && c != ']' {
		e.send(i)
		e.insert([]byte{','})
	}
	e.nest, e.next = nest{openBracket, closeBracket, 1}, (*Editor).nested
	if e.seen != nil {
		e.next = (*Editor).serversWarnings
	}
	return i
}

// maxSeen is how much is kept of the warnings of the server.
const maxSeen = 16 << 10

// serversWarnings keeps the warnings of the server until they are whole.
func (e *Editor) serversWarnings(i int) int {
	end := e.outside.nestEnd(i, &e.nest)
	e.texts = append(e.texts, e.chunk[i:min(end, i+maxSeen-len(e.texts))]...)
	if e.nest.depth == 0 {
		e.seen(decodeStrings(e.texts))
		e.texts, e.next = nil, (*Editor).member
	}
	return end
}

// decodeStrings returns the strings of a JSON array without its first bracket, up to where it
// is cut.
func decodeStrings(text []byte) (list []string) {
	d := json.NewDecoder(io.MultiReader(strings.NewReader("["), bytes.NewReader(text)))
	_, _ = d.Token()
	for d.More() {
		var s string
		if d.Decode(&s) != nil {
			break
		}
		list = append(list, s)
	}
	return list
}

// addWarnings puts them before the end of the envelope at i.
func (e *Editor) addWarnings(i int) {
	if e.told || len(e.warnings) == 0 {
		return
	}
	e.told = true
	e.send(i)
	if e.hasMembers {
		e.insert([]byte{','})
	}
	e.insert([]byte(`"` + warningsKey + `":[`))
	e.insert(e.warnings)
	e.insert([]byte{']'})
}
