// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/encoding"
)

// block is what an index is written of.
type block struct {
	symbols []string
	series  []labels.Labels
	chunks  [][]chunks.Meta // of each series
}

// drawBlock draws a block with up to so many series. Its labels share names, values and
// both, some series have few labels, and some symbols are of none.
func drawBlock(r *rand.Rand, most int) *block {
	b, text := &block{}, func(most int) string {
		n := r.Intn(most)
		if r.Intn(50) == 0 {
			return strings.Repeat("long", 40) + strconv.Itoa(n)
		}
		return strings.Repeat("x", r.Intn(3)) + strconv.Itoa(n)
	}
	names, values, chunk := 1+r.Intn(12), 1+r.Intn(2*most), chunks.ChunkRef(8)
	symbols := map[string]struct{}{}
	for range r.Intn(20) {
		symbols[text(values)] = struct{}{}
	}
	for range r.Intn(most + 1) {
		builder := labels.NewScratchBuilder(names)
		of := map[string]string{}
		for range r.Intn(names + 1) {
			of[text(names)] = text([]int{1, 3, values}[r.Intn(3)])
		}
		for name, value := range of {
			builder.Add(name, value)
			symbols[name], symbols[value] = struct{}{}, struct{}{}
		}
		builder.Sort()
		b.series = append(b.series, builder.Labels())
	}
	slices.SortFunc(b.series, labels.Compare)
	b.series = slices.CompactFunc(b.series, labels.Equal)
	if len(b.series) > 0 && b.series[0].IsEmpty() {
		b.series = b.series[1:] // Not after the last of none, by Compare.
	}
	for range b.series {
		var metas []chunks.Meta
		at := int64(r.Intn(1000)) - 500
		for range r.Intn(4) {
			metas = append(metas, chunks.Meta{Ref: chunk, MinTime: at, MaxTime: at + int64(r.Intn(100))})
			at, chunk = at+100, chunk+chunks.ChunkRef(1+r.Intn(1<<20))
		}
		b.chunks = append(b.chunks, metas)
	}
	b.symbols = slices.Sorted(maps.Keys(symbols))
	return b
}

// write writes the index of the block to a file.
func (b *block) write(tb testing.TB, file string) {
	w, err := NewWriter(context.Background(), file)
	require.NoError(tb, err)
	for _, s := range b.symbols {
		require.NoError(tb, w.AddSymbol(s))
	}
	for i, ls := range b.series {
		require.NoError(tb, w.AddSeries(storage.SeriesRef(i), ls, b.chunks[i]...))
	}
	require.NoError(tb, w.Close())
}

// plain returns what the file has to be, by the description of the format, without
// thought of memory.
func (b *block) plain() []byte {
	var file encoding.Encbuf
	checksum := func(from int) { file.PutBE32(crc32.Checksum(file.B[from:], castagnoliTable)) }
	pad := func(to int) {
		for file.Len()%to != 0 {
			file.PutByte(0)
		}
	}
	length := func(at int) { binary.BigEndian.PutUint32(file.B[at:], uint32(file.Len()-at-4)) }
	var toc [6]int
	file.PutBE32(MagicIndex)
	file.PutByte(FormatV2)

	toc[0] = file.Len()
	file.PutBE32(0)
	file.PutBE32int(len(b.symbols))
	number := map[string]int{}
	for i, s := range b.symbols {
		number[s] = i
		file.PutUvarintStr(s)
	}
	length(toc[0])
	checksum(toc[0] + 4)

	toc[1] = file.Len()
	postings := map[labels.Label][]int{{}: {}}
	for i, ls := range b.series {
		pad(16)
		ref := file.Len() / 16
		postings[labels.Label{}] = append(postings[labels.Label{}], ref)
		var e encoding.Encbuf
		e.PutUvarint(ls.Len())
		ls.Range(func(l labels.Label) {
			postings[l] = append(postings[l], ref)
			e.PutUvarint(number[l.Name])
			e.PutUvarint(number[l.Value])
		})
		e.PutUvarint(len(b.chunks[i]))
		for k, c := range b.chunks[i] {
			if k == 0 {
				e.PutVarint64(c.MinTime)
			} else {
				e.PutUvarint64(uint64(c.MinTime - b.chunks[i][k-1].MaxTime))
			}
			e.PutUvarint64(uint64(c.MaxTime - c.MinTime))
			if k == 0 {
				e.PutUvarint64(uint64(c.Ref))
			} else {
				e.PutVarint64(int64(c.Ref) - int64(b.chunks[i][k-1].Ref))
			}
		}
		file.PutUvarint(e.Len())
		from := file.Len()
		file.B = append(file.B, e.B...)
		checksum(from)
	}

	toc[2] = file.Len()
	toc[4] = file.Len()
	pad(4)
	var table encoding.Encbuf
	for _, l := range slices.SortedFunc(maps.Keys(postings), func(a, b labels.Label) int {
		return slices.Compare([]string{a.Name, a.Value}, []string{b.Name, b.Value})
	}) {
		pad(4)
		table.PutUvarint(2)
		table.PutUvarintStr(l.Name)
		table.PutUvarintStr(l.Value)
		table.PutUvarint64(uint64(file.Len()))
		file.PutBE32int(4 + 4*len(postings[l]))
		from := file.Len()
		file.PutBE32int(len(postings[l]))
		for _, ref := range postings[l] {
			file.PutBE32int(ref)
		}
		checksum(from)
	}

	toc[3], toc[5] = file.Len(), file.Len()
	file.PutBE32(0)
	file.PutBE32int(len(postings))
	file.B = append(file.B, table.B...)
	length(toc[5])
	checksum(toc[5] + 4)

	from := file.Len()
	for _, at := range toc {
		file.PutBE64(uint64(at))
	}
	checksum(from)
	return file.B
}

func TestAnIndexHasTheBytesThatTheFormatSays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "index")
	for seed := range int64(300) {
		r := rand.New(rand.NewSource(seed))
		b := drawBlock(r, []int{1, 10, 100, 1000}[seed%4])
		b.write(t, file)
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, bytes.Equal(b.plain(), got), "seed %d", seed)
	}
}

func FuzzAnIndexHasTheBytesThatTheFormatSays(f *testing.F) {
	f.Add(int64(1), 10)
	f.Add(int64(2), 300)
	f.Fuzz(func(t *testing.T, seed int64, most int) {
		b := drawBlock(rand.New(rand.NewSource(seed)), 1+int(uint(most)%500))
		file := filepath.Join(t.TempDir(), "index")
		b.write(t, file)
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, bytes.Equal(b.plain(), got))
	})
}

func TestAnIndexRefusesASeriesOfUnknownSymbols(t *testing.T) {
	w, err := NewWriter(t.Context(), filepath.Join(t.TempDir(), "index"))
	require.NoError(t, err)
	for _, s := range []string{"a", "b"} {
		require.NoError(t, w.AddSymbol(s))
	}
	require.NoError(t, w.AddSeries(1, labels.FromStrings("a", "b")))
	require.ErrorContains(t, w.AddSeries(2, labels.FromStrings("a", "c")), `symbol entry for "c" does not exist`)
	require.ErrorContains(t, w.AddSeries(2, labels.FromStrings("aa", "b")), `symbol entry for "aa" does not exist`)
	_ = w.Close() // It finds the padding of the series that it has not got.
}

// churned returns a block of series with an id of their own, as an explosion makes them.
func churned(series int) *block {
	b := &block{chunks: make([][]chunks.Meta, series)}
	symbols := map[string]struct{}{"m": {}, "api": {}}
	for i := range series {
		ls := labels.FromStrings("__name__", "m", "job", "api", "instance", fmt.Sprintf("host-%03d", i%200), "request_id", fmt.Sprintf("%016x", i*7919))
		ls.Range(func(l labels.Label) { symbols[l.Name], symbols[l.Value] = struct{}{}, struct{}{} })
		b.series = append(b.series, ls)
	}
	slices.SortFunc(b.series, labels.Compare)
	b.symbols = slices.Sorted(maps.Keys(symbols))
	return b
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestAnIndexTakesLittleMemoryForEachSeries(t *testing.T) {
	file := filepath.Join(t.TempDir(), "index")
	const few, many = 20_000, 120_000
	small, large := churned(few), churned(many)
	least := allocated(func() { small.write(t, file) })
	each := (allocated(func() { large.write(t, file) }) - least) / (many - few)
	require.Less(t, each, uint64(48), "bytes for each series, in all")
}

func BenchmarkWriteIndex(b *testing.B) {
	block, file := churned(200_000), filepath.Join(b.TempDir(), "index")
	b.ReportAllocs()
	for b.Loop() {
		block.write(b, file)
	}
}
