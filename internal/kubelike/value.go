// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package kubelike

import (
	"math"
	"strconv"
	"time"
)

// mix hashes two numbers into one (the finaliser of splitmix64).
func mix(a, b uint64) uint64 {
	x := a + 0x9e3779b97f4a7c15*(b+1)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashString is FNV-1a.
func hashString(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// unit maps a hash to [0, 1).
func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// formatFloat prints a number as client libraries print it in the text format.
func formatFloat(v float64) string { return string(appendFloat(nil, v)) }

func appendFloat(b []byte, v float64) []byte {
	if math.IsInf(v, 1) {
		return append(b, "+Inf"...)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// value is the template's value for an entity with the given hash, born at a
// time, read at a time; both are since the cluster's start.
func (t *template) value(entity uint64, start time.Time, born, at time.Duration) float64 {
	h := mix(entity, t.id)
	age := max(0, (at - born).Seconds())
	switch t.family.shape {
	case events:
		return math.Floor(total(h, age))
	case seconds:
		return math.Round(total(h, age)*100) / 1000
	case octets:
		return math.Floor(total(h, age) * 1500)
	case level:
		return gauge(h, at.Seconds())
	case always:
		return 1
	case birth:
		return float64(start.Add(born).Unix())
	case now:
		return float64(start.Add(at).Unix())
	case oneOf:
		if t.on {
			return 1
		}
		return 0
	case durations:
		return t.histogram(h, age)
	}
	return 0
}

// total is a counter's value after so many seconds. About two in five counters
// stand still, as in a real cluster; the others rise at rates between one in a
// minute and a hundred per second, faster and slower over a quarter of an hour
// or so, and never fall: the derivative of the sine's term stays below 1.
func total(h uint64, age float64) float64 {
	if h%5 < 2 {
		return float64(h >> 32 & 0xff)
	}
	rate := math.Pow(10, -1.8+3.8*unit(mix(h, 1)))
	period := 300 + 1200*unit(mix(h, 2))
	swing := 0.9 * period / (2 * math.Pi)
	phase := 2 * math.Pi * unit(mix(h, 3))
	return rate * (age + swing*(1+math.Sin(2*math.Pi*age/period+phase)))
}

// gauge is a level that swings by up to a third and jitters by up to 2 % every
// 15 seconds. One in four does not move.
func gauge(h uint64, at float64) float64 {
	base := math.Pow(10, 9*unit(mix(h, 1)))
	if h%4 == 0 {
		return math.Floor(base)
	}
	period := 600 + 3000*unit(mix(h, 2))
	jitter := 0.02 * unit(mix(h, uint64(at/15)))
	return math.Floor(base * (1 + 0.3*math.Sin(2*math.Pi*at/period) + jitter))
}

// histogram is one series of a histogram whose observations are spread
// exponentially around a scale of the histogram's own; so that buckets are
// cumulative and +Inf equals the count, all are made from one total.
func (t *template) histogram(h uint64, age float64) float64 {
	n := math.Floor(total(h, age))
	les := t.family.les
	scale := les[len(les)/4] * (0.5 + 3*unit(mix(h, 4)))
	switch t.part {
	case bucket:
		if math.IsInf(t.le, 1) {
			return n
		}
		return math.Floor(n * (1 - math.Exp(-t.le/scale)))
	case sum:
		return math.Round(n*scale*1e6) / 1e6
	}
	return n
}
