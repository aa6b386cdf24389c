// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// PostingsBuilder collects the postings of many series for a MemPostings in
// little more memory than they take there. Long lists are kept as the differences
// of their references, mostly of one byte, until their lengths are known. Series
// that were created one after the other share most of their labels, whose lists
// are found without a look into the maps. It is not safe for concurrent use.
type PostingsBuilder struct {
	m    map[string]map[string][]storage.SeriesRef
	lvs  map[string][]string
	long []*longPostings
	// recent lists may be more complete than those in m.
	recent [1024]recentPostings
}

// recentPostings is the list of a label that was added to a short while ago: a
// short one, with at least one reference, or a long one.
type recentPostings struct {
	label labels.Label
	short []storage.SeriesRef
	long  *longPostings
}

// longPostings is a list in the order in which it was added to.
type longPostings struct {
	label  labels.Label
	n      int
	last   storage.SeriesRef
	deltas [][]byte // Blocks, all full but the last.
}

const (
	// longPostingsFrom is how many references a long list has at least.
	longPostingsFrom = 32
	// longPostingsMark makes the only reference of a list in m the number of a long
	// one.
	longPostingsMark = 1 << 63
	// longPostingsBlock is the most bytes of a block.
	longPostingsBlock = 4096
)

// NewPostingsBuilder returns an empty builder.
func NewPostingsBuilder() *PostingsBuilder {
	return &PostingsBuilder{m: map[string]map[string][]storage.SeriesRef{}, lvs: map[string][]string{}}
}

// Add adds a series, with a reference below 1<<63. Its labels must not change
// afterwards.
func (b *PostingsBuilder) Add(ref storage.SeriesRef, ls []labels.Label) {
	for _, l := range ls {
		b.add(ref, l)
	}
	b.add(ref, allPostingsKey)
}

func (b *PostingsBuilder) add(ref storage.SeriesRef, l labels.Label) {
	r := &b.recent[cheapHash(l)%uint32(len(b.recent))]
	if r.label.Value != l.Value || r.label.Name != l.Name || r.short == nil && r.long == nil {
		b.put(r)
		*r = b.get(l)
	}
	if r.long == nil {
		if r.short = append(r.short, ref); len(r.short) < longPostingsFrom {
			return
		}
		r.long = &longPostings{label: r.label}
		for _, ref := range r.short {
			r.long.add(ref)
		}
		r.short = nil
		b.m[l.Name][l.Value] = []storage.SeriesRef{longPostingsMark | storage.SeriesRef(len(b.long))}
		b.long = append(b.long, r.long)
		return
	}
	r.long.add(ref)
}

// put writes a recent list back.
func (b *PostingsBuilder) put(r *recentPostings) {
	if r.short != nil {
		b.m[r.label.Name][r.label.Value] = r.short
	}
}

// get returns the list of a label, which it makes if there is none.
func (b *PostingsBuilder) get(l labels.Label) recentPostings {
	lists, ok := b.m[l.Name]
	if !ok {
		lists = map[string][]storage.SeriesRef{}
		b.m[l.Name] = lists
	}
	short, ok := lists[l.Value]
	switch {
	case !ok:
		b.lvs[l.Name] = appendWithExponentialGrowth(b.lvs[l.Name], l.Value)
	case len(short) == 1 && short[0]&longPostingsMark != 0:
		return recentPostings{label: l, long: b.long[short[0]&^longPostingsMark]}
	}
	return recentPostings{label: l, short: short}
}

func (p *longPostings) add(ref storage.SeriesRef) {
	i := len(p.deltas) - 1
	if i < 0 || len(p.deltas[i]) > longPostingsBlock-binary.MaxVarintLen64 {
		p.deltas = append(p.deltas, nil)
		i++
	}
	p.deltas[i] = binary.AppendVarint(p.deltas[i], int64(ref-p.last))
	p.last = ref
	p.n++
}

// take returns the references and forgets them.
func (p *longPostings) take() []storage.SeriesRef {
	refs := make([]storage.SeriesRef, 0, p.n)
	var last storage.SeriesRef
	for i, deltas := range p.deltas {
		p.deltas[i] = nil
		for len(deltas) > 0 {
			delta, n := binary.Varint(deltas)
			deltas = deltas[n:]
			last += storage.SeriesRef(delta)
			refs = append(refs, last)
		}
	}
	return refs
}

// cheapHash tells apart what differs at the end or in length.
func cheapHash(l labels.Label) uint32 {
	h := uint32(len(l.Name))*31 + uint32(len(l.Value))
	for i := max(0, len(l.Name)-2); i < len(l.Name); i++ {
		h = h*31 + uint32(l.Name[i])
	}
	for i := max(0, len(l.Value)-4); i < len(l.Value); i++ {
		h = h*31 + uint32(l.Value[i])
	}
	return h ^ h>>10
}

// AddTo makes what was collected the content of p, and empties the builder. The
// postings must not be ordered yet and must be empty: EnsureOrder puts them in
// order.
func (b *PostingsBuilder) AddTo(p *MemPostings) {
	for i := range b.recent {
		b.put(&b.recent[i])
		b.recent[i] = recentPostings{}
	}
	for _, long := range b.long {
		b.m[long.label.Name][long.label.Value] = long.take()
	}
	p.mtx.Lock()
	defer p.mtx.Unlock()
	if len(b.m) > 0 {
		p.m, p.lvs = b.m, b.lvs
	}
	*b = PostingsBuilder{}
}
