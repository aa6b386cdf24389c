// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package jsonedit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// nestEndsAt looks at each byte of JSON that begins with a bracket, and returns the
// depths behind each, and where it is back at 0.
func nestEndsAt(text string, n nest) (depths []int, inString []bool, end int) {
	depth, in, escaped := 0, false, false
	for i := range len(text) {
		switch c := text[i]; {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			in = !in
		case in:
		case c == structural[n.open]:
			depth++
		case c == structural[n.shut]:
			depth--
		}
		depths, inString = append(depths, depth), append(inString, in)
		if depth == 0 {
			return depths, inString, i + 1
		}
	}
	return depths, inString, len(text)
}

// requireNest looks for the end of the array or object that text begins with, in
// pieces of so many bytes.
func requireNest(t *testing.T, text string, pieces int) {
	t.Helper()
	n := nest{openBracket, closeBracket, 1}
	if text[0] == '{' {
		n = nest{openBrace, closeBrace, 1}
	}
	depths, inString, end := nestEndsAt(text, n)
	var o outside
	for from := 0; ; from += pieces {
		piece := text[from:min(from+pieces, len(text))]
		o.start([]byte(piece))
		begin := 0
		if from == 0 {
			begin = 1
		}
		at := from + o.nestEnd(begin, &n)
		if n.depth == 0 {
			require.Equal(t, end, at)
			return
		}
		require.Equal(t, from+len(piece), at)
		require.Equal(t, depths[at-1], n.depth, "%q", text[:at])
		require.Equal(t, inString[at-1], o.inString, "%q", text[:at])
	}
}

var nests = []string{
	matrix(3),
	`[{"metric":{"a":"b"},"value":[1,"2"]},{"metric":{"a":"]"},"value":[1,"["]},{"x":":[","y":":\"["}]`,
	`["a",",",":","[","]","[,",",]",":[","\":[","],[\"]","\\","\\\"]",""," "," ]","] ","},{","{\"}",[""],[":"],[" "]]`,
	`{"}":"{","a":{"":"}"},"{":{"b" : "{" , "c":[ "}" ] }, "d\\":{"e\"}":"\\{"},"f":"` + strings.Repeat("g}", 40) + `","h":{}}`,
	"[\n\t[ \"]\" ],\r\n [ \"[\" , \"x\" ]\n, [1 ,2], {}, [\"" + strings.Repeat(",", 70) + "\",[\"" + strings.Repeat("]", 70) + "\"]]]",
	`["` + strings.Repeat(`],[\\","{},\"","`, 30) + `"]`,
	`[` + strings.Repeat(`",",":","[,",",[",`, 30) + `[]]`,
}

func TestEndOfANestIsFoundHoweverItIsCutIntoPieces(t *testing.T) {
	for _, text := range nests {
		for pieces := 1; pieces <= len(text); pieces++ {
			requireNest(t, text, pieces)
		}
	}
}

func FuzzNestEnd(f *testing.F) {
	for _, text := range nests {
		f.Add(text, 7)
		f.Add(text, len(text))
	}
	f.Fuzz(func(t *testing.T, text string, pieces int) {
		text = strings.TrimSpace(text)
		if pieces < 1 || text == "" || text[0] != '[' && text[0] != '{' || !json.Valid([]byte(text)) {
			return
		}
		requireNest(t, text, min(pieces, len(text)))
	})
}

// matrix has n series, the second of native histograms, and a warning behind.
func matrix(n int) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf(`{"metric":{"a":"]},{%d"},"values":[[1,"1"],[2,"2"]]}`, i)
		if i == 1 {
			entries[i] = `{"metric":{},"histograms":[[1,{"count":"5","sum":"5","buckets":[[0,"0.5","1","1"]]}]]}`
		}
	}
	return `{"status":"success","data":{"resultType":"matrix","result":[` + strings.Join(entries, ",") + `]},"warnings":["of the server"],"infos":["x"]}`
}
