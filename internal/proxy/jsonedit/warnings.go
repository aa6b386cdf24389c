// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package jsonedit

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
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

// added returns the warnings to add.
func (e *Editor) added() []byte {
	if !e.truncated {
		return e.warnings
	}
	if len(e.warnings) == 0 {
		return e.more
	}
	return bytes.Join([][]byte{e.warnings, e.more}, []byte{','})
}

// insertWarnings puts them in front of those of the server, which begin at i.
func (e *Editor) insertWarnings(i int) {
	e.send(i)
	items := e.added()
	e.insert(items)
	e.told, e.needComma, e.next = true, len(items) > 0, (*Editor).firstWarning
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
	if text := e.appendWarnings(nil); len(text) > 0 {
		e.send(i)
		e.insert(text)
	}
}

func (e *Editor) appendWarnings(to []byte) []byte {
	items := e.added()
	if e.told || len(items) == 0 {
		return to
	}
	e.told = true
	if e.hasMembers {
		to = append(to, ',')
	}
	to = append(to, `"`+warningsKey+`":[`...)
	return append(append(to, items...), ']')
}

// unreadWarning says what closeEnvelope leaves out, as a JSON string.
const unreadWarning = `"promguard did not read what follows the list, such as warnings of the server: the answer is too long"`

// closeEnvelope ends the answer, as if nothing followed the list.
func (e *Editor) closeEnvelope() {
	text := []byte("]")
	if e.level == 2 {
		text = append(text, '}')
	}
	e.more = slices.Concat(e.more, []byte{','}, []byte(unreadWarning))
	e.insert(append(e.appendWarnings(text), '}'))
	if !e.ended {
		e.lost()
		e.ended, e.err = true, io.EOF
	}
}
