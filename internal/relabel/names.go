// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// maxRememberedNames bounds what nameIndex remembers. A large cluster has some
// thousand metric names; beyond the bound, rules are looked for anew each time.
const maxRememberedNames = 20_000

// nameIndex remembers which rules a metric name concerns, from its first series
// on. Any number of goroutines may use it.
type nameIndex struct {
	// clean is read without a lock, and never written.
	clean atomic.Pointer[map[string][]int]
	mu    sync.Mutex
	// all has what clean has and what was found since. It becomes clean when it
	// has grown by a quarter, so that copying costs little per name.
	all map[string][]int
}

// rules returns the numbers of the rules that the name concerns, and calls find
// for a name that is not remembered.
func (x *nameIndex) rules(name string, find func(string) []int) []int {
	if clean := x.clean.Load(); clean != nil {
		if rules, ok := (*clean)[name]; ok {
			return rules
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if rules, ok := x.all[name]; ok {
		return rules
	}
	rules := find(name)
	if len(x.all) >= maxRememberedNames {
		return rules
	}
	if x.all == nil {
		x.all = map[string][]int{}
	}
	// A label's value may be a piece of a whole exposition.
	x.all[strings.Clone(name)] = rules
	x.promote()
	return rules
}

func (x *nameIndex) promote() {
	known := 0
	if clean := x.clean.Load(); clean != nil {
		known = len(*clean)
	}
	if len(x.all) <= known+known/4 && len(x.all) < maxRememberedNames {
		return
	}
	clean := maps.Clone(x.all)
	x.clean.Store(&clean)
}
