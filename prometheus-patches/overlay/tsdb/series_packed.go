// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package tsdb

import (
	"encoding/binary"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/prometheus/prometheus/model/labels"
)

// packedLabels are the labels of a series: those of a base, which many series share,
// and what is different. They do not change, but wholeLabels sets other edits with the
// same outcome.
//
// The series of a container differ in their names, those of a histogram in their names
// and in le. What they have in common is there once, and what tells a metric from
// others once for all containers.
type packedLabels struct {
	base  text // As in labels.Labels.
	edits text // What to do to the base; see appendEdits.
}

// An edit begins with a number: how many labels of the base stay as they are, and in
// the two lowest bits what comes after them.
const (
	editValue  = iota // The next label has another value, which follows.
	editInsert        // Here is another label, which follows.
	editDelete        // The next label is not there.
	editWhole         // All labels follow, whatever the base is.

	editBits = 2
)

// appendEdits appends what makes the labels of base those of data. It gives up as soon
// as that is more than most.
func appendEdits(edits []byte, base, data string, most int) (_ []byte, ok bool) {
	kept := uint64(0)
	edit := func(kind uint64, with string) {
		edits = append(binary.AppendUvarint(edits, kept<<editBits|kind), with...)
		kept = 0
	}
	for i, j := 0, 0; i < len(base) || j < len(data); {
		order, iValue, jValue := 0, i, j
		switch {
		case i == len(base):
			order, jValue = 1, afterString(data, j)
		case j == len(data):
			order, iValue = -1, afterString(base, i)
		default:
			iValue, jValue = afterString(base, i), afterString(data, j)
			if base[i:iValue] != data[j:jValue] {
				order = compareStrings(base[i:iValue], data[j:jValue])
			}
		}
		switch {
		case order < 0:
			edit(editDelete, "")
			i = afterString(base, iValue)
		case order > 0:
			end := afterString(data, jValue)
			edit(editInsert, data[j:end])
			j = end
		default:
			iEnd, jEnd := afterString(base, iValue), afterString(data, jValue)
			if base[iValue:iEnd] == data[jValue:jEnd] {
				kept++
			} else {
				edit(editValue, data[jValue:jEnd])
			}
			i, j = iEnd, jEnd
		}
		switch {
		case len(edits) > most:
			return edits, false
		case kept == 0 && base[i:] == data[j:]:
			return edits, true // Mostly after the name.
		}
	}
	return edits, true
}

// compareStrings compares two strings that begin with their sizes.
func compareStrings(a, b string) int {
	_, i := stringSize(a, 0)
	_, j := stringSize(b, 0)
	return strings.Compare(a[i:], b[j:])
}

// unpacking is the state of who reads packed labels.
type unpacking struct {
	base, edits string
	at          int // In the base.
}

func (p *packedLabels) unpacking() unpacking {
	base, edits := p.texts()
	return unpacking{base: base, edits: edits}
}

// texts returns a base and the edits to it.
func (p *packedLabels) texts() (base, edits string) {
	edits = p.loadEdits().string()
	if edits != "" && edits[0] == editWhole {
		return edits[1:], ""
	}
	return p.base.string(), edits
}

func (p *packedLabels) loadEdits() text {
	return text{(*byte)(atomic.LoadPointer((*unsafe.Pointer)(unsafe.Pointer(&p.edits.p))))}
}

func (p *packedLabels) storeEdits(t text) {
	atomic.StorePointer((*unsafe.Pointer)(unsafe.Pointer(&p.edits.p)), unsafe.Pointer(t.p))
}

// next returns some labels of the base, and what comes after them: nothing, a label, or
// the value of the last of them.
func (u *unpacking) next() (kept, own string) {
	edit, n := uvarint(u.edits)
	u.edits = u.edits[n:]
	from, to := u.at, u.at
	for range edit >> editBits {
		to = afterString(u.base, afterString(u.base, to))
	}
	switch edit & (1<<editBits - 1) {
	case editValue:
		to = afterString(u.base, to)
		u.at = afterString(u.base, to)
		own = u.take(afterString(u.edits, 0))
	case editInsert:
		u.at = to
		own = u.take(afterString(u.edits, afterString(u.edits, 0)))
	case editDelete:
		u.at = afterString(u.base, afterString(u.base, to))
	}
	return u.base[from:to], own
}

func (u *unpacking) take(n int) (own string) {
	own, u.edits = u.edits[:n], u.edits[n:]
	return own
}

// rest returns what is left of the base after the last edit.
func (u *unpacking) rest() string { return u.base[u.at:] }

// appendTo appends the labels as they are in labels.Labels.
func (p *packedLabels) appendTo(b []byte) []byte {
	u := p.unpacking()
	for u.edits != "" {
		kept, own := u.next()
		b = append(append(b, kept...), own...)
	}
	return append(b, u.rest()...)
}

// unpackedSize is for how many bytes there is room on the stack.
const unpackedSize = 1024

// Labels returns the labels as a whole.
func (p *packedLabels) Labels() labels.Labels {
	if base, edits := p.texts(); edits == "" {
		return asLabels(base)
	}
	return asLabels(string(p.appendTo(make([]byte, 0, unpackedSize))))
}

// equal says whether these are the labels.
func (p *packedLabels) equal(lset labels.Labels) bool {
	u, data := p.unpacking(), asData(lset)
	for u.edits != "" {
		kept, own := u.next()
		if !strings.HasPrefix(data, kept) || !strings.HasPrefix(data[len(kept):], own) {
			return false
		}
		data = data[len(kept)+len(own):]
	}
	return data == u.rest()
}

// hasLabels says whether the series has the labels.
func (s *memSeries) hasLabels(lset labels.Labels) bool { return s.lset.equal(lset) }

// sameLabels says whether the other series has the same labels.
func (s *memSeries) sameLabels(o *memSeries) bool { return s.lset.equalPacked(&o.lset) }

// rangeLabels calls f on each label of the series.
func (s *memSeries) rangeLabels(f func(labels.Label)) { s.lset.Range(f) }

// compareReaders compares what two readers have not read yet.
func compareReaders(ra, rb packedReader) int {
	for {
		if a, ok := ra.left(); ok {
			if b, ok := rb.left(); ok {
				return labels.Compare(asLabels(a), asLabels(b))
			}
		}
		la, aOK := ra.next()
		lb, bOK := rb.next()
		switch {
		case !aOK || !bOK:
			return btoi(aOK) - btoi(bOK)
		case la.Name != lb.Name:
			return strings.Compare(la.Name, lb.Name)
		case la.Value != lb.Value:
			return strings.Compare(la.Value, lb.Value)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// same says whether both are the same bytes.
func (p *packedLabels) same(o *packedLabels) bool {
	return p.base == o.base && p.loadEdits() == o.loadEdits()
}

// equalPacked is equal for other packed labels.
func (p *packedLabels) equalPacked(o *packedLabels) bool {
	if p.same(o) {
		return true
	}
	b := o.appendTo(make([]byte, 0, unpackedSize))
	return p.equal(asLabels(unsafe.String(unsafe.SliceData(b), len(b))))
}

// Hash is that of the labels.
func (p *packedLabels) Hash() uint64 {
	b := p.appendTo(make([]byte, 0, unpackedSize))
	return asLabels(unsafe.String(unsafe.SliceData(b), len(b))).Hash()
}

// String implements fmt.Stringer.
func (p *packedLabels) String() string { return p.Labels().String() }

// Range calls f on each label. Who keeps one keeps what is packed, and nothing besides.
func (p *packedLabels) Range(f func(labels.Label)) {
	r := p.reader()
	for l, ok := r.next(); ok; l, ok = r.next() {
		f(l)
	}
}

// appendLabels appends what Range calls f on.
func (p *packedLabels) appendLabels(ls []labels.Label) []labels.Label {
	r := p.reader()
	for l, ok := r.next(); ok; l, ok = r.next() {
		ls = append(ls, l)
	}
	return ls
}

// packedReader reads packed labels one by one.
type packedReader struct {
	unpacking
	piece, own string // Of what was unpacked, which is not read yet.
}

func (p *packedLabels) reader() packedReader { return packedReader{unpacking: p.unpacking()} }

func (r *packedReader) next() (l labels.Label, ok bool) {
	if l.Name, ok = r.nextString(); ok {
		l.Value, _ = r.nextString()
	}
	return l, ok
}

func (r *packedReader) nextString() (s string, ok bool) {
	for r.piece == "" {
		switch {
		case r.own != "":
			r.piece, r.own = r.own, ""
		case r.edits != "":
			r.piece, r.own = r.unpacking.next()
		case r.at < len(r.base):
			r.piece, r.at = r.rest(), len(r.base)
		default:
			return "", false
		}
	}
	s, n := stringAt(r.piece, 0)
	r.piece = r.piece[n:]
	return s, true
}

// left returns what is not read yet, if that is one piece.
func (r *packedReader) left() (left string, ok bool) {
	switch {
	case r.edits != "" || r.own != "":
		return "", false
	case r.piece == "":
		return r.rest(), true
	default:
		return r.piece, r.at == len(r.base)
	}
}

// text is a string that takes one pointer: its bytes come after their number. The zero
// text is empty.
type text struct{ p *byte }

func newText(s string) text {
	if s == "" {
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
	return binary.Uvarint(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// stringSize, stringAt and afterString read strings of labels.Labels: a byte with the size,
// or 255 and three bytes with it, then the bytes.
func stringSize(data string, at int) (size, from int) {
	if b := data[at]; b < 255 {
		return int(b), at + 1
	}
	return int(data[at+1]) | int(data[at+2])<<8 | int(data[at+3])<<16, at + 4
}

func stringAt(data string, at int) (s string, end int) {
	size, from := stringSize(data, at)
	return data[from : from+size], from + size
}

func afterString(data string, at int) int {
	size, from := stringSize(data, at)
	return from + size
}

// Labels are a string and nothing else.
var _ = [1]struct{}{}[unsafe.Sizeof(labels.Labels{})-unsafe.Sizeof("")]

func asData(lset labels.Labels) string { return *(*string)(unsafe.Pointer(&lset)) }

func asLabels(data string) labels.Labels { return *(*labels.Labels)(unsafe.Pointer(&data)) }

// labelsOfKey returns lset, of which key has the bytes. They are there once.
func labelsOfKey(key string, _ labels.Labels) labels.Labels { return asLabels(key) }
