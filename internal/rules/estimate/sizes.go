// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"maps"
	"math"
	"slices"
)

// Sizes say what series and samples take, and where the figures come from.
type Sizes struct {
	// HeadBytesPerSeries is heap in use after a garbage collection: the series,
	// its labels, its share of postings, and its chunks in memory.
	HeadBytesPerSeries float64 `json:"head_bytes_per_series"`
	// ScrapeCacheBytesPerSeries is what scrape loops hold of a series that is
	// stored, and DroppedBytesPerSeries of one that is dropped: its text, by which
	// the next scrape knows it again.
	ScrapeCacheBytesPerSeries float64 `json:"scrape_cache_bytes_per_series"`
	DroppedBytesPerSeries     float64 `json:"dropped_bytes_per_series"`
	// Build is whose these three are: upstream's or the patched Prometheus.
	Build string `json:"build"`
	// WALBytesPerSample and BlockBytesPerSample are what is written.
	WALBytesPerSample   float64 `json:"wal_bytes_per_sample"`
	BlockBytesPerSample float64 `json:"block_bytes_per_sample"`
	BlockSource         string  `json:"block_source"`
}

// What a modelled Kubernetes cluster takes, scraped every 30 s for two hours. A
// test measures them again.
const (
	modelHeadBytesPerSeries        = 1240
	modelScrapeCacheBytesPerSeries = 470
	modelDroppedBytesPerSeries     = 290
	modelWALBytesPerSample         = 7.3
	modelBlockBytesPerSample       = 2

	patchedHeadBytesPerSeries        = 750
	patchedScrapeCacheBytesPerSeries = 95
	patchedDroppedBytesPerSeries     = 55
)

// ModelSizes are those of a modelled Kubernetes cluster, in upstream's build.
func ModelSizes() Sizes {
	return Sizes{
		HeadBytesPerSeries: modelHeadBytesPerSeries, ScrapeCacheBytesPerSeries: modelScrapeCacheBytesPerSeries, DroppedBytesPerSeries: modelDroppedBytesPerSeries,
		Build:             "upstream",
		WALBytesPerSample: modelWALBytesPerSample, BlockBytesPerSample: modelBlockBytesPerSample, BlockSource: "a modelled cluster",
	}
}

// Patched returns them with what series take in the patched build.
func (s Sizes) Patched() Sizes {
	s.HeadBytesPerSeries, s.ScrapeCacheBytesPerSeries, s.DroppedBytesPerSeries = patchedHeadBytesPerSeries, patchedScrapeCacheBytesPerSeries, patchedDroppedBytesPerSeries
	s.Build = "the patched build"
	return s
}

const secondsPerDay = 24 * 60 * 60

// saving derives what the series of the tallies cost while they are stored.
func (s Sizes) saving(byJob map[string]int, in Intervals) Saving {
	var out Saving
	// In one order, so that the sum is the same every time.
	for _, job := range slices.Sorted(maps.Keys(byJob)) {
		out.Series += byJob[job]
		out.SamplesPerSecond += float64(byJob[job]) / in.of(job).Seconds()
	}
	out.MemoryBytes = (s.HeadBytesPerSeries + s.ScrapeCacheBytesPerSeries) * float64(out.Series)
	out.WALBytesPerDay = math.Round(s.WALBytesPerSample * out.SamplesPerSecond * secondsPerDay)
	out.BlockBytesPerDay = math.Round(s.BlockBytesPerSample * out.SamplesPerSecond * secondsPerDay)
	return out
}
