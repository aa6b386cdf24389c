// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/perf/benchfmt"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/internal/proc"
)

// figures are the bytes of a server's live heap: all of it, and by who allocated them
// as far as the profile's samples know.
type figures map[string]float64

// heap is what the figure of the whole heap is called, and series that of how many
// series the server has.
const heap, series = "heap", "series"

// over returns by series what is more than in a server that scrapes nothing.
func (f figures) over(idle figures, n float64) figures {
	each := figures{}
	for _, o := range slices.Concat(slices.Collect(maps.Keys(f)), slices.Collect(maps.Keys(idle))) {
		if o != series {
			each[o] = (f[o] - idle[o]) / n
		}
	}
	return each
}

// print writes what is at least a hundredth of the largest.
func (f figures) print(w io.Writer, name, kind string) error {
	r := &benchfmt.Result{Name: benchfmt.Name("Series/binary=" + name + "/kind=" + kind), Iters: 1}
	for o, bytes := range f {
		if o == heap || bytes >= max(1, f[heap]/100) {
			r.Values = append(r.Values, benchfmt.Value{Value: math.Round(bytes), Unit: o + "-B/series"})
		}
	}
	slices.SortFunc(r.Values, func(a, b benchfmt.Value) int { return cmp.Compare(b.Value, a.Value) })
	return benchfmt.NewWriter(w).Write(r)
}

const prometheusConfig = `global:
  scrape_interval: 10s
  scrape_timeout: 10s
scrape_configs:
  - job_name: cadvisor
    static_configs: [{targets: [%q]}]
    metric_relabel_configs: [%s]
`

const dropAll = `{source_labels: [__name__], regex: container_.*, action: drop}`

// measure starts the binary with an empty data directory, and reads its heap when
// the target was scraped so often.
func measure(ctx context.Context, b binary.Binary, t *target, kind string, scrapes int) (figures, error) {
	dir, err := os.MkdirTemp("", "memory-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	t.idle.Store(kind == "idle")
	relabel := ""
	if kind == "dropped" {
		relabel = dropAll
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, fmt.Appendf(nil, prometheusConfig, t.addr, relabel), 0o600); err != nil {
		return nil, err
	}
	addr, err := proc.FreeAddress()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(b.Path, append([]string{"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + addr}, b.Args...)...)
	p, err := proc.Start(cmd, nil)
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	return heapAfter(ctx, p, "http://"+addr, scrapes)
}

// heapAfter reads the heap of a server when it has scraped so often.
func heapAfter(ctx context.Context, p *proc.Process, url string, scrapes int) (figures, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, fmt.Errorf("it has not scraped %d times within 10m: give it fewer --pods, or a quieter machine", scrapes))
	defer cancel()
	for scraped(ctx, url) < scrapes {
		switch err := p.Wait(ctx); {
		case errors.Is(err, proc.ErrEnded):
			return nil, p.Error("it ended", p.How())
		case err != nil:
			return nil, err
		}
	}
	return readHeap(ctx, url)
}

// scraped returns how many scrapes have ended.
func scraped(ctx context.Context, url string) int {
	body, err := proc.Get(ctx, url+"/api/v1/query?query=count_over_time(up[1h])")
	if err != nil {
		return 0 // It is not ready.
	}
	m := countRE.FindSubmatch(body)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

var countRE = regexp.MustCompile(`"value":\[[^,]+,"([0-9]+)"`)

// readHeap reads the profile of the heap that lives.
func readHeap(ctx context.Context, url string) (figures, error) {
	body, err := proc.Collect(ctx, url)
	if err != nil {
		return nil, err
	}
	p, err := profile.ParseData(body)
	if err != nil {
		return nil, err
	}
	f := figures{}
	index := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == "inuse_space" })
	for _, s := range p.Sample {
		f[owner(s)] += float64(s.Value[index])
	}
	values, err := proc.Metrics(ctx, url, "go_memstats_heap_alloc_bytes", "prometheus_tsdb_head_series")
	if err != nil {
		return nil, err
	}
	f[heap], f[series] = values[0], values[1]
	return f, nil
}

// owner is the function of a sample that allocated it, the first that is not of the
// standard library's own.
func owner(s *profile.Sample) string {
	for _, l := range s.Location {
		for _, line := range l.Line {
			if name := line.Function.Name; strings.Contains(name, "prometheus/prometheus/") || strings.Contains(name, "snappy") {
				name, _, _ = strings.Cut(name, "[")
				return strings.NewReplacer("(", "", ")", "", "*", "").Replace(name[strings.LastIndex(name, "/")+1:])
			}
		}
	}
	return "other"
}
