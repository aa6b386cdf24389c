// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package grafana

import (
	"math"
	"time"
)

// Frame is a data frame of a series as Grafana's server sends it to the browser: a
// field of times and one of values.
type Frame struct {
	Schema frameSchema `json:"schema"`
	Data   frameData   `json:"data"`
}

type frameSchema struct {
	RefID  string       `json:"refId"`
	Name   string       `json:"name,omitempty"`
	Meta   frameMeta    `json:"meta"`
	Fields []frameField `json:"fields"`
}

type frameMeta struct {
	Type   string            `json:"type"`
	Custom map[string]string `json:"custom"`
}

type frameField struct {
	Name   string            `json:"name"`
	Type   string            `json:"type"`
	Labels map[string]string `json:"labels,omitempty"`
	Config fieldConfig       `json:"config"`
}

type fieldConfig struct {
	DisplayName string `json:"displayNameFromDS,omitempty"`
	// Interval is how far points may lie apart before there is a gap, in milliseconds.
	Interval int64 `json:"interval,omitempty"`
}

// frameData has a list of values for each field. JSON has no infinities and no NaN:
// where they are is said beside.
type frameData struct {
	Values   [2][]any    `json:"values"`
	Entities [2]entities `json:"entities"`
}

type entities struct {
	NaN    []int `json:"NaN,omitempty"`
	Inf    []int `json:"Inf,omitempty"`
	NegInf []int `json:"NegInf,omitempty"`
}

func frame(t Target, expr string, every time.Duration, s Series) (Frame, error) {
	name, kind := legend(t.LegendFormat, expr, s.Metric), "timeseries-multi"
	points, resultType := s.Values, "matrix"
	if t.Instant {
		points, resultType, kind = []point{*s.Value}, "vector", "numeric-multi"
	}
	f := Frame{Schema: frameSchema{
		RefID: t.RefID, Name: name, Meta: frameMeta{Type: kind, Custom: map[string]string{"resultType": resultType}},
		Fields: []frameField{
			{Name: "Time", Type: "time", Config: fieldConfig{Interval: every.Milliseconds()}},
			{Name: "Value", Type: "number", Labels: s.Metric, Config: fieldConfig{DisplayName: name}},
		},
	}}
	if metric := s.Metric["__name__"]; metric != "" {
		f.Schema.Fields[1].Name = metric
	}
	for i, p := range points {
		ms, v, err := p.parse()
		if err != nil {
			return Frame{}, err
		}
		f.Data.Values[0] = append(f.Data.Values[0], ms)
		f.Data.Values[1] = append(f.Data.Values[1], number(&f.Data.Entities[1], i, v))
	}
	return f, nil
}

// number is what JSON has for a value.
func number(e *entities, i int, v float64) any {
	switch {
	case math.IsNaN(v):
		e.NaN = append(e.NaN, i)
	case math.IsInf(v, 1):
		e.Inf = append(e.Inf, i)
	case math.IsInf(v, -1):
		e.NegInf = append(e.NegInf, i)
	default:
		return v
	}
	return nil
}
