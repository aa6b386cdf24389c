// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/promguard/ingest"
	"github.com/prometheus/prometheus/promguard/memory"
	"github.com/prometheus/prometheus/promguard/newseries"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// leastMemory is the smallest memory limit in bytes.
const leastMemory = 64 << 20

// seriesFlags are the flags that bound what the server takes in.
type seriesFlags struct {
	memory memoryLimit
	head   headLimit
	limits string // A file, or off.
	labels choice

	// With all flags off these are nil.
	monitor   *memory.Monitor
	gate      *ingest.Gate
	newSeries *newseries.Tracker
}

func (f *seriesFlags) add(add func(name, help, value string, v kingpin.Value)) {
	f.memory = memoryLimit{limit: limit{hasAuto: true, bytes: true, least: leastMemory, leastWhy: "a server without series takes nearly that"}}
	add("guard.memory-limit", "Memory that the server may use: auto, off, or a size, to which GOMEMLIMIT is lowered. auto is GOMEMLIMIT, or else the container's or the machine's memory. Near it the server degrades: reads get less, then new series are refused, while existing ones keep every sample. With auto,reject-scrapes, or a size in its place, whole scrapes fail that would add series.",
		"auto", &f.memory)
	add("guard.max-head-series", "Most series in the head: off, or a number, beyond which new ones are refused. 2000000,observe counts what would be refused, 2000000,warn also logs it.",
		off, &f.head)
	add("guard.series-limits", "File with limits of series with the same job, metric name, namespace or other label, or off. It is read again with the configuration.",
		off, (*fileOrOff)(&f.limits))
	f.labels = choice{words: []string{labelsPacked, labelsWhole}}
	add("guard.series-labels", "How the labels of series are kept: packed, as differences from those of similar series, or whole, which is off.",
		labelsPacked, &f.labels)
}

// memoryLimit is the value of --guard.memory-limit.
type memoryLimit struct {
	limit
	rejectScrapes bool
}

const rejectScrapes = ",reject-scrapes"

// Set implements kingpin.Value.
func (m *memoryLimit) Set(s string) error {
	size, reject := strings.CutSuffix(s, rejectScrapes)
	if err := m.limit.Set(size); err != nil {
		return err
	}
	if reject && !m.auto && m.n == 0 {
		return fmt.Errorf("%q: nothing is rejected where there is no limit", s)
	}
	m.rejectScrapes = reject
	return nil
}

// String implements kingpin.Value.
func (m *memoryLimit) String() string {
	if m.rejectScrapes {
		return m.limit.String() + rejectScrapes
	}
	return m.limit.String()
}

// headLimit is the value of --guard.max-head-series.
type headLimit struct {
	series int
	mode   ingest.Mode
}

// Set implements kingpin.Value.
func (h *headLimit) Set(s string) error {
	if s == off {
		*h = headLimit{}
		return nil
	}
	number, mode, given := strings.Cut(s, ",")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is neither off nor a number of series of at least 1, with observe or warn behind it", s)
	}
	*h = headLimit{n, ingest.Enforce}
	if given {
		h.mode, err = ingest.ParseMode(mode)
	}
	return err
}

// String implements kingpin.Value.
func (h *headLimit) String() string {
	switch h.mode {
	case "", ingest.Off:
		return off
	case ingest.Enforce:
		return strconv.Itoa(h.series)
	default:
		return strconv.Itoa(h.series) + "," + string(h.mode)
	}
}

// fileOrOff is the name of a file, which is read later.
type fileOrOff string

// Set implements kingpin.Value.
func (f *fileOrOff) Set(s string) error {
	*f = fileOrOff(s)
	return nil
}

// String implements kingpin.Value.
func (f *fileOrOff) String() string { return string(*f) }

// WatchMemory watches the memory of the process for as long as it lives, and decides
// about new series and their labels from now on. It is called when GOMEMLIMIT is set,
// before there are series.
func (f *Flags) WatchMemory(agent bool, logger *slog.Logger, reg prometheus.Registerer) {
	s := &f.series
	s.packLabels(agent, reg)
	if agent {
		return
	}
	if s.memory.auto || s.memory.n > 0 {
		limit := memory.Auto
		if s.memory.n > 0 {
			limit = memory.AtMost(s.memory.n)
		}
		s.monitor = memory.NewMonitor(limit)
		s.monitor.Register(logger, reg)
		go s.monitor.Run(context.Background())
	}
	if s.monitor != nil || s.head.String() != off || s.limits != off {
		s.gate = ingest.NewGate(ingest.Options{Memory: s.monitor, RejectScrapes: s.memory.rejectScrapes, Logger: logger, Registerer: reg})
		s.gate.SetLimits(s.headLimits())
		s.newSeries = newseries.New()
		reg.MustRegister(s.newSeries)
		s.gate.Observe(s.newSeries)
		name := s.nameCulprit(logger)
		s.monitor.OnChange(func(old, current memory.State, u memory.Usage) {
			go name(old, current, u) // It waits for the postings; those who stop reads wait for the next look.
		})
	}
}

// nameCulprit returns a function that logs who adds series when memory has become
// scarce.
func (f *seriesFlags) nameCulprit(logger *slog.Logger) func(old, current memory.State, u memory.Usage) {
	return func(old, current memory.State, _ memory.Usage) {
		if current <= old {
			return
		}
		if culprit := f.newSeries.Report().Log(); culprit != nil {
			logger.Warn("Many new series have labels in common", culprit...)
		}
	}
}

func (f *seriesFlags) headLimits() []ingest.Limit {
	if f.head.String() == off {
		return nil
	}
	return []ingest.Limit{ingest.HeadLimit(f.head.series, f.head.mode)}
}

// ReloadSeriesLimits returns apply, preceded by a reload of the file with the limits of
// series. A file with mistakes leaves the limits as they were, and the reload of the
// configuration fails.
func (f *Flags) ReloadSeriesLimits(apply func(*config.Config) error) func(*config.Config) error {
	s := &f.series
	if s.gate == nil || s.limits == off {
		return apply
	}
	return func(c *config.Config) error {
		limits, err := ingest.LoadLimits(s.limits)
		if err != nil {
			return fmt.Errorf("--guard.series-limits: %w", err)
		}
		s.gate.SetLimits(slices.Concat(s.headLimits(), limits))
		return apply(c)
	}
}

// SeriesGate decides about new series of scrapes, or is nil.
func (f *Flags) SeriesGate() scrape.SeriesGate {
	if f.series.gate == nil {
		return nil
	}
	return f.series.gate
}

// Rules returns what takes the samples of rules.
func (f *Flags) Rules(a storage.AppendableV2) storage.AppendableV2 {
	if f.series.gate == nil {
		return a
	}
	return f.series.gate.Rules(a)
}

// Head is called with the head when it is loaded, before anything is appended to it.
func (f *Flags) Head(h *tsdb.Head) {
	s := &f.series
	if s.gate == nil {
		return
	}
	h.ObserveSeries(s.gate.Created(s.newSeries))
	s.monitor.Plan(h.CompactionBytes)
	s.newSeries.SetHead(h)
	s.gate.SetHead(h)
}

// Memory is what a database asks before it compacts. Nil where nobody watches the memory.
func (f *Flags) Memory() tsdb.Memory {
	if f.series.monitor == nil {
		return nil
	}
	return f.series.monitor
}
