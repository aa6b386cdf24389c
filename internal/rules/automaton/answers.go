// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package automaton

import (
	"encoding/binary"
	"slices"
)

// Answers remembers what [Witness] and [WitnessJoined] said, for who asks about
// the same few sets again and again. The zero value is ready for use, and not
// safe for concurrent use. It keeps some hundred bytes for each question.
type Answers struct {
	known map[string]answer
}

type answer struct {
	texts []string
	ok    bool
	err   error
}

// Witness is the function of that name.
func (a *Answers) Witness(sets ...*Set) (text string, ok bool, err error) {
	if slices.ContainsFunc(sets, func(s *Set) bool { return s.literal && !s.negated }) {
		// Nothing is searched.
		return Witness(sets...)
	}
	got := a.get(appendKeys(nil, sets), func() (out answer) {
		var text string
		text, out.ok, out.err = Witness(sets...)
		out.texts = []string{text}
		return out
	})
	return got.texts[0], got.ok, got.err
}

// WitnessJoined is the function of that name. The texts must not be changed.
func (a *Answers) WitnessJoined(joined *Set, separator rune, values [][]*Set) (texts []string, ok bool, err error) {
	key := binary.AppendVarint([]byte{0xff}, int64(separator))
	key = appendKeys(key, []*Set{joined})
	for _, sets := range values {
		key = appendKeys(key, sets)
	}
	got := a.get(key, func() (out answer) {
		out.texts, out.ok, out.err = WitnessJoined(joined, separator, values)
		return out
	})
	return got.texts, got.ok, got.err
}

func (a *Answers) get(key []byte, ask func() answer) answer {
	if got, ok := a.known[string(key)]; ok {
		return got
	}
	if a.known == nil {
		a.known = map[string]answer{}
	}
	got := ask()
	a.known[string(key)] = got
	return got
}

// appendKeys appends what tells these sets from all others: how many there are,
// and of each the kind and the text with its length.
func appendKeys(key []byte, sets []*Set) []byte {
	key = binary.AppendUvarint(key, uint64(len(sets)))
	for _, s := range sets {
		kind := byte(0)
		if s.literal {
			kind |= 1
		}
		if s.negated {
			kind |= 2
		}
		key = binary.AppendUvarint(append(key, kind), uint64(len(s.text)))
		key = append(key, s.text...)
	}
	return key
}
