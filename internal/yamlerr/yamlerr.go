// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package yamlerr names the line of a mistake in YAML. The parser names that of the
// mapping or list around it, which of a wrong indentation is often line 1.
package yamlerr

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

const (
	// maxText bounds the texts that are searched, in bytes, and maxWork what is parsed
	// of their beginnings, all together.
	maxText = 256 << 10
	maxWork = 2 << 20
	// maxSpan is over how many lines a value in quotes or brackets may go and not be
	// taken for the mistake.
	maxSpan = 16
)

// parserLine is what the parser's errors begin with.
var parserLine = regexp.MustCompile(`yaml: (?:line (\d+): )?`)

// Locate returns the error of parsing the text, wrapped or not, with the line, from
// 1, in which the text ceases to be YAML. Other errors than those of its syntax stay
// as they are.
func Locate(text []byte, err error) error {
	if _, ok := errors.AsType[*yaml.TypeError](err); ok || err == nil || len(text) > maxText || parses(text) {
		return err
	}
	line := firstBad(text)
	if m := parserLine.FindStringSubmatch(err.Error()); m != nil {
		own, _ := strconv.Atoi(m[1]) // In JSON it is the one to know: no beginning of an object is one.
		line = max(line, own)
	}
	return errors.New(parserLine.ReplaceAllString(err.Error(), fmt.Sprintf("line %d: ", line)))
}

// firstBad returns the line after the last beginning of the text that parses, as far
// as a search by halves finds it.
func firstBad(text []byte) int {
	ends := []int{0} // ends[n] is where n lines end
	for line := range bytes.Lines(text) {
		ends = append(ends, ends[len(ends)-1]+len(line))
	}
	lines := len(ends) - 1
	left := maxWork
	begins := func(n int) bool {
		left -= ends[n]
		return left > 0 && parses(text[:ends[n]])
	}
	good, bad := 0, lines
	for {
		for bad-good > 1 {
			if middle := (good + bad) / 2; begins(middle) {
				good = middle
			} else {
				bad = middle
			}
		}
		// The beginning of what goes over several lines is not YAML either.
		next, last := bad+1, min(bad+maxSpan, lines)
		for next < last && !begins(next) {
			next++
		}
		if next >= last {
			return bad
		}
		good, bad = next, lines
	}
}

func parses(text []byte) bool {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var n yaml.Node
		if err := dec.Decode(&n); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}
