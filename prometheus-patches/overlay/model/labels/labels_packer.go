// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package labels

import (
	"encoding/binary"
	"strings"
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/cespare/xxhash/v2"
)

// labelsPacker finds bases for the labels of new series, and edits that exist already. It
// belongs to the process, as package unique does, and is safe for concurrent use. A base or
// edit that it does not find costs memory, and nothing else.
//
// It holds bases by weak pointers, so a base is freed with the last series that uses it.
type labelsPacker struct {
	known atomic.Pointer[knownTexts]
	whole atomic.Bool // Labels are not packed.
}

var packer labelsPacker

// knownTexts are tables without collisions: a new text replaces the one in its place.
type knownTexts struct {
	bases []atomic.Pointer[knownBase] // By the labels with the longest values, and by instance.
	seen  []atomic.Uint32             // Labels of series whose base does not have them.
	edits []atomic.Pointer[byte]      // By their bytes.

	wanted atomic.Int64 // Label sets for which no base with short edits was found.
	packed atomic.Int64 // Bytes of labels.
}

// knownBase is a base for as long as a series uses it.
type knownBase struct {
	data   weak.Pointer[byte]
	size   uint32
	places uint32 // How many places the base was put into.
}

// base returns the base, or nothing if no series uses it.
func (b *knownBase) base() string {
	if b != nil {
		if data := b.data.Value(); data != nil {
			return unsafe.String(data, b.size)
		}
	}
	return ""
}

const (
	// knownEdits is the number of places for edits: those of the families that a few
	// targets expose.
	knownEdits = 4096
	// fewestBases is the minimum number of places for bases.
	fewestBases = 1024
	// fewestPacked is the minimum size of packed labels in bytes. Shorter labels take
	// little memory, and are read a little faster as a whole.
	fewestPacked = 64
	// largestBase bounds a base, in times of the size of each series that uses it: the
	// last of these series keeps the whole base alive.
	largestBase = 2
	// shortEdits is the size of edits in bytes from which on a base of its own is better
	// for a few series. Most names of metrics are shorter.
	shortEdits = 64
	// longestEdits is the size of edits in bytes up to which they are shared.
	longestEdits = 4 * shortEdits
	// packedForPlace is how many bytes of labels must have been packed for each place:
	// so the places take at most a fortieth of them, whatever the labels are.
	packedForPlace = 512
)

func newKnownTexts(bases int) *knownTexts {
	return &knownTexts{
		bases: make([]atomic.Pointer[knownBase], bases),
		seen:  make([]atomic.Uint32, bases),
		edits: make([]atomic.Pointer[byte], knownEdits),
	}
}

// Pack packs labels. It may keep their memory.
func (ls Labels) Pack() Packed {
	return packer.pack(ls.whole(nil).data, func(data string) string { return data })
}

// PackCopy packs labels, and keeps none of their memory.
func (ls Labels) PackCopy() Packed { return packer.pack(ls.whole(nil).data, strings.Clone) }

// SetPacking switches packing on or off for labels that are packed from now on. It is on
// at first.
func SetPacking(on bool) { packer.whole.Store(!on) }

// PackedBytes returns the size in bytes of the bases that series share, and of the tables
// that find them. It takes some 10 ns for each place of the tables.
func PackedBytes() (bases, tables int64) { return packer.bytes() }

// pack packs data. What it keeps of them is what keep returns.
func (p *labelsPacker) pack(data string, keep func(string) string) Packed {
	if len(data) < fewestPacked || p.whole.Load() {
		return newPacked(keep(data), text{})
	}
	known := p.known.Load()
	if known == nil {
		p.known.CompareAndSwap(nil, newKnownTexts(fewestBases))
		known = p.known.Load()
	}
	size := known.packed.Add(int64(len(data)))
	ls := tellingLabels(data)
	var best, other [longestEdits]byte
	base, edits := known.nearest(ls, data, best[:0], other[:0])
	if base != "" && len(edits) <= shortEdits {
		return newPacked(base, known.edit(edits))
	}
	if n := int64(len(known.bases)); 2*known.wanted.Add(1) > n && size > 2*packedForPlace*n {
		known = p.resize(known)
	}
	if base != "" && 2*len(edits) <= len(data) && !known.again(ls, base) {
		return newPacked(base, known.edit(edits))
	}
	base = keep(data)
	known.add(ls, &knownBase{weak.Make(unsafe.StringData(base)), uint32(len(base)), ls.places()})
	return newPacked(base, text{})
}

// resize makes tables without the bases that no series uses any more, and returns them.
// They are twice as large unless most bases were such.
func (p *labelsPacker) resize(old *knownTexts) *knownTexts {
	live, dead := old.count()
	n, wanted, packed := len(old.bases), old.wanted.Load(), old.packed.Load()
	if live >= dead {
		n *= 2
	} else {
		wanted, packed = wanted/2, packed/2
	}
	resized := newKnownTexts(n)
	resized.edits = old.edits
	resized.wanted.Store(wanted)
	resized.packed.Store(packed)
	for i := range old.bases {
		known := old.bases[i].Load()
		if base := known.base(); base != "" {
			resized.add(tellingLabels(base), known)
		}
	}
	p.known.CompareAndSwap(old, resized)
	return resized
}

// count returns how many places have a base that a series uses, and how many another one.
func (k *knownTexts) count() (live, dead int) {
	for i := range k.bases {
		switch known := k.bases[i].Load(); {
		case known == nil:
		case known.base() == "":
			dead++
		default:
			live++
		}
	}
	return live, dead
}

// bytes returns the size of the bases that series use and the tables know, and of the tables.
func (p *labelsPacker) bytes() (bases, tables int64) {
	k := p.known.Load()
	if k == nil {
		return 0, 0
	}
	for i := range k.bases {
		if known := k.bases[i].Load(); known.base() != "" {
			bases += int64(known.size / known.places)
			tables += int64(unsafe.Sizeof(*known)) / int64(known.places)
		}
	}
	for i := range k.edits {
		tables += int64(len(text{k.edits[i].Load()}.string()))
	}
	return bases, tables + int64(len(k.bases)*(8+4)+len(k.edits)*8)
}

// baseLabels are the labels by which a base is found: the two with the longest values,
// which mostly tell what a series is about, and the instance. Those that a series does not
// have are empty.
type baseLabels [3]string

// places returns how many labels there are, which is at least 1.
func (ls *baseLabels) places() (n uint32) {
	for _, l := range ls {
		if l != "" {
			n++
		}
	}
	return max(n, 1)
}

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
	if instance == longest || instance == second {
		instance = ""
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
func (k *knownTexts) nearest(ls baseLabels, data string, best, other []byte) (base string, edits []byte) {
	most := len(data)
	for _, l := range ls {
		if l == "" {
			continue
		}
		i, _ := k.place(l)
		known := k.bases[i].Load().base()
		if known == "" || len(known) > largestBase*len(data) {
			continue
		}
		found, ok := appendEdits(other[:0], known, data, most)
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
func (k *knownTexts) again(ls baseLabels, base string) (again bool) {
	for _, l := range ls[:2] {
		if l != "" && !strings.Contains(base, l) {
			i, mark := k.place(l)
			again = k.seen[i].Swap(mark) == mark || again
		}
	}
	return again
}

func (k *knownTexts) add(ls baseLabels, base *knownBase) {
	for _, l := range ls {
		if l != "" {
			i, _ := k.place(l)
			k.bases[i].Store(base)
		}
	}
}

// edit returns the edits as a text, which series share that have the same. Long edits are
// not kept for others.
func (k *knownTexts) edit(edits []byte) text {
	if len(edits) == 0 || len(edits) > longestEdits {
		return newText(edits)
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

// text is a string that takes one pointer: its bytes come after their number. The zero
// text is empty.
type text struct{ p *byte }

func newText[T string | []byte](s T) text {
	if len(s) == 0 {
		return text{}
	}
	n := 1
	for x := len(s); x >= 0x80; x >>= 7 {
		n++
	}
	b := make([]byte, n+len(s))
	copy(b[binary.PutUvarint(b, uint64(len(s))):], s)
	return text{unsafe.SliceData(b)}
}

func (t text) string() string {
	if t.p == nil {
		return ""
	}
	n, size, shift := 0, 1, 0
	for p := t.p; ; size++ {
		n |= int(*p&0x7f) << shift
		if *p < 0x80 {
			break
		}
		shift += 7
		p = (*byte)(unsafe.Add(unsafe.Pointer(t.p), size))
	}
	return unsafe.String((*byte)(unsafe.Add(unsafe.Pointer(t.p), size)), n)
}

func uvarint(s string) (x uint64, n int) {
	if s[0] < 0x80 {
		return uint64(s[0]), 1
	}
	return binary.Uvarint(yoloBytes(s))
}
