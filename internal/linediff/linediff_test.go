// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package linediff

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDiffIsAsPeopleKnowIt(t *testing.T) {
	from := "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn"
	to := "a\nb\nC\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn\no\n"
	require.Equal(t, `--- p.yml
+++ p.yml (suggested)
@@ -1,6 +1,6 @@
 a
 b
-c
+C
 d
 e
 f
@@ -11,4 +11,5 @@
 k
 l
 m
-n
\ No newline at end of file
+n
+o
`, Unified("p.yml", "p.yml (suggested)", from, to))
	require.Empty(t, Unified("a", "b", from, from))
	require.Equal(t, "--- a\n+++ b\n@@ -0,0 +1,1 @@\n+x\n", Unified("a", "b", "", "x\n"))
	require.Equal(t, "--- a\n+++ b\n@@ -1,1 +0,0 @@\n-x\n", Unified("a", "b", "x\n", ""))
}

func TestEditsLeadFromOneTextToTheOther(t *testing.T) {
	for seed := range uint64(300) {
		from, to := randomTexts(seed)
		var was, is strings.Builder
		for _, e := range compare(split(from), split(to)) {
			if e.op != '+' {
				was.WriteString(e.line)
			}
			if e.op != '-' {
				is.WriteString(e.line)
			}
		}
		require.Equal(t, from, was.String(), seed)
		require.Equal(t, to, is.String(), seed)
	}
}

func TestTextsThatDifferInTooManyLinesAreReplacedInOnePiece(t *testing.T) {
	var from, to strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&from, "a%d\nkept%d\n", i, i)
		fmt.Fprintf(&to, "b%d\nkept%d\n", i, i)
	}
	diff := Unified("a", "b", "head\n"+from.String(), "head\n"+to.String())
	require.Equal(t, 1, strings.Count(diff, "\n@@ "))
	require.Equal(t, 1, strings.Count(diff, "\n-kept0\n"))
	require.Contains(t, diff, "@@ -1,12001 +1,12001 @@\n head\n-a0\n")
	require.True(t, strings.HasSuffix(diff, "+b5999\n kept5999\n"))
	// However long: lines that are only added are no search.
	diff = Unified("a", "b", "head\ntail\n", "head\n"+to.String()+"tail\n")
	require.Equal(t, 12_000, strings.Count(diff, "\n+")-1)
	require.Contains(t, diff, "@@ -1,2 +1,12002 @@\n head\n+b0\n")
}

func TestPatchAppliesTheDiff(t *testing.T) {
	patch, err := exec.LookPath("patch")
	if err != nil {
		t.Skip("patch(1) is not here")
	}
	for seed := range uint64(40) {
		from, to := randomTexts(seed)
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, []byte(from), 0o600))
		diff := Unified("file", "file", from, to)
		if diff == "" {
			continue
		}
		cmd := exec.CommandContext(t.Context(), patch, "--force", file)
		cmd.Stdin = strings.NewReader(diff)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%d: %s\n%s", seed, out, diff)
		got, err := os.ReadFile(file)
		if to != "" || err == nil { // An emptied file may be removed.
			require.NoError(t, err)
			require.Equal(t, to, string(got), seed)
		}
	}
}

// randomTexts returns a text of few different lines, and one with some changed.
func randomTexts(seed uint64) (from, to string) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var a, b strings.Builder
	for range rng.IntN(60) {
		line := string(rune('a'+rng.IntN(6))) + "\n"
		switch rng.IntN(8) {
		case 0:
			a.WriteString(line)
		case 1:
			b.WriteString(line)
		default:
			a.WriteString(line)
			b.WriteString(line)
		}
	}
	return a.String(), b.String()
}
