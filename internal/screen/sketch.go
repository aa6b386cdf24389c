// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import "container/heap"

// sketch keeps the queries with the largest weight. Not safe for concurrent use.
type sketch struct {
	size  int
	index map[uint64]*entry // by hash of the key, or the next that is free
	heap  entries           // the smallest weight first
	total TopCost
}

type entry struct {
	key  TopKey
	hash uint64
	text string
	cost TopCost // since it is kept
	// weight is what it cost at most, and unseen what of that is not in cost.
	weight, unseen float64
	at             int // in the heap
}

func (s *sketch) reset() {
	clear(s.index)
	clear(s.heap) // Lets go of the texts.
	s.heap, s.total = s.heap[:0], TopCost{}
}

// find returns the entry of a key, or nil and the hash to file it under. If two keys
// share a hash and one of them goes, the other may be filed twice, which adds up to
// the same.
func (s *sketch) find(key *TopKey, hash uint64) (*entry, uint64) {
	e := s.index[hash]
	for e != nil && e.key != *key {
		hash++
		e = s.index[hash]
	}
	return e, hash
}

func (s *sketch) add(key *TopKey, hash uint64, text string, cost *TopCost, by TopOrder) {
	s.total.add(cost)
	e, hash := s.find(key, hash)
	switch {
	case e != nil:
	case len(s.heap) < s.size:
		if s.index == nil {
			s.index = make(map[uint64]*entry, s.size)
		}
		e = &entry{key: *key, hash: hash, text: text}
		s.index[hash] = e
		heap.Push(&s.heap, e)
	default: // In the place of the cheapest.
		e = s.heap[0]
		delete(s.index, e.hash)
		*e = entry{key: *key, hash: hash, text: text, weight: e.weight, unseen: e.weight}
		s.index[hash] = e
	}
	e.cost.add(cost)
	e.weight += by.of(cost)
	heap.Fix(&s.heap, e.at)
}

// entries is a heap.
type entries []*entry

// Len implements heap.Interface.
func (h entries) Len() int { return len(h) }

// Less implements heap.Interface.
func (h entries) Less(i, j int) bool { return h[i].weight < h[j].weight }

// Swap implements heap.Interface.
func (h entries) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *entries) Push(x any) {
	e := x.(*entry)
	e.at = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *entries) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
