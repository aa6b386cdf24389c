// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package automaton

import (
	"encoding/binary"
	"slices"
)

// Limits of one search. Real matchers and rules stay below a thousandth of them.
const (
	maxStates = 20_000
	maxSteps  = 4_000_000
)

// search goes breadth-first through the states that all machines can be in after
// the same text, which is that of a value, or of several joined by a separator. A
// machine reads one value, from one separator to the next, or all of the text. A value
// may contain the separator, so each one read may end the value or not.
type search struct {
	alphabet alphabet
	machines []*machine
	// owner says which value a machine reads, or is whole.
	owner     []int
	values    int
	separator int // Its class.

	seen  map[string]bool
	queue []place
}

// whole is the owner of a machine that reads all of the text.
const whole = -1

// place is where a search stands: a state per machine, and how it came there.
type place struct {
	states []int
	from   int
	read   rune
	value  int // which is being read
}

// ends is what a search reads where a value ends. It is no rune.
const ends rune = -1

// newSearch searches for one value each that is in all sets of its element.
func newSearch(a alphabet, values [][]*Set) *search {
	s := &search{alphabet: a, values: len(values), seen: map[string]bool{}}
	for v, sets := range values {
		for _, set := range sets {
			s.add(set, v)
		}
	}
	return s
}

func (s *search) add(set *Set, owner int) {
	s.machines = append(s.machines, newMachine(set, s.alphabet))
	s.owner = append(s.owner, owner)
}

func (s *search) run() ([]string, bool, error) {
	s.visit(place{states: make([]int, len(s.machines)), from: -1})
	for i := 0; i < len(s.queue); i++ {
		p := s.queue[i]
		if p.value == s.values-1 && s.accept(p, whole) && s.accept(p, p.value) {
			return s.texts(i), true, nil
		}
		if s.exhausted() {
			return nil, false, ErrTooLarge
		}
		s.endValue(i)
		for class, r := range s.alphabet {
			s.read(i, class, r)
		}
	}
	return nil, false, nil
}

// accept reports whether all machines of an owner accept what they have read.
func (s *search) accept(p place, owner int) bool {
	for k, m := range s.machines {
		if s.owner[k] == owner && !m.accepts(p.states[k]) {
			return false
		}
	}
	return true
}

// step returns the states after the class in the machines that read a value or all of
// the text, or nil if one of them is dead then.
func (s *search) step(p place, class, owner int) []int {
	next := slices.Clone(p.states)
	for k, m := range s.machines {
		if s.owner[k] != whole && s.owner[k] != owner {
			continue
		}
		if next[k] = m.step(p.states[k], class); m.dead(next[k]) {
			return nil
		}
	}
	return next
}

// read goes on in the same value.
func (s *search) read(i, class int, r rune) {
	p := s.queue[i]
	if next := s.step(p, class, p.value); next != nil {
		s.visit(place{states: next, from: i, read: r, value: p.value})
	}
}

// endValue reads the separator between two values.
func (s *search) endValue(i int) {
	p := s.queue[i]
	if p.value+1 >= s.values || !s.accept(p, p.value) {
		return
	}
	next := s.step(p, s.separator, whole)
	if next == nil {
		return
	}
	for k := range s.machines {
		// What a value's machines end in no longer matters.
		if s.owner[k] == p.value {
			next[k] = 0
		}
	}
	s.visit(place{states: next, from: i, read: ends, value: p.value + 1})
}

func (s *search) exhausted() bool {
	steps := 0
	for _, m := range s.machines {
		steps += m.steps
	}
	return len(s.queue) > maxStates || steps > maxSteps
}

func (s *search) visit(p place) {
	key := binary.AppendUvarint(nil, uint64(p.value))
	for _, n := range p.states {
		key = binary.AppendUvarint(key, uint64(n))
	}
	if !s.seen[string(key)] {
		s.seen[string(key)] = true
		s.queue = append(s.queue, p)
	}
}

// texts returns the values read up to a place.
func (s *search) texts(i int) []string {
	out := make([]string, s.values)
	runes := make([][]rune, s.values)
	for ; s.queue[i].from >= 0; i = s.queue[i].from {
		if p := s.queue[i]; p.read != ends {
			runes[p.value] = append(runes[p.value], p.read)
		}
	}
	for v := range runes {
		slices.Reverse(runes[v])
		out[v] = string(runes[v])
	}
	return out
}
