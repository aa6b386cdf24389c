// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package automaton

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"unicode"
)

// alphabet divides the runes into classes whose runes no machine can tell apart,
// and has one rune of each.
type alphabet []rune

// preferred are the runes that stand for their class where there is a choice, so
// that a witness is readable.
var preferred = []rune("a0A/-._ :")

// newAlphabet returns the classes that the sets distinguish. The runes extra are
// each a class of their own.
func newAlphabet(sets []*Set, extra ...rune) alphabet {
	// Each cut is the first rune of a class. There is no text in the surrogates.
	cuts := []rune{0, 0xD800, 0xE000}
	single := func(r rune) { cuts = append(cuts, r, r+1) }
	for _, r := range extra {
		single(r)
	}
	for _, s := range sets {
		if s.literal {
			for _, r := range s.text {
				single(r)
			}
			continue
		}
		for i := range s.prog.Inst {
			cuts = appendCuts(cuts, &s.prog.Inst[i])
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var out alphabet
	for i, low := range cuts {
		high := rune(unicode.MaxRune)
		if i+1 < len(cuts) {
			high = cuts[i+1] - 1
		}
		if low > unicode.MaxRune || low == 0xD800 || low > 0xD800 && low < 0xE000 {
			continue
		}
		out = append(out, representative(low, high))
	}
	return out
}

func appendCuts(cuts []rune, inst *syntax.Inst) []rune {
	switch inst.Op {
	case syntax.InstRune, syntax.InstRune1:
		if len(inst.Rune) == 1 {
			cuts = append(cuts, inst.Rune[0], inst.Rune[0]+1)
			if syntax.Flags(inst.Arg)&syntax.FoldCase != 0 {
				for r := unicode.SimpleFold(inst.Rune[0]); r != inst.Rune[0]; r = unicode.SimpleFold(r) {
					cuts = append(cuts, r, r+1)
				}
			}
			return cuts
		}
		for i := 0; i+1 < len(inst.Rune); i += 2 {
			cuts = append(cuts, inst.Rune[i], inst.Rune[i+1]+1)
		}
	case syntax.InstRuneAnyNotNL:
		cuts = append(cuts, '\n', '\n'+1)
	case syntax.InstEmptyWidth:
		// What \b and (?m)^ look at.
		cuts = append(cuts, '\n', '\n'+1, '0', '9'+1, 'A', 'Z'+1, '_', '_'+1, 'a', 'z'+1)
	}
	return cuts
}

func representative(low, high rune) rune {
	for _, r := range preferred {
		if low <= r && r <= high {
			return r
		}
	}
	return low
}

// machine runs one set as a deterministic automaton whose states are made when
// they are first reached.
type machine struct {
	set      *Set
	alphabet alphabet
	// looksAround is set if an assertion depends on the rune before.
	looksAround bool
	runes       []rune // Of a literal.

	numbers map[string]int
	states  []state
	// steps counts the work done.
	steps int
}

type state struct {
	// at is the position in a literal, or -1 where the text has left it.
	at int
	// threads are instructions before which the regex may be, assertions not yet
	// followed, sorted; before is a rune like the one read last, or -1.
	threads []uint32
	before  rune
	// next has the state after each class of the alphabet, or -1 while unknown.
	next    []int
	accepts bool
}

func newMachine(s *Set, a alphabet) *machine {
	m := &machine{set: s, alphabet: a, numbers: map[string]int{}}
	if s.literal {
		m.runes = []rune(s.text)
		m.literalState(0)
		return m
	}
	for i := range s.prog.Inst {
		m.looksAround = m.looksAround || s.prog.Inst[i].Op == syntax.InstEmptyWidth
	}
	m.regexState([]uint32{uint32(s.prog.Start)}, -1)
	return m
}

// step returns the state after the class in a state. States are numbered from 0,
// where the machine starts.
func (m *machine) step(from, class int) int {
	if to := m.states[from].next[class]; to >= 0 {
		return to
	}
	r := m.alphabet[class]
	var to int
	if m.set.literal {
		at := m.states[from].at
		if at >= 0 && at < len(m.runes) && m.runes[at] == r {
			to = m.literalState(at + 1)
		} else {
			to = m.literalState(-1)
		}
	} else {
		to = m.stepRegex(from, r)
	}
	m.states[from].next[class] = to
	return to
}

// accepts reports whether the text that led to the state is in the set.
func (m *machine) accepts(s int) bool {
	return m.states[s].accepts != m.set.negated
}

// dead reports whether no text that begins with the one that led to the state is
// in the set, where that is easy to see.
func (m *machine) dead(s int) bool {
	if m.set.negated {
		return false
	}
	if m.set.literal {
		return m.states[s].at < 0
	}
	return len(m.states[s].threads) == 0
}

func (m *machine) literalState(at int) int {
	key := string(binary.AppendVarint(nil, int64(at)))
	return m.add(key, state{at: at, accepts: at == len(m.runes)})
}

func (m *machine) add(key string, s state) int {
	if n, ok := m.numbers[key]; ok {
		return n
	}
	s.next = slices.Repeat([]int{-1}, len(m.alphabet))
	m.numbers[key] = len(m.states)
	m.states = append(m.states, s)
	return len(m.states) - 1
}

func (m *machine) regexState(threads []uint32, before rune) int {
	var key []byte
	for _, t := range threads {
		key = binary.AppendUvarint(key, uint64(t))
	}
	if m.looksAround {
		before = kindOf(before)
		key = binary.AppendVarint(append(key, 0xff), int64(before))
	}
	if n, ok := m.numbers[string(key)]; ok {
		return n
	}
	accepts := false
	for _, pc := range m.follow(threads, before, -1) {
		accepts = accepts || m.set.prog.Inst[pc].Op == syntax.InstMatch
	}
	return m.add(string(key), state{threads: threads, before: before, accepts: accepts})
}

func (m *machine) stepRegex(from int, r rune) int {
	s := m.states[from]
	var next []uint32
	for _, pc := range m.follow(s.threads, s.before, r) {
		inst := &m.set.prog.Inst[pc]
		switch inst.Op {
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			if inst.MatchRune(r) {
				next = append(next, inst.Out)
			}
		}
	}
	slices.Sort(next)
	return m.regexState(slices.Compact(next), r)
}

// follow returns the instructions that read a rune or match, reachable from the
// threads between the two runes.
func (m *machine) follow(threads []uint32, before, after rune) []uint32 {
	flags := syntax.EmptyOpContext(before, after)
	seen := make(map[uint32]bool, 2*len(threads))
	var out []uint32
	stack := slices.Clone(threads)
	for len(stack) > 0 {
		pc := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		m.steps++
		switch inst := &m.set.prog.Inst[pc]; inst.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			stack = append(stack, inst.Out, inst.Arg)
		case syntax.InstCapture, syntax.InstNop:
			stack = append(stack, inst.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(inst.Arg)&^flags == 0 {
				stack = append(stack, inst.Out)
			}
		case syntax.InstFail:
		default:
			out = append(out, pc)
		}
	}
	return out
}

// kindOf returns a rune that assertions cannot tell from r.
func kindOf(r rune) rune {
	switch {
	case r < 0, r == '\n':
		return r
	case syntax.IsWordChar(r):
		return 'a'
	}
	return ' '
}
