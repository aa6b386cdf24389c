// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/querylimit"
)

// target is a value of the policy that a log can say something about.
type target struct {
	// name is how it is measured and shown; path and mode are its keys below
	// limits. There is no mode for what is always in force.
	name       string
	path, mode []string
	// get returns what is configured; 0 means no bound.
	get func(*querylimit.Options) (value float64, mode querylimit.Mode)
	// floor is what costs no server anything: no limit is suggested below it. Of a
	// lower bound, none is suggested above it.
	floor float64
	least float64 // that may be configured
	most  float64
	// lower is set for a bound from below.
	lower    bool
	duration bool
	// defaultOf returns what requests that do not say get, at defaultPath; 0 means
	// as much as the bound allows. It is nil where there is no such thing.
	defaultOf   func(*querylimit.Options) float64
	defaultPath []string
}

// floors of limits on numbers.
var floors = map[string]float64{
	querylimit.LimitQueryBytes:     4096,
	querylimit.LimitQueryOperators: 100,
	querylimit.LimitRegexSize:      1000,
	querylimit.LimitExprDepth:      20,
	querylimit.LimitSelectors:      20,
	querylimit.LimitVectorMatching: 3,
	querylimit.LimitCountValues:    1,
	querylimit.LimitTopK:           100,
	querylimit.LimitSubqueries:     3,
	querylimit.LimitSubqueryPoints: 1000,
	querylimit.LimitPoints:         1000,
}

const (
	day          = 24 * time.Hour
	resultsFloor = 1000
	bytesFloor   = 1 << 20
	// longest is the longest duration that is suggested: no server has older samples.
	longest = 100 * 365 * day
)

// targets returns every value, in the order in which they are shown. Floors that
// follow from what is configured are those of o.
func targets(o *querylimit.Options) []target {
	return slices.Concat(deadlines(), counts(), durations(), []target{metadataRange(o)}, results(o), responses())
}

func deadlines() (list []target) {
	for _, c := range querylimit.Classes() {
		list = append(list, target{
			name: querylimit.LimitDeadline + "." + c.String(), path: []string{querylimit.LimitDeadline, c.String()},
			get: func(o *querylimit.Options) (float64, querylimit.Mode) {
				return float64(o.Deadlines[c]), querylimit.ModeEnforce
			},
			floor: float64(10 * time.Second), most: float64(longest), duration: true,
		})
	}
	return list
}

func counts() (list []target) {
	for _, c := range querylimit.Counts() {
		list = append(list, target{
			name: c.Name, path: []string{c.Name, "max"}, mode: []string{c.Name, "mode"},
			get: func(o *querylimit.Options) (float64, querylimit.Mode) {
				b := c.Of(o)
				return float64(b.Max), b.Mode
			},
			floor: floors[c.Name], least: float64(c.Min), most: float64(c.Ceiling),
		})
	}
	return list
}

func durations() (list []target) {
	for _, d := range querylimit.Durations() {
		t := target{
			name: d.Name, path: []string{d.Name, d.Key}, mode: []string{d.Name, "mode"},
			get: func(o *querylimit.Options) (float64, querylimit.Mode) {
				b := d.Of(o)
				return float64(b.Value), b.Mode
			},
			floor: float64(day), most: float64(longest), duration: true,
		}
		if d.Name == querylimit.LimitMinStep {
			t.lower, t.floor = true, float64(15*time.Second)
		}
		list = append(list, t)
	}
	return list
}

func metadataRange(o *querylimit.Options) target {
	return target{
		name: querylimit.LimitMetadataRange, path: []string{querylimit.LimitMetadataRange, "max"}, mode: []string{querylimit.LimitMetadataRange, "mode"},
		get: func(o *querylimit.Options) (float64, querylimit.Mode) {
			return float64(o.MetadataRange.Max), o.MetadataRange.Mode
		},
		floor: float64(max(day, o.MetadataRange.Default)), most: float64(longest), duration: true,
		defaultOf:   func(o *querylimit.Options) float64 { return float64(o.MetadataRange.Default) },
		defaultPath: []string{querylimit.LimitMetadataRange, "default"},
	}
}

func results(o *querylimit.Options) (list []target) {
	for _, s := range querylimit.ResultSets() {
		list = append(list, target{
			name: querylimit.LimitResults + "." + s.String(), path: []string{querylimit.LimitResults, s.String(), "max"}, mode: []string{querylimit.LimitResults, "mode"},
			get: func(o *querylimit.Options) (float64, querylimit.Mode) {
				return float64(o.Results.Sets[s].Max), o.Results.Mode
			},
			floor: float64(max(resultsFloor, o.Results.Sets[s].Default)), most: math.MaxInt32,
			defaultOf:   func(o *querylimit.Options) float64 { return float64(o.Results.Sets[s].Default) },
			defaultPath: []string{querylimit.LimitResults, s.String(), "default"},
		})
	}
	return list
}

func responses() (list []target) {
	for _, c := range querylimit.Classes() {
		list = append(list, target{
			// The log counts bytes as they are sent, which may be compressed.
			name: querylimit.LimitResponseBytes + "." + c.String(), path: []string{querylimit.LimitResponseBytes, c.String(), "wire_max"}, mode: []string{querylimit.LimitResponseBytes, "mode"},
			get: func(o *querylimit.Options) (float64, querylimit.Mode) {
				return float64(o.Responses.Classes[c].WireMax), o.Responses.Mode
			},
			floor: bytesFloor, most: math.MaxInt32,
		})
	}
	return list
}

// text writes a value as the policy has it.
func (t *target) text(v float64) string {
	switch {
	case math.IsInf(v, 0):
		return "unbounded"
	case t.duration && v >= math.MaxInt64: // As a float64, it is one more.
		return durationText(math.MaxInt64)
	case t.duration:
		return durationText(time.Duration(v))
	default:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
}

func durationText(d time.Duration) string {
	switch {
	case d == math.MaxInt64:
		return "all time"
	case d > time.Hour:
		d = d.Round(time.Minute)
	case d > 10*time.Second:
		d = d.Round(time.Second)
	}
	return model.Duration(d).String()
}

// round makes a value easy to read, in the direction that lets more pass.
func (t *target) round(v float64) float64 {
	unit := math.Pow(10, max(math.Floor(math.Log10(max(v, 1)))-1, 0)) // Two digits.
	if t.duration {
		unit = float64(durationUnit(v))
	}
	if t.lower {
		return math.Floor(v/unit) * unit
	}
	return math.Ceil(v/unit) * unit
}

func durationUnit(v float64) time.Duration {
	for _, unit := range []time.Duration{day, time.Hour, 10 * time.Minute, time.Minute, time.Second} {
		if v >= float64(3*unit) {
			return unit
		}
	}
	return time.Second
}
