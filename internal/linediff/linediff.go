// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package linediff writes the difference of two texts as a unified diff, which
// people can review and patch(1) applies.
package linediff

import (
	"fmt"
	"slices"
	"strings"
)

// around is how many lines that stay are shown around those that change.
const around = 3

// edit is one line of a diff: kept (' '), removed ('-') or added ('+').
type edit struct {
	op   byte
	line string
}

// Unified returns the diff of two texts, or "" if they are equal. Its size in
// memory grows with the square of the number of lines that differ.
func Unified(fromName, toName, from, to string) string {
	edits := compare(split(from), split(to))
	var b strings.Builder
	for first, last := range hunks(edits) {
		if b.Len() == 0 {
			fmt.Fprintf(&b, "--- %s\n+++ %s\n", fromName, toName)
		}
		writeHunk(&b, edits, first, last)
	}
	return b.String()
}

// split keeps the ends of lines, so that one without is not taken for another
// with it.
func split(text string) []string {
	return slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(line string) bool { return line == "" })
}

// compare finds a shortest way from one list of lines to the other, as Myers does
// (An O(ND) Difference Algorithm, 1986).
func compare(from, to []string) []edit {
	n, m := len(from), len(to)
	furthest := map[int]int{1: 0} // by diagonal x-y
	var trace []map[int]int
	for d := 0; ; d++ {
		// Only the diagonals of the step before are looked at when going back.
		trace = append(trace, lastDiagonals(furthest, d))
		for k := -d; k <= d; k += 2 {
			x := 0
			if k == -d || k != d && furthest[k-1] < furthest[k+1] {
				x = furthest[k+1]
			} else {
				x = furthest[k-1] + 1
			}
			for x < n && x-k < m && x-k >= 0 && from[x] == to[x-k] {
				x++
			}
			furthest[k] = x
			if x >= n && x-k >= m {
				return goBack(from, to, trace)
			}
		}
	}
}

func lastDiagonals(furthest map[int]int, d int) map[int]int {
	out := make(map[int]int, 2*d+3)
	for k := -d - 1; k <= d+1; k++ {
		if x, ok := furthest[k]; ok {
			out[k] = x
		}
	}
	return out
}

// goBack turns what compare found into edits.
func goBack(from, to []string, trace []map[int]int) []edit {
	var out []edit
	x, y := len(from), len(to)
	for d, furthest := range slices.Backward(trace) {
		k := x - y
		before := k - 1
		if k == -d || k != d && furthest[k-1] < furthest[k+1] {
			before = k + 1
		}
		beforeX := furthest[before]
		beforeY := beforeX - before
		for x > beforeX && y > beforeY && x > 0 && y > 0 {
			x, y = x-1, y-1
			out = append(out, edit{' ', from[x]})
		}
		if d == 0 {
			break
		}
		if x == beforeX {
			out = append(out, edit{'+', to[beforeY]})
		} else {
			out = append(out, edit{'-', from[beforeX]})
		}
		x, y = beforeX, beforeY
	}
	slices.Reverse(out)
	return out
}

// hunks yields the first and one past the last edit of each run of changes with
// the lines around it.
func hunks(edits []edit) func(yield func(first, last int) bool) {
	return func(yield func(first, last int) bool) {
		for i := 0; i < len(edits); i++ {
			if edits[i].op == ' ' {
				continue
			}
			first, last := max(i-around, 0), i+1
			for j := i; j < len(edits) && j < last+2*around; j++ {
				if edits[j].op != ' ' {
					last = j + 1
				}
			}
			i = last
			if !yield(first, min(last+around, len(edits))) {
				return
			}
		}
	}
}

func writeHunk(b *strings.Builder, edits []edit, first, last int) {
	count := func(edits []edit, other byte) (n int) {
		for _, e := range edits {
			if e.op != other {
				n++
			}
		}
		return n
	}
	position := func(before, n int) string {
		if n > 0 {
			before++ // Lines count from 1; of an empty range, the line before it is named.
		}
		return fmt.Sprintf("%d,%d", before, n)
	}
	part := edits[first:last]
	fmt.Fprintf(b, "@@ -%s +%s @@\n",
		position(count(edits[:first], '+'), count(part, '+')), position(count(edits[:first], '-'), count(part, '-')))
	for _, e := range part {
		b.WriteByte(e.op)
		b.WriteString(e.line)
		if !strings.HasSuffix(e.line, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
}
