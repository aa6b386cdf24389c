// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"math/bits"
	"slices"

	"github.com/prometheus/prometheus/tsdb/encoding"
)

// symbolTable finds the symbols that a Writer has written. It holds where they begin in
// the mapped file, 10 bytes for each, in place of their texts.
type symbolTable struct {
	symbols []byte   // In the file, each behind its length.
	begins  []uint32 // Where each begins there.
	slots   []uint32 // Numbers of symbols, plus 1, at the place that their hash says or behind it. 0 is free.
	seed    maphash.Seed
}

// newSymbolTable returns a table of so many symbols.
func newSymbolTable(symbols []byte, count int) (*symbolTable, error) {
	t := &symbolTable{symbols: symbols, begins: make([]uint32, count), slots: make([]uint32, count+count/2+1), seed: maphash.MakeSeed()}
	d := encoding.Decbuf{B: symbols}
	for i := range t.begins {
		t.begins[i] = uint32(len(symbols) - d.Len())
		slot := t.slot(yoloString(d.UvarintBytes()))
		for t.slots[slot] != 0 {
			slot = t.behind(slot)
		}
		t.slots[slot] = uint32(i + 1)
	}
	return t, d.Err()
}

func (t *symbolTable) slot(text string) uint64 {
	slot, _ := bits.Mul64(maphash.String(t.seed, text), uint64(len(t.slots)))
	return slot
}

func (t *symbolTable) behind(slot uint64) uint64 {
	slot++
	if slot == uint64(len(t.slots)) {
		return 0
	}
	return slot
}

// number returns the number of a symbol.
func (t *symbolTable) number(text string) (uint32, bool) {
	for slot := t.slot(text); t.slots[slot] != 0; slot = t.behind(slot) {
		if number := t.slots[slot] - 1; t.text(number) == text {
			return number, true
		}
	}
	return 0, false
}

// text returns a symbol, which is part of the file.
func (t *symbolTable) text(number uint32) string {
	b := t.symbols[t.begins[number]:]
	length, n := binary.Uvarint(b)
	return yoloString(b[n : n+int(length)])
}

// postingsOf writes the postings of some labels, which it finds in the series of the
// file. It holds the numbers of a value and of a series, 8 bytes in uses, for each of the
// latter, and the series of one value, 4 bytes in refs. Both are to have room for all
// series.
func (w *Writer) postingsOf(names []string, file []byte, uses []uint64, refs []uint32) error {
	index, of := make(map[uint32]int, len(names)), make([][]uint64, len(names))
	for i, name := range names {
		number, ok := w.symbols.number(name)
		if !ok {
			return fmt.Errorf("symbol entry for %q does not exist", name)
		}
		count := w.labelNames[name]
		index[number], of[i], uses = i, uses[:0:count], uses[count:]
	}
	d := encoding.NewDecbufRaw(realByteSlice(file), int(w.toc.LabelIndices))
	d.Skip(int(w.toc.Series))
	for d.Len() > 0 {
		d.ConsumePadding()
		ref := (w.toc.LabelIndices - uint64(d.Len())) / seriesByteAlign
		length := d.Uvarint()
		behind := d.Len() - length - crc32.Size
		for range d.Uvarint() {
			name, value := uint32(d.Uvarint()), d.Uvarint64()
			if i, ok := index[name]; ok {
				of[i] = append(of[i], value<<32|ref)
			}
		}
		d.Skip(d.Len() - behind)
		if err := d.Err(); err != nil {
			return err
		}
	}
	for i, name := range names {
		if err := w.postingsOfLabel(name, of[i], refs); err != nil {
			return err
		}
	}
	return nil
}

// postingsOfLabel writes the postings of a label, value by value. Numbers of symbols are in
// the order of their texts.
func (w *Writer) postingsOfLabel(name string, uses []uint64, refs []uint32) error {
	slices.Sort(uses)
	for len(uses) > 0 {
		value := uses[0] >> 32
		if value >= uint64(w.numSymbols) {
			return errors.New("corruption detected when writing postings to index: unknown symbol")
		}
		refs = refs[:0]
		for ; len(uses) > 0 && uses[0]>>32 == value; uses = uses[1:] {
			refs = append(refs, uint32(uses[0]))
		}
		if err := w.writePosting(name, w.symbols.text(uint32(value)), refs); err != nil {
			return err
		}
	}
	return nil
}
