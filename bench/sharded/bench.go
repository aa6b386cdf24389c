// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/prometheus/tsdb/fileutil"
	"go.yaml.in/yaml/v3"
	"golang.org/x/perf/benchfmt"

	"github.com/promguard/promguard/internal/kubelike"
	"github.com/promguard/promguard/internal/proc"
)

const (
	fullNodes   = 7500
	thousand    = 1000
	benchScrape = 30 * time.Second // as promguard size has it
)

// controlPlane are the pools that do not grow with nodes: at full size they are a sixth
// of a percent of all series, and of a thousandth they would be most.
var controlPlane = []string{"apiserver", "etcd"}

// seriesOf is how many series a modelled cluster has that has so many nodes, with all
// pods of the last but for a few.
func seriesOf(nodes int) int {
	few, many := nodes*6000, nodes*7500+200_000
	for many-few > 500 {
		series, n := (few+many)/2, 0
		c, err := kubelike.New(kubelike.Config{Series: series, Seed: 1, Start: time.Unix(0, 0)})
		if err != nil {
			return 0
		}
		for _, t := range c.Targets() {
			if t.Pool == "node-exporter" {
				n++
			}
		}
		if n > nodes {
			many = series
		} else {
			few = series
		}
	}
	return few
}

// figures are what was measured of one size, by part and unit.
type figures map[string]map[string]float64

func (f figures) add(part, unit string, v float64) {
	if f[part] == nil {
		f[part] = map[string]float64{}
	}
	f[part][unit] += v
}

// bench measures chains of several sizes, and says how what they take grows.
func bench(ctx context.Context, o options, sizes []int, window time.Duration, rounds int, expressions string, out io.Writer) error {
	queries, err := readExpressions(expressions)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "goos: %s\ngoarch: %s\ncpus: %d\npkg: github.com/promguard/promguard/bench/sharded\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	queries = slices.Repeat(queries, rounds)
	o.interval, o.without, o.serverArgs = benchScrape, controlPlane, []string{"--web.enable-admin-api"}
	measured := map[int]figures{}
	for _, size := range sizes {
		nodes := int(math.Round(float64(size) * fullNodes / thousand))
		o.series = seriesOf(nodes)
		f, err := measureSize(ctx, o, queries, window)
		if err != nil {
			return fmt.Errorf("%d thousandths: %w", size, err)
		}
		if err := f.write(out, size); err != nil {
			return err
		}
		measured[size] = f
	}
	return writeGrowth(out, measured)
}

// readExpressions reads a list of objects with expr, in YAML or JSON.
func readExpressions(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list []struct{ Expr string }
	if err := yaml.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	all := make([]string, len(list))
	for i, e := range list {
		all[i] = e.Expr
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// measureSize starts a chain and measures it at rest, and then what queries take.
func measureSize(ctx context.Context, o options, queries []string, window time.Duration) (f figures, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if o.data, err = os.MkdirTemp("", "sharded-*"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(o.data)
	c, err := newChain(o, func(_ *part, err error) { cancel(err) })
	if err != nil {
		return nil, err
	}
	defer c.close()
	f = figures{}
	for _, do := range []func() error{
		func() error { return c.start(ctx) },
		func() error { return sleep(ctx, o.interval) }, // The first scrape of each target costs more.
		func() error { return f.rest(ctx, c, window) },
		func() error { return f.memory(ctx, c) }, // Before queries, whose caches stay.
		func() error { return f.queries(ctx, c, queries, window) },
		func() error { return f.disk(ctx, c) },
	} {
		if err := do(); err != nil {
			return nil, cmp.Or(context.Cause(ctx), err)
		}
	}
	return f, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// cpu adds the processor time that each part takes while do runs, divided by n.
func (f figures) cpu(c *chain, unit string, n float64, do func() error) error {
	before := make([]time.Duration, len(c.parts))
	var err error
	for i, p := range c.parts {
		if before[i], err = proc.CPUTime(p.PID()); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	for i, p := range c.parts {
		after, err := proc.CPUTime(p.PID())
		if err != nil {
			return err
		}
		f.add(p.kind, unit, (after-before[i]).Seconds()/n)
	}
	return nil
}

// rest adds what is taken while nobody reads.
func (f figures) rest(ctx context.Context, c *chain, window time.Duration) error {
	if err := f.log(ctx, c, -1/window.Seconds()); err != nil {
		return err
	}
	if err := f.cpu(c, "cpu-s/s", window.Seconds(), func() error { return sleep(ctx, window) }); err != nil {
		return err
	}
	return f.log(ctx, c, 1/window.Seconds())
}

// log adds what the logs of all servers take, times a factor.
func (f figures) log(ctx context.Context, c *chain, factor float64) error {
	for _, p := range c.parts {
		if p.kind != "server" {
			continue
		}
		if err := f.metric(ctx, p, "wal-B/s", factor, "prometheus_tsdb_wal_storage_size_bytes"); err != nil {
			return err
		}
	}
	return nil
}

// queries adds what a query takes, without what is taken at rest meanwhile.
func (f figures) queries(ctx context.Context, c *chain, queries []string, window time.Duration) error {
	n := float64(len(queries))
	begun := time.Now()
	err := f.cpu(c, "cpu-s/query", n, func() error {
		for _, q := range queries {
			now := time.Now()
			r, err := ask(ctx, c.reads(), ranged(q, now.Add(-window), now, c.interval))
			if err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
			if r.Status != "success" || len(r.missing()) > 0 {
				return fmt.Errorf("%s: %s %s %q", q, r.Status, r.Error, r.Warnings)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	took := time.Since(begun).Seconds()
	all := 0.0
	for _, units := range f {
		units["cpu-s/query"] = max(0, units["cpu-s/query"]-units["cpu-s/s"]*took/n)
		all += units["cpu-s/query"]
	}
	f.add("promguard", "%cpu-of-queries", 100*f["promguard"]["cpu-s/query"]/all)
	return nil
}

// metric adds the value of a metric of a process, times a factor.
func (f figures) metric(ctx context.Context, p *part, unit string, factor float64, name string) error {
	values, err := proc.Metrics(ctx, p.url, name)
	if err == nil {
		f.add(p.kind, unit, factor*values[0])
	}
	return err
}

// memory adds what is resident, and what of the heap lives.
func (f figures) memory(ctx context.Context, c *chain) error {
	for _, p := range c.parts {
		m, err := proc.ReadMemory(p.PID())
		if err != nil {
			return err
		}
		f.add(p.kind, "rss-B", float64(m.RSS))
		if _, err := proc.Collect(ctx, p.url); err != nil {
			return err
		}
		if err := f.metric(ctx, p, "live-B", 1, "go_memstats_heap_alloc_bytes"); err != nil {
			return err
		}
		if p.kind != "server" {
			continue
		}
		if err := f.metric(ctx, p, "series", 1, "prometheus_tsdb_head_series"); err != nil {
			return err
		}
	}
	return nil
}

// disk adds what a block takes that has all samples of a server, as one is uploaded.
func (f figures) disk(ctx context.Context, c *chain) error {
	for _, p := range c.parts {
		if p.kind != "server" {
			continue
		}
		r, err := ask(ctx, p.url, question{"/api/v1/admin/tsdb/snapshot", nil})
		if err == nil && r.Status != "success" {
			err = errors.New(r.Error)
		}
		if err != nil {
			return fmt.Errorf("a snapshot of %s: %w", p.name, err)
		}
	}
	blocks, err := readBlocks(filepath.Join(c.data, "prometheus-*", "snapshots", "*"))
	if err != nil {
		return err
	}
	var bytes, samples, rows float64
	for _, b := range blocks {
		size, err := fileutil.DirSize(b.dir)
		if err != nil {
			return err
		}
		bytes, samples, rows = bytes+float64(size), samples+b.Stats.NumSamples, rows+b.Stats.NumSeries
	}
	f.add("block", "B/series", bytes/rows)
	f.add("block", "B/sample", bytes/samples)
	return nil
}

// block is the meta.json of a block.
type block struct {
	dir              string
	ULID             string
	MinTime, MaxTime int64
	Stats            struct{ NumSamples, NumSeries float64 }
	Thanos           struct{ Labels map[string]string }
}

// readBlocks returns the blocks in directories.
func readBlocks(pattern string) ([]block, error) {
	files, err := filepath.Glob(filepath.Join(pattern, "*", "meta.json"))
	if err != nil {
		return nil, err
	}
	var all []block
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		b := block{dir: filepath.Dir(file)}
		if err := json.Unmarshal(text, &b); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, b)
	}
	return all, nil
}

// write writes the figures in Go's benchmark format.
func (f figures) write(out io.Writer, size int) error {
	w := benchfmt.NewWriter(out)
	for _, part := range slices.Sorted(maps.Keys(f)) {
		r := &benchfmt.Result{Name: benchfmt.Name(fmt.Sprintf("Sharded/thousandths=%d/part=%s", size, part)), Iters: 1}
		for _, unit := range slices.Sorted(maps.Keys(f[part])) {
			r.Values = append(r.Values, benchfmt.Value{Value: significant(f[part][unit]), Unit: unit})
		}
		if err := w.Write(r); err != nil {
			return err
		}
	}
	return nil
}

// significant rounds to four digits.
func significant(v float64) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil {
		return v
	}
	return rounded
}

// writeGrowth writes a table of all figures, with the line through those that are sums over
// the cluster: what is fixed and what each thousandth adds, by how many percent each
// measurement is off, and what the line gives at full size.
func writeGrowth(out io.Writer, measured map[int]figures) error {
	sizes := slices.Sorted(maps.Keys(measured))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "#\n# PART\tUNIT")
	for _, s := range sizes {
		fmt.Fprintf(table, "\t%d", s)
	}
	fmt.Fprintln(table, "\tLINE OF K THOUSANDTHS\tOFF, %\tFULL SIZE")
	for _, part := range slices.Sorted(maps.Keys(measured[sizes[0]])) {
		for _, unit := range slices.Sorted(maps.Keys(measured[sizes[0]][part])) {
			fmt.Fprintf(table, "# %s\t%s", part, unit)
			x, y := make([]float64, len(sizes)), make([]float64, len(sizes))
			for i, s := range sizes {
				x[i], y[i] = float64(s), measured[s][part][unit]
				fmt.Fprintf(table, "\t%.4g", y[i])
			}
			// Of one, or of a hundred, is no sum; a line through two points says nothing, and
			// one that falls that nothing grows.
			sum := !strings.HasPrefix(unit, "B/") && !strings.HasPrefix(unit, "%")
			if fixed, each, off := line(x, y); sum && len(sizes) > 2 && each > 0 {
				fmt.Fprintf(table, "\t%.4g + %.4g k\t%+d\t%.4g\n", fixed, each, off, fixed+each*thousand)
			} else {
				fmt.Fprintln(table, "\t\t\t")
			}
		}
	}
	return table.Flush()
}

// line returns the straight line that has the least squares of relative distances, and
// by how many percent it is above each value.
func line(x, y []float64) (fixed, each float64, off []int) {
	var n, sx, sy, sxx, sxy float64
	for i := range x {
		w := 1 / max(y[i]*y[i], math.SmallestNonzeroFloat32)
		n, sx, sy, sxx, sxy = n+w, sx+w*x[i], sy+w*y[i], sxx+w*x[i]*x[i], sxy+w*x[i]*y[i]
	}
	each = (n*sxy - sx*sy) / (n*sxx - sx*sx)
	fixed = (sy - each*sx) / n
	for i := range x {
		off = append(off, int(math.Round(100*(fixed+each*x[i]-y[i])/y[i])))
	}
	return fixed, each, off
}
