// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"golang.org/x/perf/benchfmt"

	"github.com/promguard/promguard/bench/internal/benchout"
	"github.com/promguard/promguard/bench/oomstorm/internal/clients"
	"github.com/promguard/promguard/bench/oomstorm/internal/scenario"
	"github.com/promguard/promguard/internal/cli"
)

// lastLines of a log are shown of a server that has ended.
const lastLines = 3

// writeFigures writes all figures.
func writeFigures(w benchout.Writer, s *scenario.Scenario, results []result) error {
	var config []benchfmt.Config
	set := func(key, value string) {
		config = append(config, benchfmt.Config{Key: key, Value: []byte(value), File: true})
	}
	set("goos", runtime.GOOS)
	set("goarch", runtime.GOARCH)
	set("cpus", strconv.Itoa(runtime.NumCPU()))
	set("scenario", s.Name)
	set("series", strconv.Itoa(s.Series))
	for _, r := range results {
		name := r.binary.Name
		set("version-"+name, r.binary.Version)
		if len(r.binary.Args) > 0 {
			set("args-"+name, strings.Join(r.binary.Args, " "))
		}
		set("rest-"+name, mib(r.rest))
		set("limit-"+name, r.limitBy)
	}
	for _, f := range scenario.Figures {
		if !slices.ContainsFunc(results, func(r result) bool { return r.measured(f) }) {
			continue
		}
		better := map[bool]string{true: "higher", false: "lower"}[scenario.HigherIsBetter(f)]
		if err := w.Write(&benchfmt.UnitMetadata{UnitMetadataKey: benchfmt.UnitMetadataKey{Unit: f, Key: "better"}, OrigUnit: f, Value: better}); err != nil {
			return err
		}
	}
	for _, r := range results {
		for _, p := range r.phases {
			line := &benchfmt.Result{Config: config, Name: benchfmt.Name("Oomstorm/phase=" + p.name + "/binary=" + r.binary.Name), Iters: 1}
			for _, f := range scenario.Figures {
				if v, ok := p.figures[f]; ok {
					line.Values = append(line.Values, benchfmt.Value{Value: v, Unit: f})
				}
			}
			if err := w.Write(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// judge prints a table and the expectations that were not met, and returns the
// exit code for them.
func judge(out io.Writer, s *scenario.Scenario, results []result) error {
	if err := writeTable(out, s, results); err != nil {
		return err
	}
	for _, r := range results {
		writeEnd(out, r)
	}
	met, unmet := 0, []string(nil)
	for _, e := range s.Expect {
		for _, r := range results {
			if e.Binary != "" && e.Binary != r.binary.Name {
				continue
			}
			other := find(results, e.Times)
			if e.Times != "" && other == nil {
				fmt.Fprintf(out, "not checked: %s: no binary is called %s\n", e.Name, e.Times)
				continue
			}
			if why, ok := check(e, r, other); ok {
				met++
			} else {
				unmet = append(unmet, fmt.Sprintf("UNMET: %s (%s): %s", e.Name, r.binary.Name, why))
			}
		}
	}
	fmt.Fprintf(out, "\n%d expectations met, %d not\n", met, len(unmet))
	for _, u := range unmet {
		fmt.Fprintln(out, u)
	}
	if len(unmet) > 0 {
		return cli.Exit(1)
	}
	return nil
}

func find(results []result, name string) *result {
	i := slices.IndexFunc(results, func(r result) bool { return r.binary.Name == name })
	if i < 0 {
		return nil
	}
	return &results[i]
}

// check says whether a binary met an expectation, and what it had instead. Without
// a phase, it is of all in which the figure was measured.
func check(e scenario.Expectation, r result, other *result) (why string, ok bool) {
	measured := false
	for _, p := range r.phases {
		if e.Phase != "" && p.name != e.Phase {
			continue
		}
		v, known := p.figures[e.Figure]
		if e.Query != "" {
			v, known = p.queries[e.Query]
		}
		if !known {
			continue
		}
		times := 1.0
		if other != nil {
			if times, known = other.figure(p.name, e.Figure); !known {
				return fmt.Sprintf("%s has no %s in %s", e.Times, e.Figure, p.name), false
			}
		}
		measured = true
		of := cmp.Or(e.Figure, e.Query)
		if e.AtMost != nil && !(v <= *e.AtMost*times) {
			return fmt.Sprintf("%s in %s is %s, more than %s", of, p.name, format(of, v), format(of, *e.AtMost*times)), false
		}
		if e.AtLeast != nil && !(v >= *e.AtLeast*times) {
			return fmt.Sprintf("%s in %s is %s, less than %s", of, p.name, format(of, v), format(of, *e.AtLeast*times)), false
		}
	}
	if !measured {
		return "not measured", false
	}
	return "", true
}

func (r *result) figure(phase, name string) (v float64, ok bool) {
	for _, p := range r.phases {
		if p.name == phase {
			v, ok = p.figures[name]
		}
	}
	return v, ok
}

// format is a figure for people.
func format(name string, v float64) string {
	if strings.HasSuffix(name, "-bytes") {
		return mib(int64(v))
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// measured says whether a figure was measured in any phase.
func (r *result) measured(name string) bool {
	return slices.ContainsFunc(r.phases, func(p phaseResult) bool { _, ok := p.figures[name]; return ok })
}

// writeTable prints binaries side by side.
func writeTable(out io.Writer, s *scenario.Scenario, results []result) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, value func(result) string) {
		fmt.Fprint(tw, name)
		for _, r := range results {
			fmt.Fprint(tw, "\t"+value(r))
		}
		fmt.Fprintln(tw)
	}
	row("", func(r result) string { return r.binary.Name })
	row("at rest", func(r result) string { return mib(r.rest) })
	row("limit", func(r result) string { return r.limitBy })
	for _, p := range s.Phases {
		for _, f := range scenario.Figures {
			worth := slices.ContainsFunc(results, func(r result) bool {
				v, ok := r.figure(p.Name, f)
				return ok && scenario.InTable(f) && (v != 0 || scenario.HigherIsBetter(f))
			})
			if !worth { // Or nobody has anything but 0 of what would better be less.
				continue
			}
			row(p.Name+" "+f, func(r result) string {
				if v, ok := r.figure(p.Name, f); ok {
					return format(f, v)
				}
				return "-"
			})
		}
	}
	return tw.Flush()
}

// writeEnd tells how a server ended, and which requests were cut then.
func writeEnd(out io.Writer, r result) {
	if r.ended == "" {
		return
	}
	var cut []string
	for _, p := range r.phases {
		for _, name := range slices.Sorted(maps.Keys(p.families)) {
			if p.name == r.endedIn && p.families[name][clients.Cut] > 0 {
				cut = append(cut, name)
			}
		}
	}
	fmt.Fprintf(out, "%s ended in %s: %s; cut: %s\n", r.binary.Name, r.endedIn, r.ended, strings.Join(cut, " "))
	for _, line := range r.lastWords[max(0, len(r.lastWords)-lastLines):] {
		fmt.Fprintln(out, "  "+line)
	}
}
