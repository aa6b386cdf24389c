// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package tsdb

import (
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/prometheus/prometheus/model/labels"
)

// labelsPacker finds bases for the labels of new series, and edits that are there
// already. It is of the process, like what package unique knows, and safe for concurrent
// use. What it does not find costs memory, and nothing else.
//
// What it knows are the series that were created lately. It forgets them when series are
// removed, as otherwise it would keep what was theirs alone.
type labelsPacker struct{ known atomic.Pointer[knownTexts] }

var seriesPacker labelsPacker

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

// packLabels packs labels. It keeps nothing of lset.
func packLabels(lset labels.Labels) packedLabels { return seriesPacker.pack(asData(lset)) }

func (p *labelsPacker) pack(data string) packedLabels {
	known := p.known.Load()
	if known == nil {
		known = p.grow(nil)
	}
	size := known.packed.Add(int64(len(data)))
	places := known.places(data)
	var best, other [unpackedSize]byte
	base, edits := known.nearest(places, data, best[:0], other[:0])
	if base != (text{}) && len(edits) <= shortEdits {
		return packedLabels{base: base, edits: known.edit(edits)}
	}
	if n := int64(len(known.bases)); 2*known.wanted.Add(1) > n && size > 2*packedForPlace*n {
		known = p.grow(known)
		places = known.places(data)
	}
	if base != (text{}) && 2*len(edits) <= len(data) && !known.again(places, base) {
		return packedLabels{base: base, edits: known.edit(edits)}
	}
	base = newText(data)
	known.add(places, base)
	return packedLabels{base: base}
}

// grow makes more places for bases.
func (p *labelsPacker) grow(known *knownTexts) *knownTexts {
	if known == nil {
		p.known.CompareAndSwap(nil, newKnownTexts(fewestBases))
		return p.known.Load()
	}
	grown := newKnownTexts(2 * len(known.bases))
	grown.edits = known.edits
	for i := range known.bases {
		if base := (text{known.bases[i].Load()}); base != (text{}) {
			grown.add(grown.places(base.string()), base)
		}
	}
	grown.wanted.Store(known.wanted.Load())
	grown.packed.Store(known.packed.Load())
	p.known.CompareAndSwap(known, grown)
	return grown
}

// forget lets go of all texts that no series has.
func (p *labelsPacker) forget() { p.known.Store(nil) }

// basePlace is where a base is looked for by one of the labels that it has.
type basePlace struct {
	label string
	hash  uint64
	base  *atomic.Pointer[byte]
	seen  *atomic.Uint32
}

// basePlaces are where bases for some labels are looked for: by the two labels with the
// longest values, which mostly tell what they are about, and by the instance.
type basePlaces [3]basePlace

func (k *knownTexts) places(data string) basePlaces {
	var longest, second, instance string
	for at := 0; at < len(data); {
		end := afterString(data, afterString(data, at))
		l := data[at:end]
		at = end
		if isLabel(l, "instance") {
			instance = l
		}
		switch {
		case isLabel(l, labels.MetricName):
		case len(l) > len(longest):
			longest, second = l, longest
		case len(l) > len(second):
			second = l
		}
	}
	return basePlaces{k.place(longest), k.place(second), k.place(instance)}
}

// isLabel says whether the label l has the name.
func isLabel(l, name string) bool {
	return int(l[0]) == len(name) && l[1:1+len(name)] == name
}

func (k *knownTexts) place(label string) basePlace {
	hash := xxhash.Sum64String(label)
	i := hash & uint64(len(k.bases)-1)
	return basePlace{label, hash, &k.bases[i], &k.seen[i]}
}

// nearest returns the known base that needs the shortest edits, and these, in one of the
// two buffers.
func (*knownTexts) nearest(places basePlaces, data string, best, other []byte) (base text, edits []byte) {
	most := len(data)
	for _, place := range places {
		known := text{place.base.Load()}
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
func (*knownTexts) again(places basePlaces, base text) (again bool) {
	for _, place := range places[:2] {
		if !strings.Contains(base.string(), place.label) {
			mark := uint32(place.hash >> 32)
			again = place.seen.Swap(mark) == mark || again
		}
	}
	return again
}

func (*knownTexts) add(places basePlaces, base text) {
	for _, place := range places {
		place.base.Store(base.p)
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
