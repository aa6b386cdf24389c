// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package chunks

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// openMapper opens a mapper that knows its files.
func openMapper(t *testing.T, dir string) *ChunkDiskMapper {
	t.Helper()
	m, err := NewChunkDiskMapper(nil, dir, chunkenc.NewPool(), DefaultWriteBufferSize, 0)
	require.NoError(t, err)
	for _, seq := range m.FileSequences() {
		_, err := m.ReadChunkMetas(seq, nil)
		require.NoError(t, err)
	}
	m.FilesRead()
	return m
}

// writeFiles writes one chunk into each of n new files.
func writeFiles(t *testing.T, m *ChunkDiskMapper, n int) {
	t.Helper()
	for range n {
		m.CutNewFile()
		c := chunkenc.NewXORChunk()
		app, err := c.Appender()
		require.NoError(t, err)
		app.Append(0, 1, 1)
		errs := make(chan error, 1)
		m.WriteChunk(1, 1, 1, c, false, func(err error) { errs <- err })
		require.NoError(t, <-errs)
	}
}

func TestDiscardWrittenLeavesWhatWasThereAndWritesOn(t *testing.T) {
	for _, before := range []int{0, 1, 3} {
		dir := t.TempDir()
		m := openMapper(t, dir)
		writeFiles(t, m, before)
		require.NoError(t, m.Close())

		m = openMapper(t, dir)
		require.Len(t, m.FileSequences(), before)
		writeFiles(t, m, 3)
		require.NoError(t, m.DiscardWritten(before))
		require.Len(t, m.FileSequences(), before)
		require.NoError(t, m.DiscardWritten(before), "nothing is left to discard")
		writeFiles(t, m, 2)
		require.NoError(t, m.Close())
		m = openMapper(t, dir)
		require.Len(t, m.FileSequences(), before+2)
		require.NoError(t, m.Close())
	}
}

func TestDiscardWrittenAfterACutThatFailed(t *testing.T) {
	dir := t.TempDir()
	m := openMapper(t, dir)
	writeFiles(t, m, 2)
	// As a cut leaves it that has closed the old file and cannot make a new one.
	require.NoError(t, m.curFile.Close())
	require.NoError(t, m.DiscardWritten(1))
	require.Equal(t, []int{1}, m.FileSequences())
	writeFiles(t, m, 1)
	require.NoError(t, m.Close())
	require.Equal(t, []int{1, 2}, openedAgain(t, dir))
}

func openedAgain(t *testing.T, dir string) []int {
	t.Helper()
	m := openMapper(t, dir)
	defer func() { require.NoError(t, m.Close()) }()
	return m.FileSequences()
}
