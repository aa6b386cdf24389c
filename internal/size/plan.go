// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package size

import (
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	gib = 1 << 30
	// usable is the part of a container's limit that GOMEMLIMIT is. Of that live may live at
	// its worst moment, so that reads are answered in a storm without waiting, and from critical
	// on new series are refused in any case (docs/memory-contract.md).
	usable   = 0.9
	live     = 0.6
	critical = 0.85
	// headroom is by how much a container's limit exceeds its heap (docs/memory.md).
	headroom = 1 / (live * usable)
	// walHours is how much of the log there is before a checkpoint, and slack what a
	// disk has to spare for compaction.
	walHours = 3
	slack    = 1.2
	// ofShard is the part of a shard that one target may take.
	ofShard    = 50
	maxShards  = 1000
	daySeconds = 24 * 60 * 60
	// local is for how long shards keep what is in the bucket.
	local = 24 * time.Hour
	// longestBlock is what Thanos compacts into one.
	longestBlock = 14 * local
)

// Limits say what a plan may use.
type Limits struct {
	// ShardMemory is the largest limit of a container, in bytes.
	ShardMemory float64
	Replicas    int
	Retention   time.Duration
}

// Plan says which servers a load needs. Bytes are those of one server.
type Plan struct {
	Load

	Series           float64 `json:"series"`
	Dropped          float64 `json:"dropped_series"`
	HeadSeries       float64 `json:"head_series"`
	SamplesPerSecond float64 `json:"samples_per_second"`

	Shards   int `json:"shards"`
	Replicas int `json:"replicas"`
	// Unevenness is by how much the largest shard exceeds the mean, as targets are
	// shared by chance, with three standard deviations.
	Unevenness    float64 `json:"unevenness"`
	HeapGiB       float64 `json:"heap_gib"`
	MemoryGiB     float64 `json:"memory_gib"`
	MaxHeadSeries float64 `json:"max_head_series"`
	DiskGiB       float64 `json:"disk_gib"`
	// RetentionSeconds is for how long a server keeps its blocks.
	RetentionSeconds float64 `json:"retention_seconds"`
	// BucketGiBPerDay and BucketGiB are of all replicas, without downsampling. They
	// are 0 for a single server, which needs no bucket.
	BucketGiBPerDay float64 `json:"bucket_gib_per_day"`
	BucketGiB       float64 `json:"bucket_gib"`
	// CompactorGiB is the disk of Thanos' compactor: it writes two weeks of a server as
	// one block, beside those that it is made of.
	CompactorGiB float64 `json:"compactor_gib"`
	// Split has the jobs whose targets are too large for a shard, and into how many
	// each has to be split.
	Split map[string]float64 `json:"split"`
}

// heap is the memory of so many series at rest.
func (l *Load) heap(series, dropped float64) float64 {
	s := l.Sizes
	return series*(l.HeadFactor*s.HeadBytesPerSeries+s.ScrapeCacheBytesPerSeries) + dropped*s.DroppedBytesPerSeries
}

// New plans servers.
func New(l Load, in Limits) (*Plan, error) {
	if in.ShardMemory <= 0 || in.Replicas < 1 || in.Retention <= 0 {
		return nil, errors.New("--shard-memory, --replicas and --retention must be above 0")
	}
	total := l.total()
	p := &Plan{
		Load: l, Series: total.Series, Dropped: total.Dropped, HeadSeries: total.Series * l.HeadFactor, Replicas: in.Replicas,
		Split: map[string]float64{}, RetentionSeconds: in.Retention.Seconds(),
	}
	for _, part := range l.Parts {
		p.SamplesPerSecond += part.Series / part.Interval
	}
	need := l.heap(total.Series, total.Dropped)
	if p.Shards = 1; headroom*need > in.ShardMemory {
		squares := p.squares(in.ShardMemory / headroom / ofShard)
		for p.Shards = 2; p.Shards <= maxShards; p.Shards++ {
			p.Unevenness = 3 * math.Sqrt(float64(p.Shards-1)*squares) / need
			if headroom*need/float64(p.Shards)*(1+p.Unevenness) <= in.ShardMemory {
				break
			}
		}
	}
	if p.Shards > maxShards {
		return nil, fmt.Errorf("give more --shard-memory: %d shards are not enough", maxShards)
	}
	largest := (1 + p.Unevenness) / float64(p.Shards)
	p.HeapGiB = need * largest / gib
	p.MemoryGiB = math.Ceil(headroom * p.HeapGiB)
	spare := (critical*usable*p.MemoryGiB - p.HeapGiB) * gib
	p.MaxHeadSeries = math.Floor(p.HeadSeries*largest + spare/(l.Sizes.HeadBytesPerSeries+l.Sizes.ScrapeCacheBytesPerSeries))
	perDay := p.SamplesPerSecond * daySeconds * l.Sizes.BlockBytesPerSample / gib
	if p.Shards > 1 {
		p.RetentionSeconds = min(p.RetentionSeconds, local.Seconds())
		p.BucketGiBPerDay = perDay * float64(in.Replicas)
		p.BucketGiB = p.BucketGiBPerDay * in.Retention.Hours() / 24
		p.CompactorGiB = math.Ceil(slack * 2 * largest * perDay * min(longestBlock, in.Retention).Hours() / 24)
	}
	wal := p.SamplesPerSecond * walHours * 3600 * l.Sizes.WALBytesPerSample / gib
	p.DiskGiB = math.Ceil(slack * largest * (wal + perDay*p.RetentionSeconds/daySeconds))
	return p, nil
}

// squares adds up the squares of what targets take, each at most so much: larger ones
// are noted as those to split.
func (p *Plan) squares(most float64) float64 {
	sum := 0.0
	for _, part := range p.Parts {
		targets := part.Targets
		if one := p.heap(part.Series, part.Dropped) / targets; one > most {
			p.Split[part.Job] = math.Ceil(one / most)
			targets *= p.Split[part.Job]
		}
		sum += math.Pow(p.heap(part.Series, part.Dropped), 2) / targets
	}
	return sum
}
