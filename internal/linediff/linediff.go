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

// mostEdits bounds how many lines may differ for a shortest diff: to find it takes
// memory that grows with the square, here 16 MiB.
const mostEdits = 2000

// Unified returns the diff of two texts, or "" if they are equal. It is a shortest
// one unless more than mostEdits lines differ: then all between the first and the
// last of them is in one piece.
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

// compare finds a way from one list of lines to the other.
func compare(from, to []string) []edit {
	head := 0
	for head < min(len(from), len(to)) && from[head] == to[head] {
		head++
	}
	tail := 0
	for tail < min(len(from), len(to))-head && from[len(from)-1-tail] == to[len(to)-1-tail] {
		tail++
	}
	edits := all(' ', from[:head])
	edits = append(edits, shortest(from[head:len(from)-tail], to[head:len(to)-tail])...)
	return append(edits, all(' ', from[len(from)-tail:])...)
}

func all(op byte, lines []string) []edit {
	var edits []edit
	for _, line := range lines {
		edits = append(edits, edit{op, line})
	}
	return edits
}

// shortest finds a shortest way, as Myers does (An O(ND) Difference Algorithm,
// 1986), or gives up and replaces everything.
func shortest(from, to []string) []edit {
	n, m := len(from), len(to)
	most := min(n+m, mostEdits)
	zero := most + 1
	furthest := make([]int32, 2*zero+1) // x by diagonal x-y, from -zero
	var trace [][]int32
	for d := 0; d <= most && n > 0 && m > 0; d++ {
		// Only the diagonals of the step before are looked at when going back.
		trace = append(trace, slices.Clone(furthest[zero-d-1:zero+d+2]))
		for k := -d; k <= d; k += 2 {
			x := int(furthest[zero+k+1])
			if !down(furthest, zero+k, k, d) {
				x = int(furthest[zero+k-1]) + 1
			}
			for x < n && x-k < m && x-k >= 0 && from[x] == to[x-k] {
				x++
			}
			furthest[zero+k] = int32(x) //nolint:gosec // Texts have fewer lines.
			if x >= n && x-k >= m {
				return goBack(from, to, trace)
			}
		}
	}
	return append(all('-', from), all('+', to)...)
}

// down reports whether step d reaches the diagonal k, which is at i, from the one
// above: by a line of the other text.
func down(furthest []int32, i, k, d int) bool {
	return k == -d || k != d && furthest[i-1] < furthest[i+1]
}

// goBack turns what shortest found into edits.
func goBack(from, to []string, trace [][]int32) []edit {
	var out []edit
	x, y := len(from), len(to)
	for d, furthest := range slices.Backward(trace) {
		k := x - y
		zero := d + 1
		before := k - 1
		if down(furthest, zero+k, k, d) {
			before = k + 1
		}
		beforeX := int(furthest[zero+before])
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
