// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"fmt"
	"strconv"
)

// ResponseLimit bounds the bytes of an answer; 0 means no bound.
type ResponseLimit struct {
	// Max counts bytes of an answer that is not compressed.
	Max int64
	// WireMax counts bytes of an answer as it is sent, compressed or not.
	WireMax int64
}

// Responses is the limit on the size of answers, by class.
type Responses struct {
	Mode    Mode
	Classes [numClasses]ResponseLimit
}

var defaultResponses = Responses{
	Mode: ModeOff,
	Classes: [numClasses]ResponseLimit{
		ClassQuery:    {Max: 512 << 20},
		ClassMetadata: {Max: 128 << 20},
		ClassStatus:   {Max: 512 << 20},
		ClassBulk:     {Max: 512 << 20},
	},
}

// Validate returns an error that says what is wrong with r.
func (r *Responses) Validate() error {
	for _, c := range Classes() {
		if l := r.Classes[c]; l.Max < 0 || l.WireMax < 0 {
			return fmt.Errorf("%s: %s: max is %d and wire_max %d: use 0 for none, or a positive number", LimitResponseBytes, c, l.Max, l.WireMax)
		}
	}
	return nil
}

// Response returns the limit on the answers of a class, and its mode.
func (p *Policy) Response(c Class) (ResponseLimit, Mode) {
	r := &p.opts.Responses
	if l := r.Classes[c]; r.Mode != ModeOff && (l.Max > 0 || l.WireMax > 0) {
		return l, r.Mode
	}
	return ResponseLimit{}, ModeOff
}

// RefuseResponse returns the refusal of an answer of class c that is longer than limit.
func (p *Policy) RefuseResponse(c Class, limit int64) *Refusal {
	return p.refuse(LimitResponseBytes, p.opts.Responses.Mode, "Select fewer series, a shorter range or a larger step, or give a limit.",
		"the answer", "is longer than the "+strconv.FormatInt(limit, 10)+" bytes allowed", raise(LimitResponseBytes+"."+c.String()))
}
