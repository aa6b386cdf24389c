// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package labels

import (
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// labelsPacker finds bases for the labels of new series, and edits that are there
// already. It is of the process, like what package unique knows, and safe for concurrent
// use. What it does not find costs memory, and nothing else.
//
// What it knows are the series that were created lately. It forgets them when series are
// removed, as otherwise it would keep what was theirs alone.
type labelsPacker struct{ known atomic.Pointer[knownTexts] }

var packer labelsPacker

// knownTexts are open to all: a text takes the place of another.
type knownTexts struct {
	bases []atomic.Pointer[byte] // By their labels with the longest values, and by instance.
	seen  []atomic.Uint32        // Labels of series whose base does not have them.
	edits []atomic.Pointer[byte] // By what they are.

	wanted atomic.Int64 // Places.
	packed atomic.Int64 // Bytes of labels.
}

const (
	// knownEdits is for how many edits there are places: those of the families that a few
	// targets expose.
	knownEdits = 4096
	// fewestBases is for how many bases there are places in the beginning.
	fewestBases = 1024
	// fewestPacked is from how many bytes on labels are packed. Shorter ones take little,
	// and those that are whole are read a little faster.
	fewestPacked = 64
	// shortEdits is from how many bytes of edits on a base of their own is worth it if it
	// is for a few series. Most names of metrics are shorter.
	shortEdits = 64
	// packedForPlace is how many bytes of labels must have been packed for each place:
	// places take a fortieth of that at most, whatever the labels are.
	packedForPlace = 512
)

func newKnownTexts(bases int) *knownTexts {
	return &knownTexts{
		bases: make([]atomic.Pointer[byte], bases),
		seen:  make([]atomic.Uint32, bases),
		edits: make([]atomic.Pointer[byte], knownEdits),
	}
}

// Pack packs labels. It keeps nothing of them.
func (ls Labels) Pack() Packed { return packer.pack(ls.whole(nil).data) }

// ForgetPacked lets go of what label sets have in common that nobody has any more. It is
// for who has lost some.
func ForgetPacked() { packer.forget() }

func (p *labelsPacker) pack(data string) Packed {
	if len(data) < fewestPacked {
		return newPacked(newText(data), text{})
	}
	known := p.known.Load()
	if known == nil {
		known = p.grow(nil)
	}
	size := known.packed.Add(int64(len(data)))
	ls := tellingLabels(data)
	var best, other [4 * shortEdits]byte
	base, edits := known.nearest(ls, data, best[:0], other[:0])
	if base != (text{}) && len(edits) <= shortEdits {
		return newPacked(base, known.edit(edits))
	}
	if n := int64(len(known.bases)); 2*known.wanted.Add(1) > n && size > 2*packedForPlace*n {
		known = p.grow(known)
	}
	if base != (text{}) && 2*len(edits) <= len(data) && !known.again(ls, base) {
		return newPacked(base, known.edit(edits))
	}
	base = newText(data)
	known.add(ls, base)
	return newPacked(base, text{})
}

// grow makes more places for bases.
func (p *labelsPacker) grow(known *knownTexts) *knownTexts {
	if known == nil {
		first := newKnownTexts(fewestBases)
		p.known.CompareAndSwap(nil, first)
		return first // Also if another one was first: what is known may be forgotten now.
	}
	grown := newKnownTexts(2 * len(known.bases))
	grown.edits = known.edits
	for i := range known.bases {
		if base := (text{known.bases[i].Load()}); base != (text{}) {
			grown.add(tellingLabels(base.string()), base)
		}
	}
	grown.wanted.Store(known.wanted.Load())
	grown.packed.Store(known.packed.Load())
	p.known.CompareAndSwap(known, grown)
	return grown
}

// forget lets go of all texts that no series has.
func (p *labelsPacker) forget() { p.known.Store(nil) }

// baseLabels are those by which a base is looked for: the two with the longest values,
// which mostly tell what a series is about, and the instance.
type baseLabels [3]string

func tellingLabels(data string) baseLabels {
	var longest, second, instance string
	for at := 0; at < len(data); {
		l := firstLabel(data[at:])
		at += len(l)
		if isLabel(l, "instance") {
			instance = l
		}
		switch {
		case isLabel(l, MetricName):
		case len(l) > len(longest):
			longest, second = l, longest
		case len(l) > len(second):
			second = l
		}
	}
	return baseLabels{longest, second, instance}
}

// isLabel says whether the label l has the name.
func isLabel(l, name string) bool {
	return int(l[0]) == len(name) && l[1:1+len(name)] == name
}

// place returns the place of a label, and what is seen there of it.
func (k *knownTexts) place(label string) (i uint64, mark uint32) {
	hash := xxhash.Sum64String(label)
	return hash & uint64(len(k.bases)-1), uint32(hash >> 32)
}

// nearest returns the known base that needs the shortest edits, and these, in one of the
// two buffers.
func (k *knownTexts) nearest(ls baseLabels, data string, best, other []byte) (base text, edits []byte) {
	most := len(data)
	for _, l := range ls {
		i, _ := k.place(l)
		known := text{k.bases[i].Load()}
		if known == (text{}) || known == base {
			continue
		}
		found, ok := appendEdits(other[:0], known.string(), data, most)
		if !ok {
			continue
		}
		base, best, other, most = known, found, best, len(found)-1
		if len(found) <= shortEdits {
			break
		}
	}
	return base, best
}

// again says whether a series with one of the longest values, which the base has not,
// was there before, and notes that one is.
func (k *knownTexts) again(ls baseLabels, base text) (again bool) {
	for _, l := range ls[:2] {
		if !strings.Contains(base.string(), l) {
			i, mark := k.place(l)
			again = k.seen[i].Swap(mark) == mark || again
		}
	}
	return again
}

func (k *knownTexts) add(ls baseLabels, base text) {
	for _, l := range ls {
		i, _ := k.place(l)
		k.bases[i].Store(base.p)
	}
}

// edit returns the edits as a text, which series share that have the same.
func (k *knownTexts) edit(edits []byte) text {
	if len(edits) == 0 {
		return text{}
	}
	place := &k.edits[xxhash.Sum64(edits)&(knownEdits-1)]
	s := unsafe.String(unsafe.SliceData(edits), len(edits))
	if known := (text{place.Load()}); known.string() == s {
		return known
	}
	t := newText(s)
	place.Store(t.p)
	return t
}
