// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package walgen

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/kubelike"
)

func options(dir string) Options {
	return Options{
		Dir: dir, Series: 1500, Scrapes: 20, ScrapeInterval: 15 * time.Second, Churn: 20, Seed: 1,
		Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Compression: "snappy",
	}
}

func generate(t *testing.T, o Options) Stats {
	t.Helper()
	stats, err := Generate(t.Context(), o)
	require.NoError(t, err)
	return stats
}

// records calls fn with every record of a directory's log.
func records(t *testing.T, dir string, fn func(dec *record.Decoder, rec []byte)) {
	t.Helper()
	sr, err := wlog.NewSegmentsReader(filepath.Join(dir, "wal"))
	require.NoError(t, err)
	defer sr.Close()
	dec := record.NewDecoder(nil, promslog.NewNopLogger())
	r := wlog.NewReader(sr)
	for r.Next() {
		fn(&dec, r.Record())
	}
	require.NoError(t, r.Err())
}

func TestPrometheusReplaysExactlyWhatTheModelSays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	o := options(dir)
	stats := generate(t, o)
	require.Positive(t, stats.StaleMarkers)

	db, err := tsdb.Open(dir, promslog.NewNopLogger(), nil, tsdb.DefaultOptions(), nil)
	require.NoError(t, err)
	defer db.Close()
	require.EqualValues(t, stats.Series, db.Head().NumSeries())
	got, n := read(t, db)
	require.Equal(t, stats.Samples, n)

	cluster, err := kubelike.New(kubelike.Config{Series: o.Series, Churn: o.Churn, Seed: o.Seed, Start: o.Start})
	require.NoError(t, err)
	want := map[string]map[int64]float64{}
	samples := 0
	for _, target := range cluster.Targets() {
		for i := range o.Scrapes {
			at := time.Duration(i)*o.ScrapeInterval + target.ScrapeOffset(o.ScrapeInterval)
			for _, g := range target.Groups() {
				ls, vs := g.AppendLabels(nil, g.Generation(at)), g.AppendValues(nil, g.Generation(at), at)
				for k := range ls {
					key := ls[k].String()
					if want[key] == nil {
						want[key] = map[int64]float64{}
					}
					want[key][o.Start.Add(at).UnixMilli()] = vs[k]
					samples++
				}
			}
		}
	}
	require.Equal(t, stats.Samples-stats.StaleMarkers, samples)
	require.Len(t, got, len(want))
	for key := range want {
		for ts, v := range got[key] {
			if value.IsStaleNaN(v) {
				delete(got[key], ts)
			}
		}
	}
	require.Equal(t, want, got)
}

// read returns all samples of a database, by labels and time, and their number.
func read(t *testing.T, db *tsdb.DB) (map[string]map[int64]float64, int) {
	t.Helper()
	q, err := db.Querier(0, 1<<62)
	require.NoError(t, err)
	defer q.Close()
	all, n := map[string]map[int64]float64{}, 0
	set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchNotEqual, labels.MetricName, ""))
	for set.Next() {
		samples := map[int64]float64{}
		it := set.At().Iterator(nil)
		for it.Next() == chunkenc.ValFloat {
			ts, v := it.At()
			samples[ts] = v
			n++
		}
		require.NoError(t, it.Err())
		all[set.At().Labels().String()] = samples
	}
	require.NoError(t, set.Err())
	return all, n
}

func TestSameOptionsWriteTheSameBytesAndAnotherSeedOthers(t *testing.T) {
	segment := func(seed uint64) []byte {
		o := options(filepath.Join(t.TempDir(), "data"))
		o.Seed = seed
		generate(t, o)
		b, err := os.ReadFile(filepath.Join(o.Dir, "wal", "00000000"))
		require.NoError(t, err)
		return b
	}
	first, again := segment(4), segment(4)
	require.Equal(t, first, again)
	require.NotEqual(t, first, segment(5))
}

func TestLastPageEndsWhereTheLastRecordEndsAsAfterAKill(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "data"))
	stats := generate(t, o)
	info, err := os.Stat(filepath.Join(o.Dir, "wal", "00000000"))
	require.NoError(t, err)
	require.NotZero(t, info.Size()%(32<<10))
	require.Equal(t, info.Size(), stats.Bytes)
	require.DirExists(t, filepath.Join(o.Dir, "chunks_head"))
	require.NoFileExists(t, filepath.Join(o.Dir, "lock"))
}

func TestSegmentsAreOfTheSizeAskedFor(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "data"))
	o.SegmentSize = 64 << 10
	stats := generate(t, o)
	require.Greater(t, stats.Segments, 2)
	for i := range stats.Segments - 1 {
		info, err := os.Stat(wlog.SegmentName(filepath.Join(o.Dir, "wal"), i))
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size(), int64(64<<10))
	}
	n := 0
	records(t, o.Dir, func(*record.Decoder, []byte) { n++ })
	require.Equal(t, stats.Records, n)
}

func TestRecordsHoldNoMoreSamplesThanAskedFor(t *testing.T) {
	for _, size := range []int{0, 1, 7, 100} {
		o := options(filepath.Join(t.TempDir(), "data"))
		o.Scrapes, o.SamplesPerRecord = 2, size
		stats := generate(t, o)
		total, largest := 0, 0
		records(t, o.Dir, func(dec *record.Decoder, rec []byte) {
			if dec.Type(rec) != record.Samples {
				return
			}
			samples, err := dec.Samples(rec, nil)
			require.NoError(t, err)
			total += len(samples)
			largest = max(largest, len(samples))
		})
		require.Equal(t, stats.Samples, total)
		if size == 0 {
			require.Greater(t, largest, 300, "a target's scrape is one record")
		} else {
			require.Equal(t, size, largest)
		}
	}
}

func TestCompressionShrinksTheLog(t *testing.T) {
	sizes := map[string]int64{}
	for _, c := range []string{"none", "snappy", "zstd"} {
		o := options(filepath.Join(t.TempDir(), "data"))
		o.Compression = c
		stats := generate(t, o)
		sizes[c] = stats.Bytes
		samples := 0
		records(t, o.Dir, func(dec *record.Decoder, rec []byte) {
			if dec.Type(rec) == record.Samples {
				s, err := dec.Samples(rec, nil)
				require.NoError(t, err)
				samples += len(s)
			}
		})
		require.Equal(t, stats.Samples, samples, c)
	}
	require.Less(t, sizes["snappy"], sizes["none"])
	require.Less(t, sizes["zstd"], sizes["snappy"])
}

func TestOptionsOutOfRangeAreRefusedAndNothingIsWritten(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*Options)
		want string
	}{
		{"no series", func(o *Options) { o.Series = 0 }, "a cluster needs at least 1 series, got 0"},
		{"no scrapes", func(o *Options) { o.Scrapes = 0 }, "scrapes must be 1 or more, got 0"},
		{"no interval", func(o *Options) { o.ScrapeInterval = 0 }, "scrape interval must be 1ms or more, got 0s"},
		{"negative record size", func(o *Options) { o.SamplesPerRecord = -1 }, "samples per record must be 0 or more, got -1"},
		{"negative record of series", func(o *Options) { o.SeriesPerRecord = -1 }, "series per record must be 0 or more, got -1"},
		{"odd segment size", func(o *Options) { o.SegmentSize = 1000 }, "segment size must be a multiple of 32KiB, got 1000 bytes"},
		{"unknown compression", func(o *Options) { o.Compression = "lz4" }, `compression must be one of [none snappy zstd], got "lz4"`},
		{"negative checkpoint", func(o *Options) { o.CheckpointScrapes = -1 }, "scrapes of the checkpoint must be 0 or more, got -1"},
		{"more than all are native", func(o *Options) { o.NativeHistograms = 1.5 }, "the share of native histograms must be from 0 to 1, got 1.5"},
		{"no share", func(o *Options) { o.OutOfOrder = math.NaN() }, "the share of out-of-order samples must be from 0 to 1, got NaN"},
		{"no explosion", func(o *Options) { o.Explosion = -1 }, "series of an explosion must be 0 or more, got -1"},
		{"references that are no distance apart", func(o *Options) { o.RefStep = -1 }, "references must be from 1 to 1048576 apart, got -1"},
		{"more than all are odd", func(o *Options) { o.Oddities = 2 }, "the share of oddities must be from 0 to 1, got 2"},
		{"negative churn", func(o *Options) { o.Churn = -1 }, "churn must be from 0 to 3600 per hour, got -1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := options(filepath.Join(t.TempDir(), "data"))
			tc.edit(&o)
			_, err := Generate(t.Context(), o)
			require.EqualError(t, err, tc.want)
			require.NoDirExists(t, o.Dir)
		})
	}
}

func TestDirectoryInUseIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "precious"), nil, 0o666))
	_, err := Generate(t.Context(), options(dir))
	require.ErrorIs(t, err, errNotEmpty)
	require.ErrorContains(t, err, dir)
	require.FileExists(t, filepath.Join(dir, "precious"))
}

func TestInterruptedGenerationLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	made := filepath.Join(t.TempDir(), "data")
	_, err := Generate(ctx, options(made))
	require.ErrorIs(t, err, context.Canceled)
	require.NoDirExists(t, made)

	given := t.TempDir()
	_, err = Generate(ctx, options(given))
	require.ErrorIs(t, err, context.Canceled)
	entries, err := os.ReadDir(given)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// full are options with all that can be asked for.
func full(dir string) Options {
	o := options(dir)
	o.Series, o.Scrapes, o.CheckpointScrapes, o.Churn = 1500, 300, 40, 2
	o.MmappedChunks, o.NativeHistograms, o.Exemplars, o.OutOfOrder = true, 0.5, 0.01, 0.3
	return o
}

func TestLogsWithAllThatCanBeAskedForAreReplayedWhole(t *testing.T) {
	o := full(filepath.Join(t.TempDir(), "data"))
	stats := generate(t, o)
	for _, n := range []int{stats.StaleMarkers, stats.Histograms, stats.OutOfOrder, stats.Exemplars, stats.MmappedChunks} {
		require.Positive(t, n)
	}
	dir, _, err := wlog.LastCheckpoint(filepath.Join(o.Dir, "wal"))
	require.NoError(t, err)
	require.DirExists(t, dir)

	reg := prometheus.NewRegistry()
	opts := tsdb.DefaultOptions()
	opts.EnableExemplarStorage, opts.MaxExemplars = true, int64(stats.Exemplars)
	db, err := tsdb.Open(o.Dir, promslog.NewNopLogger(), reg, opts, nil)
	require.NoError(t, err)
	defer db.Close()
	require.EqualValues(t, stats.Series, db.Head().NumSeries())

	q, err := db.Querier(0, 1<<62)
	require.NoError(t, err)
	defer q.Close()
	samples, histograms := 0, 0
	set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchNotEqual, labels.MetricName, ""))
	for set.Next() {
		it := set.At().Iterator(nil)
		for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
			samples++
			if typ != chunkenc.ValFloat {
				histograms++
			}
		}
		require.NoError(t, it.Err())
	}
	require.NoError(t, set.Err())
	require.Equal(t, stats.Samples, samples)
	require.Equal(t, stats.Histograms, histograms)

	eq, err := db.ExemplarQuerier(t.Context())
	require.NoError(t, err)
	found, err := eq.Select(0, 1<<62, []*labels.Matcher{labels.MustNewMatcher(labels.MatchNotEqual, labels.MetricName, "")})
	require.NoError(t, err)
	exemplars := 0
	for _, series := range found {
		exemplars += len(series.Exemplars)
	}
	require.Equal(t, stats.Exemplars, exemplars)

	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		switch f.GetName() {
		case "prometheus_tsdb_mmap_chunk_corruptions_total", "prometheus_tsdb_wal_corruptions_total", "prometheus_tsdb_mmap_chunks_total":
			require.Zero(t, f.GetMetric()[0].GetCounter().GetValue(), f.GetName())
		}
	}
}

func TestMmappedChunksAreThoseThatTheSamplesMadeAndMarkedInTheWBL(t *testing.T) {
	o := full(filepath.Join(t.TempDir(), "data"))
	stats := generate(t, o)
	late, n, err := listChunks(filepath.Join(o.Dir, "chunks_head"))
	require.NoError(t, err)
	require.Equal(t, stats.MmappedChunks, n)
	outOfOrder := 0
	for _, refs := range late {
		outOfOrder += len(refs)
	}
	require.Positive(t, outOfOrder)

	sr, err := wlog.NewSegmentsReader(filepath.Join(o.Dir, wlog.WblDirName))
	require.NoError(t, err)
	defer sr.Close()
	dec := record.NewDecoder(nil, promslog.NewNopLogger())
	marked, samples := lateChunks{}, 0
	r := wlog.NewReader(sr)
	for r.Next() {
		switch dec.Type(r.Record()) {
		case record.MmapMarkers:
			markers, err := dec.MmapMarkers(r.Record(), nil)
			require.NoError(t, err)
			for _, m := range markers {
				marked[m.Ref] = append(marked[m.Ref], m.MmapRef)
			}
		default:
			s, err := dec.Samples(r.Record(), nil)
			require.NoError(t, err)
			samples += len(s)
		}
	}
	require.NoError(t, r.Err())
	require.Equal(t, late, marked)
	require.Equal(t, stats.OutOfOrder, samples)
}

func TestSameOptionsWriteTheSameBytesInEveryFile(t *testing.T) {
	files := func() map[string]string {
		o := full(filepath.Join(t.TempDir(), "data"))
		generate(t, o)
		all := map[string]string{}
		require.NoError(t, filepath.WalkDir(o.Dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			rel, _ := filepath.Rel(o.Dir, path)
			b, err := os.ReadFile(path)
			all[rel] = string(b)
			return err
		}))
		return all
	}
	first, again := files(), files()
	require.Contains(t, first, filepath.Join("chunks_head", "000001"))
	require.Contains(t, first, filepath.Join(wlog.WblDirName, "00000000"))
	require.Len(t, again, len(first))
	for name := range first {
		require.True(t, first[name] == again[name], name) //nolint:testifylint // Equal would print megabytes.
	}
}

func TestAnExplosionIsOfSeriesThatAreScrapedTwice(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "data"))
	o.Series, o.Scrapes, o.Explosion, o.RefStep = 5, 4, 100, 12
	stats := generate(t, o)
	require.Equal(t, 405, stats.Series)
	scraped, values := map[uint64]int{}, map[string]bool{}
	records(t, o.Dir, func(dec *record.Decoder, rec []byte) {
		switch dec.Type(rec) {
		case record.Series:
			series, err := dec.Series(rec, nil)
			require.NoError(t, err)
			for _, s := range series {
				require.EqualValues(t, 1, s.Ref%12)
				if v := s.Labels.Get("request_id"); v != "" {
					values[v] = true
				}
			}
		case record.Samples:
			samples, err := dec.Samples(rec, nil)
			require.NoError(t, err)
			for _, s := range samples {
				scraped[uint64(s.Ref)]++
			}
		}
	})
	require.Len(t, values, 400)
	twice := 0
	for _, n := range scraped {
		if n == 2 {
			twice++
		}
	}
	require.Equal(t, 300, twice, "all but those of the last scrape")
}

func TestOddThingsHappenToTheShareOfSeriesThatWasAskedFor(t *testing.T) {
	o := full(filepath.Join(t.TempDir(), "data"))
	o.Oddities, o.StartTimes, o.CheckpointScrapes = 0.1, true, 0
	stats := generate(t, o)
	for name, n := range map[string]int{"deletions": stats.Tombstones, "duplicates": stats.Duplicates, "metadata": stats.Metadata, "resets": stats.Resets} {
		require.Greater(t, n, stats.Series/50, name)
		require.Less(t, n, stats.Series/3, name)
	}
	found := map[record.Type]int{}
	series := 0
	records(t, o.Dir, func(dec *record.Decoder, rec []byte) {
		switch typ := dec.Type(rec); typ {
		case record.Tombstones:
			stones, err := dec.Tombstones(rec, nil)
			require.NoError(t, err)
			found[typ] += len(stones)
		case record.Metadata:
			ms, err := dec.Metadata(rec, nil)
			require.NoError(t, err)
			found[typ] += len(ms)
		case record.Series:
			rs, err := dec.Series(rec, nil)
			require.NoError(t, err)
			series += len(rs)
		case record.SamplesV2:
			found[typ]++
		}
	})
	require.Equal(t, stats.Tombstones, found[record.Tombstones])
	require.Equal(t, stats.Metadata, found[record.Metadata])
	require.Positive(t, found[record.SamplesV2])
	require.Greater(t, series, stats.Duplicates)
	// Upstream takes them all.
	db, err := tsdb.Open(o.Dir, promslog.NewNopLogger(), nil, tsdb.DefaultOptions(), nil)
	require.NoError(t, err)
	require.EqualValues(t, stats.Series, db.Head().NumSeries())
	require.NoError(t, db.Close())
}

func TestNativeHistogramsAreValidAndNeverFall(t *testing.T) {
	for series := range uint64(50) {
		var before *histogram.FloatHistogram
		for _, count := range []float64{0, 1, 17, 3000, 1e9} {
			h := nativeHistogram(series, count)
			require.NoError(t, h.Validate())
			after := h.ToFloat(nil)
			if before != nil {
				require.False(t, after.DetectReset(before))
			}
			before = after
		}
	}
}
