// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"hash/maphash"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// BulkPostings collects the postings of many series and hands them to
// MemPostings at once. Series that were created one after the other share most
// of their labels, so the last value of each label name is tried before any
// lookup. It is not safe for concurrent use.
type BulkPostings struct {
	seed   maphash.Seed
	byName map[string]*bulkName
	names  []*bulkName
	all    []storage.SeriesRef
	// at holds the label name that was last seen at a position of a series.
	at []*bulkName
}

// bulkName holds the postings of one label name. Values are in the order in
// which they were first seen.
type bulkName struct {
	name   string
	values []bulkValue
	last   int32
	recent [64]int32 // Positions in values by a cheap hash, 1-based.
	table  []int32   // Open addressing over values, 1-based; a power of two.
}

type bulkValue struct {
	value string
	hash  uint32
	refs  []storage.SeriesRef
}

// NewBulkPostings returns an empty collection.
func NewBulkPostings() *BulkPostings {
	return &BulkPostings{seed: maphash.MakeSeed(), byName: map[string]*bulkName{}}
}

// Add adds a series. Its labels must not change afterwards.
func (b *BulkPostings) Add(ref storage.SeriesRef, lset labels.Labels) {
	i := 0
	lset.Range(func(l labels.Label) {
		if i == len(b.at) {
			b.at = append(b.at, b.nameFor(l.Name))
		}
		n := b.at[i]
		if n.name != l.Name {
			n = b.nameFor(l.Name)
			b.at[i] = n
		}
		i++
		v := n.valueFor(l.Value, b.seed)
		v.refs = append(v.refs, ref)
	})
	b.all = append(b.all, ref)
}

func (b *BulkPostings) nameFor(name string) *bulkName {
	n, ok := b.byName[name]
	if !ok {
		n = &bulkName{name: name, table: make([]int32, 16)}
		b.byName[name] = n
		b.names = append(b.names, n)
	}
	return n
}

func (n *bulkName) valueFor(value string, seed maphash.Seed) *bulkValue {
	if int(n.last) < len(n.values) && n.values[n.last].value == value {
		return &n.values[n.last]
	}
	recent := &n.recent[cheapHash(value)%uint32(len(n.recent))]
	if *recent > 0 && n.values[*recent-1].value == value {
		n.last = *recent - 1
		return &n.values[n.last]
	}
	hash := uint32(maphash.String(seed, value))
	i := n.find(value, hash)
	if n.table[i] == 0 {
		n.values = append(n.values, bulkValue{value: value, hash: hash})
		n.table[i] = int32(len(n.values))
		n.last = int32(len(n.values)) - 1
		if 2*len(n.values) > len(n.table) {
			n.grow()
		}
	} else {
		n.last = n.table[i] - 1
	}
	*recent = n.last + 1
	return &n.values[n.last]
}

// find returns the place in the table of the value, or a free one.
func (n *bulkName) find(value string, hash uint32) uint32 {
	mask := uint32(len(n.table) - 1)
	i := hash & mask
	for ; n.table[i] != 0; i = (i + 1) & mask {
		v := &n.values[n.table[i]-1]
		if v.hash == hash && v.value == value {
			break
		}
	}
	return i
}

func (n *bulkName) grow() {
	n.table = make([]int32, 2*len(n.table))
	mask := uint32(len(n.table) - 1)
	for at := range n.values {
		i := n.values[at].hash & mask
		for n.table[i] != 0 {
			i = (i + 1) & mask
		}
		n.table[i] = int32(at) + 1
	}
}

// cheapHash tells apart what differs at the end or in length.
func cheapHash(s string) uint32 {
	h := uint32(len(s))
	for i := max(0, len(s)-4); i < len(s); i++ {
		h = h*31 + uint32(s[i])
	}
	return h
}

// AddBulk adds what b holds, using up to concurrency goroutines, and empties b.
// The postings must not be ordered yet and must be empty: EnsureOrder puts them
// in order.
func (p *MemPostings) AddBulk(b *BulkPostings, concurrency int) {
	p.mtx.Lock()
	defer p.mtx.Unlock()

	lists := make([]map[string][]storage.SeriesRef, len(b.names))
	values := make([][]string, len(b.names))
	work := make(chan int, len(b.names))
	for i := range b.names {
		work <- i
	}
	close(work)
	var wg sync.WaitGroup
	for range min(max(concurrency, 1), len(b.names)) {
		wg.Go(func() {
			for i := range work {
				lists[i], values[i] = b.names[i].finish()
			}
		})
	}
	wg.Wait()
	for i, n := range b.names {
		p.m[n.name], p.lvs[n.name] = lists[i], values[i]
	}
	for i, ref := range b.all {
		if i == 0 && p.m[allPostingsKey.Name] == nil {
			p.m[allPostingsKey.Name] = map[string][]storage.SeriesRef{allPostingsKey.Value: b.all}
			p.lvs[allPostingsKey.Name] = []string{allPostingsKey.Value}
			break
		}
		p.addFor(ref, allPostingsKey) // A label without a name is there too.
	}
	*b = *NewBulkPostings()
}

func (n *bulkName) finish() (map[string][]storage.SeriesRef, []string) {
	n.table = nil
	lists := make(map[string][]storage.SeriesRef, len(n.values))
	values := make([]string, len(n.values))
	for i := range n.values {
		v := &n.values[i]
		lists[v.value], values[i] = v.refs, v.value
	}
	n.values = nil
	return lists, values
}
