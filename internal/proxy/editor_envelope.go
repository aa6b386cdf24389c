// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

// The steps of an editor through the envelope, to its list and its warnings.

func (e *editor) beforeEnvelope(i int) int {
	switch c := e.chunk[i]; {
	case isSpace(c):
	case c == '{':
		e.level, e.next = 1, (*editor).member
	default:
		e.next = (*editor).rest
	}
	return i + 1
}

// rest is all that is not looked at.
func (e *editor) rest(int) int { return len(e.chunk) }

// member is between the members of the envelope or its data.
func (e *editor) member(i int) int {
	switch e.chunk[i] {
	case '"':
		e.key, e.next = e.key[:0], (*editor).inKey
		e.hasMembers = true
	case '}':
		e.level--
		if e.level == 0 {
			e.addWarnings(i)
			e.next = (*editor).rest
		}
	}
	return i + 1
}

const warningsKey = "warnings"

func (e *editor) inKey(i int) int {
	c := e.chunk[i]
	switch {
	case e.outside.escaped:
		e.outside.escaped = false
	case c == '\\':
		e.outside.escaped = true
	case c == '"':
		e.next = (*editor).value
		return i + 1
	}
	if len(e.key) <= len(warningsKey) {
		e.key = append(e.key, c)
	}
	return i + 1
}

// value is between a key and its value.
func (e *editor) value(i int) int {
	e.behind = (*editor).member
	switch c := e.chunk[i]; {
	case isSpace(c) || c == ':':
		return i + 1
	case c == '{' && e.bounded && !e.isMap && e.isKey(1, "data"):
		e.level, e.next = 2, (*editor).member
		return i + 1
	case c == '[' && e.bounded && (e.isKey(1, "data") || e.isKey(2, "result")):
		e.next = (*editor).firstEntry
		return i + 1
	case c == '[' && !e.told && e.isKey(1, warningsKey):
		e.insertWarnings(i + 1)
		return i + 1
	}
	return e.skip(i)
}

func (e *editor) isKey(level int, key string) bool { return e.level == level && string(e.key) == key }

// skip goes on behind the value that begins at i.
func (e *editor) skip(i int) int {
	switch e.chunk[i] {
	case '"':
		e.outside.inString, e.next = true, (*editor).inText
	case '{':
		e.nest, e.next = nest{openBrace, closeBrace, 1}, (*editor).nested
	case '[':
		e.nest, e.next = nest{openBracket, closeBracket, 1}, (*editor).nested
	default:
		e.next = (*editor).literal
	}
	return i + 1
}

func (e *editor) inText(i int) int {
	i = e.outside.stringEnd(i)
	if !e.outside.inString {
		e.next = e.behind
	}
	return i
}

func (e *editor) nested(i int) int {
	i = e.outside.nestEnd(i, &e.nest)
	if e.nest.depth == 0 {
		e.next = e.behind
	}
	return i
}

func (e *editor) literal(i int) int {
	switch e.chunk[i] {
	case ',', '}', ']':
		e.next = e.behind
		return i
	}
	return i + 1
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }
