// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package labels

import (
	"encoding/binary"
	"math"
	"strings"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// Packed holds labels for a long time: a base, which is shared with other label sets, and
// edits, which make other labels of it. Without edits the base is the labels.
//
// The series of a container differ in their names, those of a histogram in their names
// and in le. The labels that they share are stored once, and the edits that change one
// metric's name into another's are stored once for all containers.
type Packed struct {
	mark  [4]byte // packedMark, if there are edits.
	size  uint32  // Of the base in bytes.
	base  *byte   // The data of Labels.
	edits text
}

// packedMark tells Packed from other data of Labels. These begin with the length of a
// name, which is never written with four bytes where one is enough.
const packedMark = "\xff\x00\x00\x00"

const sizeOfPacked = int(unsafe.Sizeof(Packed{}))

func newPacked(base string, edits text) Packed {
	if uint64(len(base)) > math.MaxUint32 {
		panicTooLong(uint64(len(base)))
	}
	p := Packed{size: uint32(len(base)), base: unsafe.StringData(base), edits: edits}
	if edits != (text{}) {
		copy(p.mark[:], packedMark)
	}
	return p
}

// Labels returns the labels without putting them together: if there are edits, the data of
// Labels is p itself. So p must not change, and lives as long as the labels.
func (p *Packed) Labels() Labels {
	if p.edits == (text{}) {
		return Labels{data: p.baseData()}
	}
	return Labels{data: unsafe.String((*byte)(unsafe.Pointer(p)), sizeOfPacked)}
}

func (p *Packed) baseData() string { return unsafe.String(p.base, p.size) }

func (ls Labels) isPacked() bool {
	return len(ls.data) == sizeOfPacked && ls.data[:len(packedMark)] == packedMark
}

// packed is where packed labels are.
func (ls Labels) packed() *Packed { return (*Packed)(unsafe.Pointer(unsafe.StringData(ls.data))) }

// Hash is that of the labels.
func (p *Packed) Hash() uint64 { return p.Labels().Hash() }

// String implements fmt.Stringer.
func (p *Packed) String() string { return p.Labels().String() }

// Range calls f on each label. Who keeps one keeps what is packed, and nothing besides.
func (p *Packed) Range(f func(Label)) { p.Labels().Range(f) }

// FromEncoded returns the labels that data are, encoded as Labels encode theirs.
func FromEncoded(data string) Labels { return Labels{data: data} }

// An edit begins with a number: how many labels of the base stay as they are, and in
// the two lowest bits what comes after them.
const (
	editReplace = iota // Another label, which follows, in place of the next.
	editInsert         // Another label, which follows.
	editDelete         // The next label is not there.
	editFirst          // Another label, which follows, in place of the first. It is the only edit.

	editBits = 2
)

// appendEdits appends what makes the labels of base those of data. It gives up as soon
// as that is more than most.
func appendEdits(edits []byte, base, data string, most int) (_ []byte, ok bool) {
	kept := uint64(0)
	edit := func(kind uint64, label string) {
		edits = append(binary.AppendUvarint(edits, kept<<editBits|kind), label...)
		kept = 0
	}
	for base != "" || data != "" {
		baseLabel, label := firstLabel(base), firstLabel(data)
		switch order := compareNames(baseLabel, label); {
		case label == baseLabel:
			kept++
		case order < 0:
			edit(editDelete, "")
			label = ""
		case order > 0:
			edit(editInsert, label)
			baseLabel = ""
		default:
			edit(editReplace, label)
		}
		base, data = base[len(baseLabel):], data[len(label):]
		switch {
		case len(edits) > most:
			return edits, false
		case kept == 0 && base == data: // Mostly after the name.
			if edits[0] == editReplace && 1+len(label) == len(edits) {
				edits[0] = editFirst
			}
			return edits, true
		}
	}
	return edits, true
}

// compareNames compares the names of two labels. No label comes after all.
func compareNames(a, b string) int {
	switch {
	case a == "":
		return 1
	case b == "":
		return -1
	}
	aName, _ := decodeString(a, 0)
	bName, _ := decodeString(b, 0)
	return strings.Compare(aName, bName)
}

// firstLabel returns the first label of data, or nothing if there is none.
func firstLabel(data string) string { return data[:afterLabels(data, min(1, len(data)))] }

// afterLabels returns where the first n labels of data end.
func afterLabels(data string, n int) (end int) {
	for range 2 * n {
		var size int
		size, end = decodeSize(data, end)
		end += size
	}
	return end
}

// pieces are some labels each, of which packed labels are made.
type pieces struct {
	base, edits string // Those that are left.
	own         string // What comes next if it is not empty.
}

func (ls Labels) pieces() pieces {
	if !ls.isPacked() {
		return pieces{base: ls.data}
	}
	p := ls.packed()
	return pieces{base: p.baseData(), edits: p.edits.string()}
}

// next returns the next piece, which is empty after the last.
func (p *pieces) next() (piece string) {
	for p.own == "" && p.edits != "" {
		if piece = p.edit(); piece != "" {
			return piece
		}
	}
	if p.own != "" {
		piece, p.own = p.own, ""
	} else {
		piece, p.base = p.base, ""
	}
	return piece
}

// from returns piece and pos, or the next piece and 0 if pos is the end of piece.
func (p *pieces) from(piece string, pos int) (string, int) {
	if pos < len(piece) {
		return piece, pos
	}
	return p.next(), 0
}

// done says that there is no next piece.
func (p *pieces) done() bool { return p.base == "" && p.edits == "" && p.own == "" }

// edit makes the next edit, and returns the labels that stay before it.
func (p *pieces) edit() (kept string) {
	edit, n := uvarint(p.edits)
	p.edits = p.edits[n:]
	end := afterLabels(p.base, int(edit>>editBits))
	kept, p.base = p.base[:end], p.base[end:]
	kind := edit & (1<<editBits - 1)
	if kind != editInsert {
		p.base = p.base[afterLabels(p.base, 1):]
	}
	if kind != editDelete {
		end := afterLabels(p.edits, 1)
		p.own, p.edits = p.edits[:end], p.edits[end:]
	}
	return kept
}

// appendTo appends the labels as they are in data.
func (ls Labels) appendTo(b []byte) []byte {
	p := ls.pieces()
	for piece := p.next(); piece != ""; piece = p.next() {
		b = append(b, piece...)
	}
	return b
}

// Whole returns the labels in one piece, and whether it had to be made: which is worth it
// for who asks them many times.
func (ls Labels) Whole() (whole Labels, made bool) {
	if !ls.isPacked() {
		return ls, false
	}
	return ls.Copy(), true
}

// wholeSize is how many bytes of labels are put together on the stack.
const wholeSize = 1024

// whole returns the labels in one piece: put together in buf if they fit, else in memory
// of their size. The result is valid until buf is used for something else.
func (ls Labels) whole(buf []byte) Labels {
	if !ls.isPacked() {
		return ls
	}
	if size := ls.size(); size > cap(buf) {
		buf = make([]byte, 0, size)
	}
	return Labels{data: yoloString(ls.appendTo(buf[:0]))}
}

// hashPacked hashes long labels piece by piece: put together, they would be garbage.
func (ls Labels) hashPacked() uint64 {
	p, buf := ls.pieces(), make([]byte, 0, wholeSize)
	for piece := p.next(); len(buf)+len(piece) <= wholeSize; piece = p.next() {
		if piece == "" {
			return xxhash.Sum64(buf)
		}
		buf = append(buf, piece...)
	}
	var d xxhash.Digest
	d.Reset()
	p = ls.pieces()
	for piece := p.next(); piece != ""; piece = p.next() {
		_, _ = d.WriteString(piece) // It never returns an error.
	}
	return d.Sum64()
}

// appendChosen appends, as add does, the labels that have one of the names if with is true,
// else those that have none of them. names are sorted.
func (ls Labels) appendChosen(b []byte, names []string, with bool, add func(b []byte, label string) []byte) []byte {
	p := ls.pieces()
	for piece := p.next(); piece != ""; piece = p.next() {
		for piece != "" {
			l := firstLabel(piece)
			piece = piece[len(l):]
			name, _ := decodeString(l, 0)
			for len(names) > 0 && names[0] < name {
				names = names[1:]
			}
			if with && len(names) == 0 {
				return b
			}
			if with == (len(names) > 0 && names[0] == name) {
				b = add(b, l)
			}
		}
	}
	return b
}

// appendEncoded appends a label as Labels encode it.
func appendEncoded(b []byte, label string) []byte { return append(b, label...) }

// appendSeparated appends a label as HashForLabels and HashWithoutLabels hash it.
func appendSeparated(b []byte, label string) []byte {
	name, at := decodeString(label, 0)
	value, _ := decodeString(label, at)
	b = append(append(b, name...), sep)
	return append(append(b, value...), sep)
}

// appendUnnamed is appendSeparated without the metric name.
func appendUnnamed(b []byte, label string) []byte {
	if isLabel(label, MetricName) {
		return b
	}
	return appendSeparated(b, label)
}

func (ls Labels) lenPacked() (n int) {
	p := ls.pieces()
	for piece := p.next(); piece != ""; piece = p.next() {
		n += Labels{data: piece}.Len()
	}
	return n
}

func (ls Labels) getPacked(name string) (value string) {
	p := ls.pieces()
	for piece := p.next(); piece != "" && value == ""; piece = p.next() {
		value = Labels{data: piece}.Get(name)
	}
	return value
}

func (ls Labels) hasPacked(name string) (has bool) {
	p := ls.pieces()
	for piece := p.next(); piece != "" && !has; piece = p.next() {
		has = Labels{data: piece}.Has(name)
	}
	return has
}

func (ls Labels) rangePacked(f func(Label)) {
	p := ls.pieces()
	for piece := p.next(); piece != ""; piece = p.next() {
		Labels{data: piece}.Range(f)
	}
}

func (ls Labels) validatePacked(f func(Label) error) (err error) {
	p := ls.pieces()
	for piece := p.next(); piece != "" && err == nil; piece = p.next() {
		err = Labels{data: piece}.Validate(f)
	}
	return err
}

// size is how many bytes the labels are as a whole.
func (ls Labels) size() (n int) {
	p := ls.pieces()
	for piece := p.next(); piece != ""; piece = p.next() {
		n += len(piece)
	}
	return n
}

// equalPacked is Equal where one or both are packed.
func equalPacked(a, b Labels) bool {
	if a.data == b.data {
		return true
	}
	pa, pb := a.pieces(), b.pieces()
	x, y := pa.next(), pb.next()
	for x != "" && y != "" {
		n := min(len(x), len(y))
		if x[:n] != y[:n] {
			return false
		}
		if x = x[n:]; x == "" {
			x = pa.next()
		}
		if y = y[n:]; y == "" {
			y = pb.next()
		}
	}
	return x == y
}

// comparePacked is Compare where one or both are packed.
func comparePacked(a, b Labels) int {
	if a.isPacked() && b.isPacked() {
		p, q := a.packed(), b.packed()
		edits := p.edits.string()
		if p.edits == q.edits && edits[0] == editFirst { // Series with one name mostly share the edits.
			return Compare(p.baseRest(), q.baseRest())
		}
		if p.base == q.base && p.size == q.size {
			if order, ok := compareEdits(edits, q.edits.string()); ok {
				return order
			}
		}
	}
	if aFirst, aRest, ok := a.firstAndRest(); ok {
		if bFirst, bRest, ok := b.firstAndRest(); ok {
			if aFirst != bFirst {
				return Compare(Labels{data: aFirst}, Labels{data: bFirst})
			}
			return Compare(Labels{data: aRest}, Labels{data: bRest})
		}
	}
	pa, pb := a.pieces(), b.pieces()
	x, y := pa.next(), pb.next()
	for x != "" && y != "" {
		if pa.done() && pb.done() {
			break // Mostly what is long.
		}
		n := min(len(x), len(y))
		if x[:n] != y[:n] {
			break
		}
		if x = x[n:]; x == "" {
			x = pa.next()
		}
		if y = y[n:]; y == "" {
			y = pb.next()
		}
	}
	return Compare(Labels{data: x}, Labels{data: y})
}

// compareEdits compares the labels that edits make of the same base, if these differ in
// what they put at the same place.
func compareEdits(a, b string) (order int, ok bool) {
	for a != "" && b != "" {
		edit, n := uvarint(a)
		if other, _ := uvarint(b); edit != other {
			break
		}
		a, b = a[n:], b[n:]
		if edit&(1<<editBits-1) == editDelete {
			continue
		}
		x, y := firstLabel(a), firstLabel(b)
		if x != y {
			return Compare(Labels{data: x}, Labels{data: y}), true
		}
		a, b = a[len(x):], b[len(y):]
	}
	return 0, a == b
}

// firstAndRest returns the first label and the others, if each is one piece: what many
// label sets with the same metric are, which are sorted.
func (ls Labels) firstAndRest() (first, rest string, ok bool) {
	if !ls.isPacked() {
		first = firstLabel(ls.data)
		return first, ls.data[len(first):], true
	}
	p := ls.packed()
	edits := p.edits.string()
	if edits[0] != editFirst {
		return "", "", false
	}
	return edits[1:], p.baseRest().data, true
}

// baseRest returns the labels of the base without the first.
func (p *Packed) baseRest() Labels {
	base := p.baseData()
	return Labels{data: base[afterLabels(base, 1):]}
}

// dropPacked is DropReserved for packed labels.
func (ls Labels) dropPacked(shouldDrop func(name string) bool) Labels {
	if first, rest, ok := ls.firstAndRest(); ok {
		switch name, _ := decodeString(first, 0); {
		case name[0] > '_':
			return ls
		case shouldDrop(name):
			return Labels{data: rest}.DropReserved(shouldDrop)
		}
	}
	whole, _ := ls.Whole()
	return whole.DropReserved(shouldDrop)
}
