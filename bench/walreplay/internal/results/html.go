// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package results

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"join": func(s []string) string { return strings.Join(s, " ") },
	"mib":  func(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) },
	"mbs":  func(s Stage) string { return fmt.Sprintf("%.0f", s.rate()/1e6) },
	"n":    thousands,
}).Parse(pageText))

// writeHTML writes one page that needs nothing else and no JavaScript.
func (r *Report) writeHTML(w io.Writer) error {
	floor := func(figure func(*Stage) float64) float64 {
		if f := r.floor(); f != nil {
			return figure(f)
		}
		return 0
	}
	return page.Execute(w, struct {
		*Report
		Plots   []*plot
		Columns []column
		Rows    [][]string
	}{
		r,
		[]*plot{
			r.plot("Time", "wall seconds", func(r *Run) float64 { return r.WallSeconds }, floor(func(s *Stage) float64 { return s.WallSeconds })),
			r.plot("CPU", "CPU-seconds", func(r *Run) float64 { return r.CPUSeconds }, floor(func(s *Stage) float64 { return s.CPUSeconds })),
			r.plot("Memory", "peak anonymous MiB", func(r *Run) float64 { return float64(r.PeakAnonBytes) / (1 << 20) }, 0),
		},
		r.columns(), r.rows(),
	})
}

// thousands prints a number with its digits in groups.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// The plots' area, in units of the SVG.
const (
	plotLeft, plotRight = 56.0, 500.0
	plotTop, plotBottom = 30.0, 264.0
	maxTicks            = 5
)

// plot is a figure against GOMAXPROCS, a curve per binary.
type plot struct {
	Title, Unit    string
	XTicks, YTicks []tick
	Curves         []curve
	Floor          *tick
}

// tick is a place on an axis and its text.
type tick struct {
	At   float64
	Text string
}

// curve is the medians of a binary, and all its runs.
type curve struct {
	Name   string
	Color  int // from 0 to 5
	Line   string
	Points []point
	Dots   []point
}

type point struct {
	X, Y float64
	Text string
}

func (r *Report) plot(title, unit string, figure func(*Run) float64, floor float64) *plot {
	p := &plot{Title: title, Unit: unit}
	x := r.xAxis(p)
	top := floor
	for i := range r.Runs {
		top = max(top, figure(&r.Runs[i]))
	}
	y := p.yAxis(top)
	cells := r.cells()
	for i, b := range r.Binaries {
		c := curve{Name: b.Name, Color: i % 6}
		var line []string
		for _, cell := range cells {
			if cell.binary != b.Name {
				continue
			}
			at, m := x(cell.gomaxprocs), cell.median(figure)
			c.Points = append(c.Points, point{at, y(m), fmt.Sprintf("%s at GOMAXPROCS %d: median %.3f %s of %d runs", b.Name, cell.gomaxprocs, m, unit, len(cell.runs))})
			line = append(line, fmt.Sprintf("%.1f,%.1f", at, y(m)))
			for _, v := range cell.sorted(figure) {
				c.Dots = append(c.Dots, point{X: at, Y: y(v)})
			}
		}
		c.Line = strings.Join(line, " ")
		p.Curves = append(p.Curves, c)
	}
	if floor > 0 {
		p.Floor = &tick{y(floor), fmt.Sprintf("decode floor, %.3g", floor)}
	}
	return p
}

// xAxis places the values of GOMAXPROCS that were measured, by their logarithm.
func (r *Report) xAxis(p *plot) func(int) float64 {
	var procs []int
	for i := range r.Runs {
		procs = append(procs, r.Runs[i].GOMAXPROCS)
	}
	slices.Sort(procs)
	procs = slices.Compact(procs)
	low, high := math.Log2(float64(procs[0])), math.Log2(float64(procs[len(procs)-1]))
	const margin = 24
	x := func(n int) float64 {
		if high == low {
			return (plotLeft + plotRight) / 2
		}
		return plotLeft + margin + (math.Log2(float64(n))-low)/(high-low)*(plotRight-plotLeft-2*margin)
	}
	for _, n := range procs {
		// Texts that would run into one another are left out.
		if k := len(p.XTicks); k > 0 && x(n)-p.XTicks[k-1].At < 18 {
			continue
		}
		p.XTicks = append(p.XTicks, tick{x(n), strconv.Itoa(n)})
	}
	return x
}

// yAxis is from 0 to at least top, in round steps.
func (p *plot) yAxis(top float64) func(float64) float64 {
	step := roundStep(max(top, 1e-9) / maxTicks)
	high := step * math.Ceil(max(top, 1e-9)/step)
	y := func(v float64) float64 { return plotBottom - v/high*(plotBottom-plotTop) }
	for i := range int(math.Round(high/step)) + 1 {
		v := float64(i) * step
		p.YTicks = append(p.YTicks, tick{y(v), fmt.Sprintf("%.6g", v)})
	}
	return y
}

// roundStep is the smallest of 1, 2 and 5 times a power of ten that is not
// below v, which is positive.
func roundStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v {
			return m * power
		}
	}
	return 10 * power
}
