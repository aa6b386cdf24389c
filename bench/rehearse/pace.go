// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rehearse

import (
	"slices"
	"time"
)

// stage is a step.
type stage struct {
	name   string
	perGiB float64
	fixed  func(*rehearsal) time.Duration // how long it takes besides
}

// stages are the steps in their order, and how many seconds each takes for each GiB of the
// recording on two processors that do nothing else: to say how long it will be.
var stages = []stage{
	{"recording", 9, nil},
	{"stock", 47, nil},
	{"patched", 19, nil},
	{"heads", 46, nil},
	{"answers", 37, nil},
	{"series", 6, nil},
	{"refused", 24, nil},
	{"scrapes", 0, func(*rehearsal) time.Duration {
		return (firstScrapes + measuredScrapes) * exposed * perSeries
	}},
	{"storm-stock", 43, storming},
	{"storm-patched", 22, storming},
}

func storming(r *rehearsal) time.Duration { return r.Storm }

// pace is how long steps took that were done now, and how long they were expected to take.
type pace struct{ took, expected time.Duration }

// expected splits how long a stage takes by whether that depends on the machine.
func (r *rehearsal) expected(stage int) (work, fixed time.Duration) {
	s := &stages[stage]
	if s.fixed != nil {
		fixed = s.fixed(r)
	}
	return time.Duration(s.perGiB * float64(r.dir.Bytes) / (1 << 30) * float64(time.Second)), fixed
}

// stageOf is the number of a step.
func stageOf(name string) int {
	return slices.IndexFunc(stages, func(s stage) bool { return s.name == name })
}

func (r *rehearsal) paced(name string, took time.Duration) {
	work, fixed := r.expected(stageOf(name))
	r.pace.took += max(0, took-fixed)
	r.pace.expected += work
}

// left says about how long it will be until all is done.
func (r *rehearsal) left(name string, withThis bool) string {
	first := stageOf(name)
	if !withThis {
		first++
	}
	var all, waits time.Duration
	for i := first; i < len(stages); i++ {
		work, fixed := r.expected(i)
		all, waits = all+work, waits+fixed
	}
	if r.pace.expected > 0 {
		all = time.Duration(float64(all) * float64(r.pace.took) / float64(r.pace.expected))
	}
	return "about " + (all + waits).Round(time.Second).String() + " left"
}
