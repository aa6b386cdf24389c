// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package walreplay caps the processors that the replay of the write-ahead log
// uses. Replay passes small batches between goroutines, so that beyond some
// number of processors more of them make it slower and cost more CPU time.
package walreplay

import (
	"fmt"
	"log/slog"
	"runtime"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// AutoMax is the most processors that the limit auto lets the replay use.
// Replay has one worker for each, and two goroutines that feed them all.
const AutoMax = 24

// Limit is the most processors that the replay may use. It is the value of a
// flag: auto, off, or a number.
type Limit struct {
	auto bool
	// procs is the number of processors; 0 means off unless auto is set.
	procs int
}

// Set implements kingpin.Value.
func (l *Limit) Set(s string) error {
	switch s {
	case "off", "auto":
		*l = Limit{auto: s == "auto"}
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is neither auto, off, nor a number of processors of at least 1", s)
	}
	*l = Limit{procs: n}
	return nil
}

// String implements kingpin.Value.
func (l *Limit) String() string {
	switch {
	case l.auto:
		return "auto"
	case l.procs == 0:
		return "off"
	default:
		return strconv.Itoa(l.procs)
	}
}

// of returns how many of procs processors the replay may use. The limit is not
// off.
func (l *Limit) of(procs int) int {
	if l.auto {
		// More processors than the machine has only make it slower.
		return min(procs, runtime.NumCPU(), AutoMax)
	}
	return min(procs, l.procs)
}

// Cap lowers GOMAXPROCS to the limit, and sets *concurrency, the replay
// concurrency of the database about to be opened, to the same number. The
// function that it returns restores GOMAXPROCS; call it when the database is
// open or has failed to open.
//
// GOMAXPROCS is never raised: it already says what the container's CPU quota
// or the operator allows. With the limit off nothing is done, logged or
// registered.
func Cap(limit Limit, concurrency *int, logger *slog.Logger, reg prometheus.Registerer) (restore func()) {
	if limit == (Limit{}) {
		return func() {}
	}
	before := runtime.GOMAXPROCS(0)
	capped := limit.of(before)
	*concurrency = capped
	promauto.With(reg).NewGauge(prometheus.GaugeOpts{
		Name: "prometheus_guard_wal_replay_gomaxprocs",
		Help: "Processors that the replay of the write-ahead log used at start.",
	}).Set(float64(capped))
	if capped == before {
		logger.Info("WAL replay uses all processors", "gomaxprocs", before, "limit", limit.String())
		return func() {}
	}
	runtime.GOMAXPROCS(capped)
	logger.Info("WAL replay uses fewer processors", "gomaxprocs", capped, "after_replay", before, "limit", limit.String())
	return func() {
		runtime.GOMAXPROCS(before)
		logger.Info("WAL replay has ended, all processors are used again", "gomaxprocs", before)
	}
}
