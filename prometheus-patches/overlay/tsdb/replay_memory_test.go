// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && !race

// The race detector takes memory of its own for what is compared here.

package tsdb

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/tombstones"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// replayShape is a log on which a replay can need much memory for a time.
type replayShape struct {
	name string
	most float64 // Of the peak of upstream's replay.

	groups, scrapes int // A group is 1000 series.
	apart           int // References.
	twice           bool
	ends            bool // A group has all its scrapes, and is deleted, before the next begins.
	st              bool
	lset            func(i int) labels.Labels
	value           func(i, scrape int) float64
}

func sharedLabels(i int) labels.Labels {
	return labels.FromStrings("__name__", "metric_"+strconv.Itoa(i%7), "instance", strconv.Itoa(i/100), "job", "kubernetes-pods",
		"namespace", strconv.Itoa(i/1000%50), "path", "/a/b/"+strconv.Itoa(i%50), "pod", "pod-"+strconv.Itoa(i/50))
}

func ownLabels(i int) labels.Labels {
	return labels.FromStrings("__name__", "http_requests_total", "instance", "10.0.0.1:9100", "job", "app", "method", "GET",
		"pod", "app-7d9c8bf5c4-xk2lp", "request_id", fmt.Sprintf("%016x", uint64(i)*0x9e3779b97f4a7c15), "status", "200")
}

func changing(i, scrape int) float64 { return float64(i * scrape % 97) }
func constant(int, int) float64      { return 1 }

// replayShapes have bounds with room for what the collector's pace does to a peak.
// Upstream's code has the chunks, series and tables of this build here, too: where it
// was built without those, its peaks are 10 to 30 percent higher.
var replayShapes = []replayShape{
	{name: "an explosion of series with a label value each", most: 1.05, groups: 80, scrapes: 2, apart: 1, lset: ownLabels, value: changing},
	{name: "a label name for each series", most: 1.05, groups: 20, scrapes: 2, apart: 1, value: changing, lset: func(i int) labels.Labels {
		return labels.FromStrings("__name__", "m", "l_"+strconv.Itoa(i), "1")
	}},
	{name: "many samples", most: 1.1, groups: 60, scrapes: 60, apart: 1, lset: sharedLabels, value: changing},
	{name: "references that are 12 apart", most: 1.1, groups: 60, scrapes: 20, apart: 12, lset: sharedLabels, value: changing},
	{name: "references that are 1000 apart", most: 1.3, groups: 60, scrapes: 20, apart: 1000, lset: sharedLabels, value: changing},
	{name: "every series logged again under a second reference", most: 1.2, groups: 60, scrapes: 20, apart: 1, twice: true, lset: sharedLabels, value: changing},
	{name: "the same with references that are 12 apart", most: 1.4, groups: 60, scrapes: 20, apart: 12, twice: true, lset: sharedLabels, value: changing},
	{name: "series that were deleted when they had ended", most: 1, groups: 200, scrapes: 4, apart: 1, ends: true, lset: ownLabels, value: changing},
	{name: "start times, and values that compress well", most: 1.2, groups: 10, scrapes: 200, apart: 1, st: true, lset: sharedLabels, value: constant},
}

func (s *replayShape) write(t *testing.T, dir string) {
	w, err := wlog.New(promslog.NewNopLogger(), nil, filepath.Join(dir, "wal"), compression.Snappy)
	require.NoError(t, err)
	enc := record.Encoder{EnableSTStorage: s.st}
	groups := make([][]record.RefSeries, s.groups)
	ref := 0
	logSeries := func(g int) {
		groups[g] = nil
		for i := range 1000 {
			ref += s.apart
			groups[g] = append(groups[g], record.RefSeries{Ref: chunks.HeadSeriesRef(ref), Labels: s.lset(g*1000 + i)})
		}
		require.NoError(t, w.Log(enc.Series(groups[g], nil)))
	}
	if s.ends {
		writeStaleBlock(t, dir)
	}
	for g := range groups {
		if !s.ends {
			break
		}
		logSeries(g)
		var samples []record.RefSample
		var stones []tombstones.Stone
		for scrape := range s.scrapes {
			samples = samples[:0]
			for i, series := range groups[g] {
				samples = append(samples, record.RefSample{Ref: series.Ref, T: int64(g*s.scrapes+scrape)*15_000 + 2, V: s.value(i, scrape)})
			}
			require.NoError(t, w.Log(enc.Samples(samples, nil)))
		}
		for _, series := range groups[g] {
			stones = append(stones, tombstones.Stone{Ref: storage.SeriesRef(series.Ref), Intervals: tombstones.Intervals{{Mint: math.MinInt64, Maxt: math.MaxInt64}}})
		}
		require.NoError(t, w.Log(enc.Tombstones(stones, nil)))
	}
	for scrape := range s.scrapes {
		if s.ends {
			break
		}
		for g := range groups {
			if scrape == 0 || s.twice && scrape == s.scrapes/2 {
				logSeries(g)
			}
			var samples []record.RefSample
			for i, series := range groups[g] {
				samples = append(samples, record.RefSample{Ref: series.Ref, ST: 1, T: int64(scrape)*15_000 + 2, V: s.value(i, scrape)})
			}
			require.NoError(t, w.Log(enc.Samples(samples, nil)))
		}
	}
	require.NoError(t, w.Close())
}

// A replay takes no more memory at its peak than upstream's, or little more.
// Processes of their own replay, with a collector that runs often, so that the
// peak is what is in use and not what is left over.
func TestReplayPeaksWhereUpstreamDoes(t *testing.T) {
	if dir := os.Getenv("PROMGUARD_REPLAY_PEAK"); dir != "" {
		replayForPeak(t, dir)
		return
	}
	for i := range replayShapes {
		shape := &replayShapes[i]
		t.Run(shape.name, func(t *testing.T) {
			made := t.TempDir()
			shape.write(t, made)
			// What else the machine does can only add to a peak.
			upstream, parallel := math.MaxInt, math.MaxInt
			for tries := 0; tries < 6 && (tries == 0 || float64(parallel) > shape.most*float64(upstream)); tries++ {
				upstream = min(upstream, peakOf(t, i, copyOf(t, made), ""))
				parallel = min(parallel, peakOf(t, i, copyOf(t, made), "1"))
			}
			t.Logf("upstream %d KiB, parallel %d KiB: %.2f", upstream, parallel, float64(parallel)/float64(upstream))
			require.LessOrEqual(t, float64(parallel), shape.most*float64(upstream))
		})
	}
}

// peakOf returns by how many KiB a process grows that replays a directory.
func peakOf(t *testing.T, shape int, dir, parallel string) int {
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^TestReplayPeaksWhereUpstreamDoes$")
	cmd.Env = append(os.Environ(), "GOGC=20", "GOMAXPROCS=2", "GOMEMLIMIT=off", "PROMGUARD_REPLAY_PEAK="+dir,
		"PROMGUARD_REPLAY_SHAPE="+strconv.Itoa(shape), "PROMGUARD_REPLAY_PARALLEL="+parallel)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	m := regexp.MustCompile(`peak (\d+) KiB`).FindSubmatch(out)
	require.NotNil(t, m, string(out))
	n, err := strconv.Atoi(string(m[1]))
	require.NoError(t, err)
	return n
}

func replayForPeak(t *testing.T, dir string) {
	i, err := strconv.Atoi(os.Getenv("PROMGUARD_REPLAY_SHAPE"))
	require.NoError(t, err)
	shape, parallel := &replayShapes[i], os.Getenv("PROMGUARD_REPLAY_PARALLEL") != ""
	wal, err := wlog.New(promslog.NewNopLogger(), nil, filepath.Join(dir, "wal"), compression.Snappy)
	require.NoError(t, err)
	opts := DefaultHeadOptions()
	opts.ChunkDirRoot = dir
	opts.ParallelWALReplay = parallel
	opts.WALReplayConcurrency = 2
	if shape.st {
		opts.EnableSTStorage.Store(true)
		opts.FloatChunkEncoding.Store(uint32(chunkenc.EncXOR2))
	}
	h, err := NewHead(prometheus.NewRegistry(), promslog.NewNopLogger(), wal, nil, opts, nil)
	require.NoError(t, err)
	before := statusKiB(t, "VmRSS")
	require.NoError(t, h.Init(0))
	require.Equal(t, parallel, h.opts.ParallelWALReplay)
	left := 1000 * shape.groups
	if shape.ends {
		left = 0
	}
	require.EqualValues(t, left, h.NumSeries())
	fmt.Printf("peak %d KiB\n", statusKiB(t, "VmHWM")-before)
	require.NoError(t, h.Close())
}

func statusKiB(t *testing.T, name string) int {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(t, m)
	n, err := strconv.Atoi(string(m[1]))
	require.NoError(t, err)
	return n
}
