// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/perf/benchfmt"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/internal/proc"
	"github.com/promguard/promguard/bench/oomstorm/internal/probe"
	"github.com/promguard/promguard/bench/oomstorm/internal/slots"
	"github.com/promguard/promguard/bench/oomstorm/internal/storm"
)

// stormResult is what came of one binary's storm. A server that ended early has
// a result for the time it lived.
type stormResult struct {
	Binary  binary.Binary `json:"binary"`
	Series  int           `json:"series"`
	Buckets int           `json:"bucket_series"`
	// Rest is the RSS at rest, Limit the limit of memory, 0 for none; in bytes.
	Rest    int64  `json:"rest_bytes"`
	Limit   int64  `json:"limit_bytes"`
	LimitBy string `json:"limit_by"`
	// GOMemLimit is what the server says that it aims for.
	GOMemLimit string `json:"gomemlimit"`

	Survived bool `json:"survived"`
	// Lived is the seconds from the begin of the storm to the end of the storm
	// or of the server.
	Lived float64 `json:"lived_seconds"`
	// How the server ended, if it did, and its last log lines.
	How  string   `json:"how,omitempty"`
	Log  []string `json:"log,omitempty"`
	Peak peak     `json:"peak"`

	// Scrapes and Rules are those due in the time the server lived.
	Scrapes      slots.Count `json:"scrapes"`
	Rules        slots.Count `json:"rule_evaluations"`
	RuleFailures int         `json:"rule_failures"`

	Unloaded  probe.Result `json:"unloaded"`
	Meanwhile probe.Result `json:"meanwhile"`
	Answers   storm.Result `json:"answers"`

	// Recovered is the seconds after the storm until the RSS was within a tenth
	// of that at rest, Terminated from SIGTERM to the end; nil if it was not.
	Recovered  *float64 `json:"recovered_seconds"`
	Terminated *float64 `json:"terminated_seconds"`
}

// peak is the most memory from the begin of the storm on, in bytes.
type peak struct {
	HWM  int64 `json:"vmhwm_bytes"` // as the kernel saw it
	RSS  int64 `json:"rss_bytes"`   // as sampled
	Anon int64 `json:"anon_bytes"`  // as sampled
}

func peaks(m proc.Memory) peak { return peak{HWM: max(m.Peak, m.RSS), RSS: m.RSS, Anon: m.Anon} }

func seconds(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}

// ratio is how many times slower the innocent query was.
func (r *stormResult) ratio() float64 {
	if r.Unloaded.Query.P99 == 0 {
		return 0
	}
	return r.Meanwhile.Query.P99 / r.Unloaded.Query.P99
}

func writeStorms(w io.Writer, c stormConfig, results []stormResult) error {
	switch c.Format {
	case "json":
		return writeJSON(w, results)
	case "benchfmt":
		return benchStorms(w, c, results)
	default:
		return tableStorms(w, results)
	}
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// tableStorms writes a column for each binary.
func tableStorms(w io.Writer, results []stormResult) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, cell func(r *stormResult) string) {
		fmt.Fprint(tw, name)
		for i := range results {
			fmt.Fprint(tw, "\t", cell(&results[i]))
		}
		fmt.Fprintln(tw)
	}
	row("", func(r *stormResult) string { return r.Binary.Name })
	row("storm", (*stormResult).fate)
	row("ended by", func(r *stormResult) string { return cmp.Or(r.How, "-") })
	row("series (with le)", func(r *stormResult) string { return fmt.Sprintf("%d (%d)", r.Series, r.Buckets) })
	row("RSS at rest", func(r *stormResult) string { return mib(r.Rest) })
	row("limit", func(r *stormResult) string { return r.LimitBy })
	row("GOMEMLIMIT", func(r *stormResult) string { return cmp.Or(r.GOMemLimit, "-") })
	row("peak RSS (VmHWM)", func(r *stormResult) string { return mib(r.Peak.HWM) })
	row("peak RSS over rest", func(r *stormResult) string { return mib(r.Peak.HWM - r.Rest) })
	row("peak anonymous", func(r *stormResult) string { return mib(r.Peak.Anon) })
	row("scrapes missed", func(r *stormResult) string { return missed(r.Scrapes) })
	row("rule evaluations missed", func(r *stormResult) string { return missed(r.Rules) })
	row("rules failed", func(r *stormResult) string { return strconv.Itoa(r.RuleFailures) })
	probeRows(row, "sum(up)", func(p probe.Result) probe.Summary { return p.Query })
	row("sum(up) p99 ratio", func(r *stormResult) string { return fmt.Sprintf("%.1f", r.ratio()) })
	probeRows(row, "healthy", func(p probe.Result) probe.Summary { return p.Health })
	row("at rest again after", func(r *stormResult) string { return optional(r.Recovered) })
	row("SIGTERM ended it after", func(r *stormResult) string { return optional(r.Terminated) })
	for _, k := range storm.Kinds {
		if slices.ContainsFunc(results, func(r stormResult) bool { return r.Answers[k.Name] != nil }) {
			row("answers "+k.Name, func(r *stormResult) string { return outcomes(r.Answers[k.Name]) })
		}
	}
	return tw.Flush()
}

func (r *stormResult) fate() string {
	if r.Survived {
		return fmt.Sprintf("survived %.0f s", r.Lived)
	}
	return fmt.Sprintf("ended at second %.1f", r.Lived)
}

func missed(c slots.Count) string { return fmt.Sprintf("%d of %d", c.Missed, c.Expected) }

func optional(s *float64) string {
	if s == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f s", *s)
}

func probeRows(row func(string, func(*stormResult) string), name string, of func(probe.Result) probe.Summary) {
	for _, phase := range []struct {
		name string
		of   func(*stormResult) probe.Result
	}{
		{"unloaded", func(r *stormResult) probe.Result { return r.Unloaded }},
		{"meanwhile", func(r *stormResult) probe.Result { return r.Meanwhile }},
	} {
		row(name+" "+phase.name+", p50/p99/max ms", func(r *stormResult) string {
			s := of(phase.of(r))
			return fmt.Sprintf("%.1f / %.1f / %.1f, %d of %d failed", 1000*s.P50, 1000*s.P99, 1000*s.Max, s.Failed, s.Count)
		})
	}
}

// outcomes are counts by outcome, and the bytes read.
func outcomes(a *storm.Answers) string {
	if a == nil {
		return "-"
	}
	var parts []string
	for _, outcome := range slices.Sorted(maps.Keys(a.Outcomes)) {
		parts = append(parts, fmt.Sprintf("%s: %d", outcome, a.Outcomes[outcome]))
	}
	return strings.Join(parts, ", ") + "; " + mib(a.Bytes)
}

// metric is a value of the benchmark format, and how it improves.
type metric struct {
	unit, better string
	value        float64
}

func (r *stormResult) metrics() []metric {
	survived := 0.0
	if r.Survived {
		survived = 1
	}
	m := []metric{
		{"survived", "higher", survived},
		{"lived-sec", "higher", r.Lived},
		{"rest-bytes", "lower", float64(r.Rest)},
		{"peak-over-rest-bytes", "lower", float64(r.Peak.HWM - r.Rest)},
		{"peak-anon-bytes", "lower", float64(r.Peak.Anon)},
		{"scrapes-missed", "lower", float64(r.Scrapes.Missed)},
		{"rules-missed", "lower", float64(r.Rules.Missed)},
		{"unloaded-p99-sec", "lower", r.Unloaded.Query.P99},
		{"probe-p50-sec", "lower", r.Meanwhile.Query.P50},
		{"probe-p99-sec", "lower", r.Meanwhile.Query.P99},
		{"probe-failures", "lower", float64(r.Meanwhile.Query.Failed)},
		{"health-failures", "lower", float64(r.Meanwhile.Health.Failed)},
	}
	if r.Recovered != nil {
		m = append(m, metric{"recovered-sec", "lower", *r.Recovered})
	}
	if r.Terminated != nil {
		m = append(m, metric{"terminated-sec", "lower", *r.Terminated})
	}
	return m
}

func benchStorms(w io.Writer, c stormConfig, results []stormResult) error {
	b := newBench(w, c.common, results[0].LimitBy)
	b.set("clients", strconv.Itoa(c.Clients))
	b.set("duration", c.Duration.String())
	for i := range results {
		if err := b.add("Storm/binary="+results[i].Binary.Name, results[i].metrics()); err != nil {
			return err
		}
	}
	return nil
}

// bench writes Go's benchmark format.
type bench struct {
	w      *benchfmt.Writer
	config []benchfmt.Config
	units  map[string]bool // those that were explained
}

func newBench(w io.Writer, c common, limitBy string) *bench {
	b := &bench{w: benchfmt.NewWriter(w), units: map[string]bool{}}
	b.set("goos", runtime.GOOS)
	b.set("goarch", runtime.GOARCH)
	b.set("cpus", strconv.Itoa(runtime.NumCPU()))
	b.set("series", strconv.Itoa(c.Series))
	b.set("limit", limitBy)
	for _, binary := range c.Binaries {
		b.set("version-"+binary.Name, binary.Version)
		if len(binary.Args) > 0 {
			b.set("args-"+binary.Name, strings.Join(binary.Args, " "))
		}
	}
	return b
}

func (b *bench) set(key, value string) {
	b.config = append(b.config, benchfmt.Config{Key: key, Value: []byte(value), File: true})
}

func (b *bench) add(name string, metrics []metric) error {
	r := &benchfmt.Result{Config: b.config, Name: benchfmt.Name(name), Iters: 1}
	for _, m := range metrics {
		if !b.units[m.unit] {
			b.units[m.unit] = true
			err := b.w.Write(&benchfmt.UnitMetadata{UnitMetadataKey: benchfmt.UnitMetadataKey{Unit: m.unit, Key: "better"}, OrigUnit: m.unit, Value: m.better})
			if err != nil {
				return err
			}
		}
		r.Values = append(r.Values, benchfmt.Value{Value: m.value, Unit: m.unit})
	}
	return b.w.Write(r)
}
