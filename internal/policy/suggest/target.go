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

// target is a value of the policy that a log can say something about. No bound is +Inf.
type target struct {
	// name is how it is measured and shown, path are its keys below limits.
	name string
	path []string
	get  func(*querylimit.Options) (amount float64, mode querylimit.Mode)
	// floor is what costs no server anything: no limit is suggested below it. Most
	// is what can be configured.
	floor, most float64
	duration    bool
}

// hasMode reports whether there is a mode: a deadline is always in force.
func (t *target) hasMode() bool { return t.path[0] != querylimit.LimitDeadline }

// floors of limits on numbers.
var floors = map[string]float64{
	querylimit.LimitQueryBytes:     4096,
	querylimit.LimitQueryOperators: 100,
	querylimit.LimitRegexSize:      1000,
}

const (
	day = 24 * time.Hour
	// longest is the longest duration that is suggested: no server has older samples.
	longest = 100 * 365 * day
)

// targets returns every value, in the order in which they are shown.
func targets() []target {
	var deadlines, counts, durations, responses []target
	for _, c := range querylimit.Classes() {
		deadlines = append(deadlines, duration(10*time.Second, func(o *querylimit.Options) (time.Duration, querylimit.Mode) {
			return o.Deadlines[c], querylimit.ModeEnforce
		}, querylimit.LimitDeadline+"."+c.String(), querylimit.LimitDeadline, c.String()))
		responses = append(responses, target{
			// The log counts bytes as they are sent, which may be compressed.
			name: querylimit.LimitResponseBytes + "." + c.String(), path: []string{querylimit.LimitResponseBytes, c.String(), "wire_max"},
			get: func(o *querylimit.Options) (float64, querylimit.Mode) {
				return orNone(o.Responses.Classes[c].WireMax), o.Responses.Mode
			},
			floor: 1 << 20, most: math.MaxInt32,
		})
	}
	for _, c := range querylimit.Counts() {
		if c.Auto() {
			continue // A log does not know the server.
		}
		if c.IsTime {
			durations = append(durations, duration(day, func(o *querylimit.Options) (time.Duration, querylimit.Mode) {
				return time.Duration(c.Of(o).Max), c.Of(o).Mode
			}, c.Name, c.Name, "max"))
			continue
		}
		counts = append(counts, target{
			name: c.Name, path: []string{c.Name, "max"},
			get: func(o *querylimit.Options) (float64, querylimit.Mode) {
				return float64(c.Of(o).Max), c.Of(o).Mode
			},
			floor: floors[c.Name], most: float64(c.Ceiling),
		})
	}
	metadata := duration(day, func(o *querylimit.Options) (time.Duration, querylimit.Mode) {
		return o.MetadataRange.Max, o.MetadataRange.Mode
	}, querylimit.LimitMetadataRange, querylimit.LimitMetadataRange, "max")
	return slices.Concat(deadlines, counts, durations, []target{metadata}, responses)
}

// duration returns a target that is a time.
func duration(floor time.Duration, get func(*querylimit.Options) (time.Duration, querylimit.Mode), name string, path ...string) target {
	return target{
		name: name, path: path, floor: float64(floor), most: float64(longest), duration: true,
		get: func(o *querylimit.Options) (float64, querylimit.Mode) {
			bound, mode := get(o)
			return orNone(bound), mode
		},
	}
}

// orNone returns the amount of a bound of which 0 is none.
func orNone[N ~int64](bound N) float64 {
	if bound == 0 {
		return math.Inf(1)
	}
	return float64(bound)
}

// bound returns what was seen with a margin, but no less than the floor, rounded so
// that more passes. It is +Inf if that cannot be configured.
func (t *target) bound(base, margin, floor float64) float64 {
	if base > t.most {
		return math.Inf(1)
	}
	amount := min(max(base*margin, floor), t.most)
	unit := t.unit(amount)
	return min(math.Ceil(amount/unit)*unit, t.most)
}

// unit is what a value is a multiple of that is easy to read.
func (t *target) unit(v float64) float64 {
	if !t.duration {
		return math.Pow(10, max(math.Floor(math.Log10(max(v, 1)))-1, 0)) // Two digits.
	}
	for _, unit := range []time.Duration{day, time.Hour, 10 * time.Minute, time.Minute} {
		if v >= float64(3*unit) {
			return float64(unit)
		}
	}
	return float64(time.Second)
}

// text writes an amount for people, and as the policy has it.
func (t *target) text(amount float64) string {
	if math.IsInf(amount, 1) {
		return "unbounded"
	}
	if t.duration {
		return durationText(time.Duration(min(amount, float64(longest))))
	}
	return strconv.FormatFloat(amount, 'f', 0, 64)
}

func durationText(d time.Duration) string {
	switch {
	case d > time.Hour:
		d = d.Round(time.Minute)
	case d > 10*time.Second:
		d = d.Round(time.Second)
	}
	return model.Duration(d).String()
}

// with returns an amount as text with its mode.
func (t *target) with(amount float64, mode querylimit.Mode) string {
	if !t.hasMode() {
		return t.text(amount)
	}
	return mode.String() + " " + t.text(amount)
}
