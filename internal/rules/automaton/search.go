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
// the same text.
type search struct {
	alphabet alphabet
	machines []*machine
	seen     map[string]bool
	queue    []place
}

// place is where a search stands: a state per machine, and how it came there.
type place struct {
	states []int
	from   int
	read   rune
	// value is which value is being read, in a joined search.
	value int
}

func newSearch(sets []*Set) *search {
	a := newAlphabet(sets)
	s := &search{alphabet: a, seen: map[string]bool{}}
	for _, set := range sets {
		s.machines = append(s.machines, newMachine(set, a))
	}
	return s
}

func (s *search) run() (string, bool, error) {
	s.visit(place{states: make([]int, len(s.machines)), from: -1})
	for i := 0; i < len(s.queue); i++ {
		p := s.queue[i]
		if s.accepts(p.states) {
			return s.text(i), true, nil
		}
		if s.exhausted() {
			return "", false, ErrTooLarge
		}
		for class, r := range s.alphabet {
			next := make([]int, len(p.states))
			dead := false
			for k, m := range s.machines {
				next[k] = m.step(p.states[k], class)
				dead = dead || m.dead(next[k])
			}
			if !dead {
				s.visit(place{states: next, from: i, read: r})
			}
		}
	}
	return "", false, nil
}

func (s *search) accepts(states []int) bool {
	for k, m := range s.machines {
		if !m.accepts(states[k]) {
			return false
		}
	}
	return true
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

// text returns what was read up to a place.
func (s *search) text(i int) string {
	var runes []rune
	for ; s.queue[i].from >= 0; i = s.queue[i].from {
		runes = append(runes, s.queue[i].read)
	}
	slices.Reverse(runes)
	return string(runes)
}

// joinedSearch is a search for several values at once. The first machine reads
// all of the text; the others read a value each, from one separator to the next.
// A value may contain the separator, so each one read may end the value or not.
type joinedSearch struct {
	search
	separator int // Its class.
	// owner says which value a machine belongs to; the first has none.
	owner  []int
	values int
}

// ends is what a joined search reads where a value ends. It is no rune.
const ends rune = -1

func newJoinedSearch(joined *Set, separator rune, values [][]*Set) *joinedSearch {
	all := []*Set{joined}
	owner := []int{-1}
	for v, sets := range values {
		for _, set := range sets {
			all = append(all, set)
			owner = append(owner, v)
		}
	}
	a := newAlphabet(all, separator)
	s := &joinedSearch{
		search:    search{alphabet: a, seen: map[string]bool{}},
		separator: slices.Index(a, separator),
		owner:     owner,
		values:    len(values),
	}
	for _, set := range all {
		s.machines = append(s.machines, newMachine(set, a))
	}
	return s
}

func (s *joinedSearch) run() ([]string, bool, error) {
	s.visit(place{states: make([]int, len(s.machines)), from: -1})
	for i := 0; i < len(s.queue); i++ {
		p := s.queue[i]
		if p.value == s.values-1 && s.machines[0].accepts(p.states[0]) && s.valueAccepts(p) {
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

// read goes on in the same value.
func (s *joinedSearch) read(i, class int, r rune) {
	p := s.queue[i]
	next := slices.Clone(p.states)
	for k, m := range s.machines {
		if s.owner[k] != -1 && s.owner[k] != p.value {
			continue
		}
		next[k] = m.step(p.states[k], class)
		if m.dead(next[k]) {
			return
		}
	}
	s.visit(place{states: next, from: i, read: r, value: p.value})
}

// endValue reads the separator between two values.
func (s *joinedSearch) endValue(i int) {
	p := s.queue[i]
	if p.value+1 >= s.values || !s.valueAccepts(p) {
		return
	}
	next := slices.Clone(p.states)
	next[0] = s.machines[0].step(p.states[0], s.separator)
	if s.machines[0].dead(next[0]) {
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

func (s *joinedSearch) valueAccepts(p place) bool {
	for k, m := range s.machines {
		if s.owner[k] == p.value && !m.accepts(p.states[k]) {
			return false
		}
	}
	return true
}

// texts returns the values read up to a place.
func (s *joinedSearch) texts(i int) []string {
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
