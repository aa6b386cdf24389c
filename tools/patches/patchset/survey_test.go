// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package patchset

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAMergesResultIsReadFileByFile(t *testing.T) {
	const conflict = "CONFLICT (modify/delete)"
	out := strings.Join([]string{
		"0123abc", "a.go", "b.go", "",
		"1", "a.go", "Auto-merging", "Auto-merging a.go\n",
		"1", "a.go", "CONFLICT (contents)", "CONFLICT (content): Merge conflict in a.go\n",
		"1", "b.go", conflict, conflict + ": b.go deleted in ours\n", "",
	}, "\x00")
	tree, files, kinds := parseMerge(out)
	require.Equal(t, "0123abc", tree)
	require.Equal(t, []string{"a.go", "b.go"}, files)
	require.Equal(t, map[string]string{"b.go": conflict + ": b.go deleted in ours"}, kinds)

	tree, files, kinds = parseMerge("0123abc\x00")
	require.Equal(t, "0123abc", tree)
	require.Empty(t, files)
	require.Empty(t, kinds)
}

func TestHunksAreCountedBetweenTheMarks(t *testing.T) {
	require.Equal(t, []Hunk{{Line: 2, Upstream: 1, Patch: 2}, {Line: 10, Upstream: 0, Patch: 1}}, hunks(`one
<<<<<<< ours
two
||||||| base
zwei
=======
deux
trois
>>>>>>> theirs
<<<<<<< ours
=======
quatre
>>>>>>> theirs
=======
`))
	require.Empty(t, hunks("=======\n>>>>>>> theirs\n"))
}

func TestAReportSaysWhatToLookAt(t *testing.T) {
	require.Equal(t, "a.patch: applies", Moved{Patch: "a.patch"}.String())
	require.Equal(t, "a.patch: upstream has it already", Moved{Patch: "a.patch", Upstreamed: true}.String())
	require.Equal(t, "a.patch: conflicts\n  x.go: deleted\n  y.go\n    line 3: 1 of upstream's lines against 2 of the patch's",
		Moved{Patch: "a.patch", Conflicts: []Conflict{
			{File: "x.go", Kind: "deleted"}, {File: "y.go", Hunks: []Hunk{{3, 1, 2}}},
		}}.String())
}

func FuzzParseMerge(f *testing.F) {
	f.Add("0123abc\x00a.go\x00\x001\x00a.go\x00CONFLICT (x)\x00text\x00")
	f.Add("0123abc\x00a\x00\x0099\x00a")
	f.Fuzz(func(t *testing.T, out string) {
		_, files, kinds := parseMerge(out)
		require.LessOrEqual(t, len(files)+len(kinds), 1+strings.Count(out, "\x00"))
		for _, h := range hunks(out) {
			require.Positive(t, h.Line)
		}
	})
}
