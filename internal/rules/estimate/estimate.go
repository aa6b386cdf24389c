// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package estimate says what drop rules save in an installation: series,
// samples per second, memory of the head, bytes of the write-ahead log and of
// blocks, by rule.
//
// Series are counted for the first rule that drops them, as the rules are
// applied, so that nothing is counted twice. What they cost is derived from the
// counts by [Sizes], which say where they come from.
package estimate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/promguard/promguard/internal/relabel"
)

// Counts are the series of an installation that rules drop.
type Counts struct {
	// Source says what was counted.
	Source string
	// ByRule has the series of each job that each rule of the profile drops.
	ByRule []map[string]int
	// All has all series of each job, also those that stay.
	All map[string]int
	// Head counts all series in memory, 0 if that is not known.
	Head int
	// AlreadyDropped counts what is scraped and not stored.
	AlreadyDropped int
	// Unknown says, by rule, why what it drops could not be counted, or not all
	// of it.
	Unknown []string
	// Approximate says, by rule, what is not exact about its count.
	Approximate []string
	Notes       []string
}

func newCounts(source string, p relabel.Profile) Counts {
	c := Counts{
		Source: source, All: map[string]int{},
		ByRule: make([]map[string]int, len(p.Rules)), Unknown: make([]string, len(p.Rules)), Approximate: make([]string, len(p.Rules)),
	}
	for i := range c.ByRule {
		c.ByRule[i] = map[string]int{}
	}
	return c
}

// Saving is what goes, or would have to be stored.
type Saving struct {
	Series           int     `json:"series"`
	SamplesPerSecond float64 `json:"samples_per_second"`
	// MemoryBytes is the memory of the series that are scraped now, less what is
	// kept of them when they are dropped.
	MemoryBytes      float64 `json:"memory_bytes"`
	WALBytesPerDay   float64 `json:"wal_bytes_per_day"`
	BlockBytesPerDay float64 `json:"block_bytes_per_day"`
}

// Rule is what one rule saves.
type Rule struct {
	ID     string         `json:"id"`
	Class  relabel.Class  `json:"class"`
	Saving                //nolint:embeddedstructfieldcheck // The order is that of the JSON.
	Jobs   map[string]int `json:"jobs"`
	// Unknown says why there is more than was counted, or may be.
	Unknown     string `json:"unknown,omitempty"`
	Approximate string `json:"approximate,omitempty"`
}

// Job is what is scraped of a job.
type Job struct {
	Job             string  `json:"job"`
	Series          int     `json:"series"`
	Dropped         int     `json:"dropped"`
	IntervalSeconds float64 `json:"interval_seconds"`
}

// Estimate is what the rules of a profile save. Make it with New.
type Estimate struct {
	Profile string `json:"profile"`
	Source  string `json:"source"`
	Sizes   Sizes  `json:"sizes"`
	// Rules are sorted by what they save, the most first.
	Rules []Rule `json:"rules"`
	Total Saving `json:"total"`
	// Of is what there is at all, and AlreadyDropped how many series are scraped and
	// dropped now, and not counted.
	Of Saving `json:"of"`
	// HeadSeries counts all series in memory, 0 if that is not known.
	HeadSeries     int      `json:"head_series,omitempty"`
	AlreadyDropped int      `json:"already_dropped,omitempty"`
	Jobs           []Job    `json:"jobs"`
	Notes          []string `json:"notes,omitempty"`
}

// New makes an estimate of what was counted of the profile's rules.
func New(p relabel.Profile, c Counts, in Intervals, sizes Sizes) *Estimate {
	e := &Estimate{Profile: p.Name, Source: c.Source, Sizes: sizes, HeadSeries: c.Head, AlreadyDropped: c.AlreadyDropped, Notes: c.Notes, Rules: []Rule{}, Jobs: []Job{}}
	dropped := map[string]int{}
	for i, r := range p.Rules {
		s := sizes.saving(c.ByRule[i], in)
		s.MemoryBytes -= sizes.DroppedBytesPerSeries * float64(s.Series)
		for job, n := range c.ByRule[i] {
			dropped[job] += n
		}
		e.Total.add(s)
		e.Rules = append(e.Rules, Rule{ID: r.ID, Class: r.Class, Saving: s, Jobs: c.ByRule[i], Unknown: c.Unknown[i], Approximate: c.Approximate[i]})
	}
	e.Of = sizes.saving(c.All, in)
	for _, job := range slices.Sorted(maps.Keys(c.All)) {
		e.Jobs = append(e.Jobs, Job{Job: job, Series: c.All[job], Dropped: dropped[job], IntervalSeconds: in.of(job).Seconds()})
	}
	slices.SortStableFunc(e.Rules, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(b.SamplesPerSecond, a.SamplesPerSecond), cmp.Compare(b.Series, a.Series),
			strings.Compare(b.Unknown, a.Unknown), strings.Compare(a.ID, b.ID))
	})
	return e
}

func (s *Saving) add(o Saving) {
	s.Series += o.Series
	s.SamplesPerSecond += o.SamplesPerSecond
	s.MemoryBytes += o.MemoryBytes
	s.WALBytesPerDay += o.WALBytesPerDay
	s.BlockBytesPerDay += o.BlockBytesPerDay
}

// ExitCode is 0 if all rules were counted, and 2 if some could not be.
func (e *Estimate) ExitCode() int {
	if slices.ContainsFunc(e.Rules, func(r Rule) bool { return r.Unknown != "" }) {
		return 2
	}
	return 0
}

// Jobs returns the jobs of which series were counted.
func (c *Counts) Jobs() []string {
	jobs := maps.Clone(c.All)
	for _, byJob := range c.ByRule {
		maps.Copy(jobs, byJob)
	}
	return slices.Sorted(maps.Keys(jobs))
}

// unknown notes why a rule's series could not be counted.
func (c *Counts) unknown(rule int, format string, args ...any) {
	if c.Unknown[rule] == "" {
		c.Unknown[rule] = fmt.Sprintf(format, args...)
	}
}
