// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package results

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// column is a figure in the tables.
type column struct {
	Title string
	value func(*Report, *Run) float64
	print func(float64) string
}

// columns are the figures in the tables: medians over the runs of a binary at a
// value of GOMAXPROCS.
func (r *Report) columns() []column {
	all := []column{
		{"wall s", func(_ *Report, r *Run) float64 { return r.WallSeconds }, decimals(3)},
		{"CPU-s", func(_ *Report, r *Run) float64 { return r.CPUSeconds }, decimals(3)},
		{"replay s", func(_ *Report, r *Run) float64 { return r.ReplaySeconds }, decimals(3)},
		{"peak MiB", func(_ *Report, r *Run) float64 { return float64(r.PeakAnonBytes) / (1 << 20) }, decimals(0)},
		{"samples/s", func(p *Report, r *Run) float64 { return r.rate(p.Log.Samples) }, scaled},
		{"series/s", func(p *Report, r *Run) float64 { return r.rate(p.Log.Series) }, scaled},
		{"vol. sw.", func(_ *Report, r *Run) float64 { return float64(r.VoluntarySwitches) }, decimals(0)},
		{"invol. sw.", func(_ *Report, r *Run) float64 { return float64(r.InvoluntarySwitches) }, decimals(0)},
		{"read MiB", func(_ *Report, r *Run) float64 { return float64(r.ReadBytes) / (1 << 20) }, decimals(1)},
		{"disk MiB", func(_ *Report, r *Run) float64 { return float64(r.DiskReadBytes) / (1 << 20) }, decimals(1)},
	}
	if f := r.floor(); f != nil && f.CPUSeconds > 0 {
		all = append(all, column{"x floor", func(_ *Report, r *Run) float64 { return r.CPUSeconds / f.CPUSeconds }, decimals(1)})
	}
	return all
}

func decimals(n int) func(float64) string {
	return func(v float64) string { return strconv.FormatFloat(v, 'f', n, 64) }
}

// scaled prints a number with three digits and a metric prefix.
func scaled(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.3gG", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.3gk", v/1e3)
	}
	return fmt.Sprintf("%.3g", v)
}

// rows are the printed medians, each row begun by binary, GOMAXPROCS and runs.
func (r *Report) rows() [][]string {
	columns := r.columns()
	var rows [][]string
	for _, c := range r.cells() {
		row := []string{c.binary, strconv.Itoa(c.gomaxprocs), strconv.Itoa(len(c.runs))}
		for _, col := range columns {
			row = append(row, col.print(c.median(func(run *Run) float64 { return col.value(r, run) })))
		}
		rows = append(rows, row)
	}
	return rows
}

func (r *Report) writeTable(w io.Writer) error {
	fmt.Fprintf(w, "%s: %d series, %d samples, %d segments, %.1f MiB\n", r.Log.Name, r.Log.Series, r.Log.Samples, r.Log.Segments, float64(r.Log.Bytes)/(1<<20))
	fmt.Fprintf(w, "%s, %d CPUs\n", r.Machine.CPU, r.Machine.CPUs)
	for _, b := range r.Binaries {
		fmt.Fprintf(w, "%s: %s %s\n", b.Name, b.Version, strings.Join(b.Args, " "))
	}
	if len(r.Floor) > 0 {
		fmt.Fprintln(w)
		if err := WriteFloorTable(w, r.Floor); err != nil {
			return err
		}
	}
	fmt.Fprintln(w, "\nmedians")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "binary\tGOMAXPROCS\truns\t")
	for _, c := range r.columns() {
		fmt.Fprint(t, c.Title, "\t")
	}
	fmt.Fprintln(t)
	for _, row := range r.rows() {
		fmt.Fprintln(t, strings.Join(row, "\t")+"\t")
	}
	return t.Flush()
}

// WriteFloorTable writes stages as a table.
func WriteFloorTable(w io.Writer, stages []Stage) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "floor, one thread\twall s\tCPU-s\tMB/s\t")
	for _, s := range stages {
		fmt.Fprintf(t, "%s\t%.3f\t%.3f\t%.0f\t\n", s.Name, s.WallSeconds, s.CPUSeconds, s.rate()/1e6)
	}
	return t.Flush()
}
