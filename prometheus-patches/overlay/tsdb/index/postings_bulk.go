// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"hash/maphash"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// BulkPostings collects the labels of many series and hands their postings to
// MemPostings at once, in lists of the size that they need. Series that were
// created one after the other share most of their labels, so the last value of
// each label name is tried before any lookup. It is not safe for concurrent use.
type BulkPostings struct {
	seed   maphash.Seed
	byName map[string]*bulkName
	names  []*bulkName
	values []bulkValue // In the order in which they were first seen.
	all    []storage.SeriesRef
	// series holds, for each of all, the number of its labels and the positions
	// of their values.
	series [][]uint32
	// at holds the label name that was last seen at a position of a series.
	at []*bulkName
}

// bulkName finds the values of one label name.
type bulkName struct {
	name   string
	count  int // Of its values.
	last   int32
	recent [64]int32 // Positions of values by a cheap hash, 1-based.
	table  []int32   // Open addressing over its values, 1-based; a power of two.
}

type bulkValue struct {
	name  *bulkName
	value string
	hash  uint32
	count uint32
	refs  []storage.SeriesRef // Of count series.
}

// bulkBlock is how many numbers about series are allocated at once.
const bulkBlock = 1 << 14

// NewBulkPostings returns an empty collection.
func NewBulkPostings() *BulkPostings {
	return &BulkPostings{seed: maphash.MakeSeed(), byName: map[string]*bulkName{}}
}

// Add adds a series. Its labels must not change afterwards.
func (b *BulkPostings) Add(ref storage.SeriesRef, lset labels.Labels) {
	// Hardly ever has a series more labels than all before, so that its block is
	// copied.
	if n := len(b.series); n == 0 || cap(b.series[n-1])-len(b.series[n-1]) <= len(b.at) {
		b.series = append(b.series, make([]uint32, 0, bulkBlock))
	}
	block := b.series[len(b.series)-1]
	start := len(block)
	block = append(block, 0)
	lset.Range(func(l labels.Label) {
		i := len(block) - start - 1
		if i == len(b.at) {
			b.at = append(b.at, b.nameFor(l.Name))
		}
		n := b.at[i]
		if n.name != l.Name {
			n = b.nameFor(l.Name)
			b.at[i] = n
		}
		v := b.valueFor(n, l.Value)
		b.values[v].count++
		block = append(block, uint32(v))
	})
	block[start] = uint32(len(block) - start - 1)
	b.series[len(b.series)-1] = block
	b.all = append(b.all, ref)
}

func (b *BulkPostings) nameFor(name string) *bulkName {
	n, ok := b.byName[name]
	if !ok {
		n = &bulkName{name: name, last: -1, table: make([]int32, 16)}
		b.byName[name] = n
		b.names = append(b.names, n)
	}
	return n
}

// valueFor returns the position of a value of the name.
func (b *BulkPostings) valueFor(n *bulkName, value string) int32 {
	if n.last >= 0 && b.values[n.last].value == value {
		return n.last
	}
	recent := &n.recent[cheapHash(value)%uint32(len(n.recent))]
	if *recent > 0 && b.values[*recent-1].value == value {
		n.last = *recent - 1
		return n.last
	}
	hash := uint32(maphash.String(b.seed, value))
	i := b.find(n.table, value, hash)
	if n.table[i] == 0 {
		b.values = append(b.values, bulkValue{name: n, value: value, hash: hash})
		n.count++
		n.table[i] = int32(len(b.values))
		n.last = n.table[i] - 1
		if 2*n.count > len(n.table) {
			b.grow(n)
		}
	} else {
		n.last = n.table[i] - 1
	}
	*recent = n.last + 1
	return n.last
}

// find returns the place in the table of the value, or a free one.
func (b *BulkPostings) find(table []int32, value string, hash uint32) uint32 {
	mask := uint32(len(table) - 1)
	i := hash & mask
	for ; table[i] != 0; i = (i + 1) & mask {
		v := &b.values[table[i]-1]
		if v.hash == hash && v.value == value {
			break
		}
	}
	return i
}

func (b *BulkPostings) grow(n *bulkName) {
	table := make([]int32, 2*len(n.table))
	mask := uint32(len(table) - 1)
	for _, at := range n.table {
		if at == 0 {
			continue
		}
		i := b.values[at-1].hash & mask
		for table[i] != 0 {
			i = (i + 1) & mask
		}
		table[i] = at
	}
	n.table = table
}

// cheapHash tells apart what differs at the end or in length.
func cheapHash(s string) uint32 {
	h := uint32(len(s))
	for i := max(0, len(s)-4); i < len(s); i++ {
		h = h*31 + uint32(s[i])
	}
	return h
}

// AddBulk adds what b holds and empties b. The postings must not be ordered yet
// and must be empty: EnsureOrder puts them in order.
func (p *MemPostings) AddBulk(b *BulkPostings) {
	p.mtx.Lock()
	defer p.mtx.Unlock()

	b.makeLists()
	for _, n := range b.names {
		p.m[n.name] = make(map[string][]storage.SeriesRef, n.count)
		p.lvs[n.name] = make([]string, 0, n.count)
	}
	for i := range b.values {
		v := &b.values[i]
		p.m[v.name.name][v.value] = v.refs
		p.lvs[v.name.name] = append(p.lvs[v.name.name], v.value)
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

// makeLists makes the postings of each value.
func (b *BulkPostings) makeLists() {
	all := b.all
	for i, block := range b.series {
		b.series[i] = nil // What is done with makes room for lists.
		for len(block) > 0 {
			n := 1 + int(block[0])
			for _, at := range block[1:n] {
				v := &b.values[at]
				if v.refs == nil {
					v.refs = make([]storage.SeriesRef, 0, v.count)
				}
				v.refs = append(v.refs, all[0])
			}
			block, all = block[n:], all[1:]
		}
	}
}
