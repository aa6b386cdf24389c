// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build slicelabels || dedupelabels

package labels

// Packed are labels as they are: those of this implementation are not packed.
type Packed struct{ ls Labels }

// Pack returns ls.
func (ls Labels) Pack() Packed { return Packed{ls} }

// Whole returns ls, which is in one piece.
func (ls Labels) Whole() (whole Labels, made bool) { return ls, false }

// PackCopy returns a copy of ls.
func (ls Labels) PackCopy() Packed { return Packed{ls.Copy()} }

// SetPacking does nothing.
func SetPacking(bool) {}

// PackedBytes returns nothing.
func PackedBytes() (bases, tables int64) { return 0, 0 }

// Labels returns the labels.
func (p *Packed) Labels() Labels { return p.ls }

// Hash is that of the labels.
func (p *Packed) Hash() uint64 { return p.ls.Hash() }

// String implements fmt.Stringer.
func (p *Packed) String() string { return p.ls.String() }

// Range calls f on each label.
func (p *Packed) Range(f func(Label)) { p.ls.Range(f) }
