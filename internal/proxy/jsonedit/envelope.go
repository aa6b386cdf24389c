// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package jsonedit

// The steps of an editor through the envelope, to its warnings.

func (e *Editor) beforeEnvelope(i int) int {
	switch c := e.chunk[i]; {
	case isSpace(c):
	case c == '{':
		e.next = (*Editor).member
	default:
		e.next = (*Editor).rest
	}
	return i + 1
}

// rest is all that is not looked at.
func (e *Editor) rest(int) int { return len(e.chunk) }

// member is between the members of the envelope.
func (e *Editor) member(i int) int {
	switch e.chunk[i] {
	case '"':
		e.key, e.next = e.key[:0], (*Editor).inKey
		e.hasMembers = true
	case '}':
		e.addWarnings(i)
		e.next = (*Editor).rest
	}
	return i + 1
}

const warningsKey = "warnings"

func (e *Editor) inKey(i int) int {
	c := e.chunk[i]
	switch {
	case e.outside.escaped:
		e.outside.escaped = false
	case c == '\\':
		e.outside.escaped = true
	case c == '"':
		e.next = (*Editor).value
		return i + 1
	}
	if len(e.key) <= len(warningsKey) {
		e.key = append(e.key, c)
	}
	return i + 1
}

// value is between a key and its value.
func (e *Editor) value(i int) int {
	switch c := e.chunk[i]; {
	case isSpace(c) || c == ':':
		return i + 1
	case c == '[' && !e.told && string(e.key) == warningsKey:
		e.insertWarnings(i + 1)
		return i + 1
	}
	return e.skip(i)
}

// skip goes on behind the value that begins at i.
func (e *Editor) skip(i int) int {
	switch e.chunk[i] {
	case '"':
		e.outside.inString, e.next = true, (*Editor).inText
	case '{':
		e.nest, e.next = nest{openBrace, closeBrace, 1}, (*Editor).nested
	case '[':
		e.nest, e.next = nest{openBracket, closeBracket, 1}, (*Editor).nested
	default:
		e.next = (*Editor).literal
	}
	return i + 1
}

func (e *Editor) inText(i int) int {
	i = e.outside.stringEnd(i)
	if !e.outside.inString {
		e.next = (*Editor).member
	}
	return i
}

func (e *Editor) nested(i int) int {
	i = e.outside.nestEnd(i, &e.nest)
	if e.nest.depth == 0 {
		e.next = (*Editor).member
	}
	return i
}

func (e *Editor) literal(i int) int {
	switch e.chunk[i] {
	case ',', '}', ']':
		e.next = (*Editor).member
		return i
	}
	return i + 1
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }
