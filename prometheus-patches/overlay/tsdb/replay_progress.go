// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// replayLogInterval is the time between two log lines about the progress.
const replayLogInterval = 10 * time.Second

// WALReplayProgress says how far the replay of the checkpoint and the WAL is.
type WALReplayProgress struct {
	Ratio float64       // From 0 to 1, of the bytes.
	Rate  float64       // Bytes per second, on average.
	ETA   time.Duration // Until all is read, at that rate; 0 if that is not known yet.
}

// replayProgress may be read while the replay goes on.
type replayProgress struct {
	total, done atomic.Int64 // Bytes of the log's files.
	start       time.Time
	took        atomic.Int64 // Nanoseconds; 0 while it goes on.
}

// currentProgress returns how far the replay is, or nil if that is not measured. The
// status must be locked.
func (s *WALReplayStatus) currentProgress() *WALReplayProgress {
	if s.replay == nil {
		return nil
	}
	p := s.replay.now()
	return &p
}

func (p *replayProgress) now() WALReplayProgress {
	done, total := p.done.Load(), p.total.Load()
	elapsed := cmp.Or(time.Duration(p.took.Load()), time.Since(p.start))
	if done == 0 || total == 0 || elapsed <= 0 {
		return WALReplayProgress{}
	}
	return WALReplayProgress{
		Ratio: float64(done) / float64(total),
		Rate:  float64(done) / elapsed.Seconds(),
		ETA:   time.Duration(min(float64(elapsed)*float64(total-done)/float64(done), math.MaxInt64/2)),
	}
}

// finish says that nothing is left to be done, also when the log is damaged and
// the rest of it was not read.
func (p *replayProgress) finish() { p.total.Store(p.done.Load()) }

// setProgress makes p what the status tells; nil ends that.
func (h *Head) setProgress(p *replayProgress) {
	s := h.stats.WALReplayStatus
	s.Lock()
	defer s.Unlock()
	s.replay = p
}

// startProgress makes the progress visible from here on.
func (r *walReplay) startProgress() error {
	r.progress.start = time.Now()
	for _, u := range r.units {
		for _, name := range u.files {
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			r.progress.total.Add(info.Size())
		}
	}
	r.h.setProgress(r.progress)
	if r.h.reg == nil {
		return nil
	}
	p := r.progress
	r.gauge = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "prometheus_guard_wal_replay_progress_ratio",
		Help: "How much of the bytes of the checkpoint and the WAL has been replayed at start.",
	}, func() float64 { return p.now().Ratio })
	return r.h.reg.Register(r.gauge)
}

// logProgress logs until stop is closed.
func (r *walReplay) logProgress(stop <-chan struct{}) {
	tick := time.NewTicker(replayLogInterval)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			p := r.progress.now()
			r.h.logger.Info("Replaying WAL", "percent", fmt.Sprintf("%.1f", 100*p.Ratio),
				"rate", fmt.Sprintf("%.1f MiB/s", p.Rate/(1<<20)), "eta", p.ETA.Round(time.Second).String())
		}
	}
}

// sequenced notes how far the replay is.
func (r *walReplay) sequenced(b *replayBatch) {
	r.progress.done.Add(int64(b.read))
	if b.unit.done {
		r.h.updateWALReplayStatusRead(b.unit.segment)
		r.h.logger.Debug("WAL segment read", "segment", b.unit.segment, "checkpoint", b.unit.checkpoint)
	}
}
