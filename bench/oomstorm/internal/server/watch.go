// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"sync"
	"time"

	"github.com/promguard/promguard/bench/internal/proc"
)

// samplePeriod is how often memory is read. The watchdog can be exceeded by
// what a process allocates in that time.
const samplePeriod = 20 * time.Millisecond

// Watch samples the memory of a Server until it ends, and kills it at a limit if
// there is one.
type Watch struct {
	done chan struct{}

	mu     sync.Mutex
	now    proc.Memory
	peak   proc.Memory // the most of each since the last Reset
	killed bool
}

func watch(s *Server, killAt int64) *Watch {
	w := &Watch{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(samplePeriod)
		defer tick.Stop()
		for {
			select {
			case <-s.dead:
				return
			case <-tick.C:
			}
			m, err := proc.ReadMemory(s.cmd.Process.Pid)
			if err != nil {
				continue // It has just ended, which dead will tell.
			}
			if w.add(m, killAt) && s.Alive() {
				proc.KillGroup(s.cmd.Process.Pid)
			}
		}
	}()
	return w
}

// add adds a sample and says whether to kill.
func (w *Watch) add(m proc.Memory, killAt int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = m
	w.peak = proc.Memory{RSS: max(w.peak.RSS, m.RSS), Anon: max(w.peak.Anon, m.Anon), Peak: max(w.peak.Peak, m.Peak)}
	if killAt > 0 && m.Anon >= killAt {
		w.killed = true
	}
	return w.killed
}

func (w *Watch) wait() {
	if w != nil {
		<-w.done
	}
}

// Killed says whether the process was killed at the limit.
func (w *Watch) Killed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.killed
}

// Now is the last sample.
func (w *Watch) Now() proc.Memory {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// Peak is the most seen of each since ResetPeak.
func (w *Watch) Peak() proc.Memory {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peak
}

// ResetPeak forgets the peaks, also that of the kernel.
func (s *Server) ResetPeak() error {
	// The lock keeps an old sample from being added after the reset.
	s.Watch.mu.Lock()
	defer s.Watch.mu.Unlock()
	if err := proc.ResetPeak(s.cmd.Process.Pid); err != nil {
		return fmt.Errorf("resetting the memory peak of %s: %w", s.Binary.Name, err)
	}
	m, err := proc.ReadMemory(s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	s.Watch.now, s.Watch.peak = m, m
	return nil
}
