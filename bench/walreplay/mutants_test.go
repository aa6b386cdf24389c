// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutants are bugs of the replay: each an edit of one of its files.
var mutants = []struct{ name, file, old, bug string }{
	{
		"a reference is missing from the postings of one label", "tsdb/index/postings_builder.go",
		"	r := &b.recent[", `	if l.Name == "instance" && ref == 700 { return }` + "\n	r := &b.recent[",
	},
	{
		"a long list of postings has another reference", "tsdb/index/postings_builder.go",
		"			refs = append(refs, last)", "			if len(refs) == 50 { refs = append(refs, last-1) } else { refs = append(refs, last) }",
	},
	{
		"a label value is not known", "tsdb/index/postings_builder.go",
		"	case !ok:\n", "	case !ok && l.Name == \"le\" && l.Value == \"0.5\":\n	case !ok:\n",
	},
	{
		"metadata are lost", "tsdb/replay_sequence.go",
		"	series, to, _ := s.r.refs.resolve(m.Ref, s.next)", "	if m.Ref%7 == 0 { return }\n	series, to, _ := s.r.refs.resolve(m.Ref, s.next)",
	},
	{
		"the next series gets the reference of the last one", "tsdb/replay_publish.go",
		"h.lastSeriesID.Store(r.seq.lastSeriesID)", "h.lastSeriesID.Store(r.seq.lastSeriesID - 1)",
	},
	{
		"deletions are lost", "tsdb/replay_sequence.go",
		"		s.tombstones.AddInterval(", "		if to%5 == 0 { continue }\n		s.tombstones.AddInterval(",
	},
	{
		"samples of a second reference are lost", "tsdb/replay_decode.go",
		"		d.r.refs.raiseExpiry(ref, t)", "		d.r.refs.raiseExpiry(ref, t)\n		return nil, 0, false",
	},
	{
		"a series that was logged again is not reset", "tsdb/replay_sequence.go",
		"	b.events = append(b.events, replayBatchEvent{record: s.next, kind: replayReset", "	return\n	b.events = append(b.events, replayBatchEvent{record: s.next, kind: replayReset",
	},
	{
		"the newest m-mapped chunk is lost", "tsdb/replay_mmap.go",
		"	return c.chunks[start:c.ends[n]:c.ends[n]]", "	return c.chunks[start:max(start, c.ends[n]-1):c.ends[n]]",
	},
	{
		"a sample too many is taken for one of an m-mapped chunk", "tsdb/replay_mmap.go",
		"		if t <= end {", "		if t-15000 <= end {",
	},
	{
		"a neighbour's value is taken", "tsdb/replay_apply.go",
		"				words[i] = binary.BigEndian.Uint64(values)", "				if words[i] = binary.BigEndian.Uint64(values); i == 11 { words[i] = words[10] }",
	},
	{
		"stale series are not counted", "tsdb/replay_append.go",
		"		c.staleSeries++", "		c.staleSeries += 0",
	},
	{
		"exemplars are lost", "tsdb/replay_sequence.go",
		"	err := x.exemplars.AddExemplar(", "	if e.series.ref%5 == 0 { return }\n	err := x.exemplars.AddExemplar(",
	},
	{
		"float histograms are lost", "tsdb/replay_decode.go",
		"	for _, s := range d.fhists {", "	for _, s := range d.fhists[:0] {",
	},
}

// TestMutantsOfTheReplayAreCaught builds the patched Prometheus with each bug and
// verifies it. Builds take a minute, so it runs in make test-replay-mutants alone.
func TestMutantsOfTheReplayAreCaught(t *testing.T) {
	tree := os.Getenv("PROMGUARD_MUTANTS")
	if tree == "" {
		t.Skip("PROMGUARD_MUTANTS names no patched tree; make test-replay-mutants does")
	}
	data := filepath.Join(t.TempDir(), "data")
	require.NoError(t, execute(t.Context(), []string{
		"generate", "--out=" + data, "--series=3000", "--scrapes=200", "--churn=1", "--checkpoint-scrapes=20", "--mmapped-chunks",
		"--native-histograms=0.3", "--exemplars=0.001", "--out-of-order=0.02", "--oddities=0.05",
	}, os.Stdout, os.Stderr))
	right := build(t, tree, nil)
	_, err := runVerify(t, data, right+" --guard.wal-replay=upstream", right)
	require.NoError(t, err)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			path := filepath.Join(tree, m.file)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(text), m.old), "%s: %s", m.file, m.old)
			mutant := build(t, tree, map[string]string{path: strings.Replace(string(text), m.old, m.bug, 1)})
			_, err = runVerify(t, data, right+" --guard.wal-replay=upstream", mutant)
			require.ErrorContains(t, err, "the heads differ")
			t.Log(err)
		})
	}
}

// build builds Prometheus with some files replaced.
func build(t *testing.T, tree string, replaced map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for path, text := range replaced {
		to := filepath.Join(dir, fmt.Sprintf("%d.go", len(overlay.Replace)))
		require.NoError(t, os.WriteFile(to, []byte(text), 0o600))
		overlay.Replace[path] = to
	}
	b, err := json.Marshal(overlay)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), b, 0o600))
	out := filepath.Join(dir, "prometheus")
	cmd := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-tags", "netgo", "-ldflags", "-s -w", "-o", out, "./cmd/prometheus")
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), "GOWORK=off")
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, string(text))
	return out
}
