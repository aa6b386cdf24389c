// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// file is a text with what is to be written into it. All positions are those of
// the text as it was, which are those of its one parse.
type file struct {
	text   string // ends in an end of line, unless it is empty
	ended  bool   // as it did before
	eol    string
	starts []int // of lines, and the end of the last
	edits  []splice
}

// splice is a text in place of another. Of several at one place, what is indented
// the most comes first: it belongs to what stands before.
type splice struct {
	start, end, indent int
	text               string
}

func newFile(text string) *file {
	f := &file{text: text, eol: "\n", ended: text == "" || strings.HasSuffix(text, "\n")}
	if first, _, ok := strings.Cut(text, "\n"); ok && strings.HasSuffix(first, "\r") {
		f.eol = "\r\n"
	}
	if !f.ended {
		f.text += f.eol
	}
	f.starts = append(f.starts, 0)
	for line := range strings.Lines(f.text) {
		f.starts = append(f.starts, f.starts[len(f.starts)-1]+len(line))
	}
	return f
}

// count returns how many lines there are.
func (f *file) count() int { return len(f.starts) - 1 }

// line returns one with its end, counted from 0.
func (f *file) line(i int) string { return f.text[f.starts[i]:f.starts[i+1]] }

func (f *file) splice(start, end int, text string) {
	f.edits = append(f.edits, splice{start: start, end: end, text: text})
}

// add inserts what is missing behind so many lines.
func (f *file) add(lines int, indent string, missing *tree) {
	var b strings.Builder
	missing.lines(&b, indent, f.eol)
	at := f.starts[lines]
	f.edits = append(f.edits, splice{start: at, end: at, indent: len(indent), text: b.String()})
}

// edited returns the text with all that was written into it.
func (f *file) edited() (string, error) {
	slices.SortStableFunc(f.edits, func(a, b splice) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.indent, a.indent))
	})
	var b strings.Builder
	at, ended := 0, f.ended
	for _, s := range f.edits {
		if s.start < at {
			return "", errors.New("the file is laid out in a way that cannot be edited: two values overlap")
		}
		b.WriteString(f.text[at:s.start])
		b.WriteString(s.text)
		at = s.end
		ended = ended || s.start == len(f.text)
	}
	b.WriteString(f.text[at:])
	if !ended {
		return strings.TrimSuffix(b.String(), f.eol), nil
	}
	return b.String(), nil
}
