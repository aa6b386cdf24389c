// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package benchout writes measurements in Go's benchmark format, for benchstat, or as
// JSON, a line each.
package benchout

import (
	"io"

	"golang.org/x/perf/benchfmt"

	"github.com/promguard/promguard/internal/cli"
)

// Writer writes measurements.
type Writer interface {
	Write(record benchfmt.Record) error
}

// New returns a Writer of a format of cli.Output.
func New(w io.Writer, output string) Writer {
	if output == cli.JSON {
		return jsonWriter{w}
	}
	return benchfmt.NewWriter(w)
}

// measured is the JSON of a measurement. Values are by unit.
type measured struct {
	Name   string             `json:"name"`
	Config map[string]string  `json:"config"`
	Values map[string]float64 `json:"values"`
}

type jsonWriter struct{ io.Writer }

func (w jsonWriter) Write(record benchfmt.Record) error {
	r, ok := record.(*benchfmt.Result)
	if !ok { // Which units are better high is for benchstat.
		return nil
	}
	m := measured{string(r.Name), map[string]string{}, map[string]float64{}}
	for _, c := range r.Config {
		m.Config[c.Key] = string(c.Value)
	}
	for _, v := range r.Values {
		m.Values[v.Unit] = v.Value
	}
	return cli.WriteJSON(w.Writer, m)
}
