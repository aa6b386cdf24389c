// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const aDiff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"

func TestPatchTextIsSplitAtTheFirstDiff(t *testing.T) {
	for name, text := range map[string]string{
		"as Format writes it":      "why\n\nbecause\n---\n" + aDiff,
		"without a separator":      "why\n\nbecause\n" + aDiff,
		"with blank lines between": "\nwhy\n\nbecause\n\n---\n\n" + aDiff,
		"with Windows line ends":   "why\n\nbecause\r\n---\r\n" + aDiff,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := parsePatch("n.patch", text)
			require.NoError(t, err)
			require.Equal(t, patch{name: "n.patch", message: "why\n\nbecause", diff: aDiff}, p)
			require.Equal(t, "why", p.subject())
		})
	}
}

func TestSecondFileOfADiffBelongsToTheDiff(t *testing.T) {
	p, err := parsePatch("n.patch", "why\n---\n"+aDiff+aDiff)
	require.NoError(t, err)
	require.Equal(t, aDiff+aDiff, p.diff)
}

func TestTextThatIsNoPatchIsRefused(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"empty":                       {"", `n.patch: no line starts with "diff --git"`},
		"a message only":              {"why\n\nsee diff --git\n", `n.patch: no line starts with "diff --git"`},
		"a diff only":                 {aDiff, "n.patch: the patch has no message: say why it exists"},
		"two diffs only":              {aDiff + aDiff, "n.patch: the patch has no message"},
		"a separator before the diff": {"---\n" + aDiff, "n.patch: the patch has no message"},
		"blanks before the diff":      {"\n \n\n" + aDiff, "n.patch: the patch has no message"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parsePatch("n.patch", tc.text)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// What a patch file says must survive any number of exports.
func FuzzFormatIsTheInverseOfparsePatch(f *testing.F) {
	f.Add("why\n\nbecause\n---\n" + aDiff)
	f.Add("why\n---\n---\n" + aDiff)
	f.Add("why\n \n---\r\n---\n" + aDiff)
	f.Add("---\n---\n" + aDiff)
	f.Add(aDiff + "\n" + aDiff)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePatch("n.patch", text)
		if err != nil {
			return
		}
		require.NotEmpty(t, p.message)
		require.True(t, strings.HasSuffix(text, p.diff), "the diff is not changed")
		back, err := parsePatch("n.patch", p.format())
		require.NoError(t, err)
		require.Equal(t, p, back)
		_ = p.check() // Of any message.
	})
}

func TestFileNameFollowsFromPlaceAndSubject(t *testing.T) {
	for _, tc := range []struct {
		n             int
		subject, want string
	}{
		{1, "web/api/v1: look at the context", "0001-web-api-v1-look-at-the-context.patch"},
		{12, "  Don't!! ", "0012-don-t.patch"},
		{3, strings.Repeat("a", 59) + " b", "0003-" + strings.Repeat("a", 59) + ".patch"},
		{4, strings.Repeat("a", 70), "0004-" + strings.Repeat("a", 60) + ".patch"},
		{10000, "x", "10000-x.patch"},
	} {
		require.Equal(t, tc.want, fileName(tc.n, tc.subject))
	}
}

func TestTrailersAreTheLastParagraph(t *testing.T) {
	p := patch{message: "subject\n\nTests: go test ./not-a-trailer\n\nReason: temporary\n" +
		"Tests: go test ./a\nTests: go test\n  ./b\n\t./c\nnot a trailer\nTests:go test ./d"}
	require.Equal(t, map[string][]string{
		"Reason": {"temporary"},
		"Tests":  {"go test ./a", "go test ./b ./c"},
	}, p.trailers())
	require.Equal(t, []string{"go test ./a", "go test ./b ./c"}, p.tests())
}

func TestTrailerValuesAreChecked(t *testing.T) {
	good := map[string][]string{
		"Reason":      {"temporary", "environment", "incompatible"},
		"Upstream":    {"https://example.com/1", "backport 0123abc", "not-submitted: why not"},
		"Tests":       {"go test ./..."},
		"Remove-When": {"upstream has it"},
	}
	bad := map[string][]string{
		"Reason":      {"temporary, really", "Temporary"},
		"Upstream":    {"example.com/1", "https://", "backport", "backport 012", "backport main", "not-submitted", "not-submitted: "},
		"Tests":       {"go vet ./...", "go test", "cd x && go test ./..."},
		"Remove-When": {" "},
	}
	message := func(key, value string) string {
		m := "subject\n\nwhy\n\n"
		for k, values := range good {
			v := values[0]
			if k == key {
				v = value
			}
			m += k + ": " + v + "\n"
		}
		return strings.TrimSpace(m)
	}
	for key, values := range good {
		for _, v := range values {
			require.NoError(t, patch{name: "n.patch", message: message(key, v)}.check(), "%s: %s", key, v)
		}
	}
	for key, values := range bad {
		for _, v := range values {
			require.ErrorContains(t, patch{name: "n.patch", message: message(key, v)}.check(), "n.patch: trailer "+key, "%s: %s", key, v)
		}
	}
}
