// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package progress prints how far long work has come: one line, rewritten in
// place on a terminal, printed now and then elsewhere.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Line reports the progress of one piece of work. All methods are safe for
// concurrent use, and do nothing on a nil Line.
type Line struct {
	mu       sync.Mutex
	w        io.Writer
	what     string
	unit     string
	total    float64
	done     float64
	started  time.Time
	printed  time.Time
	every    time.Duration
	terminal bool
}

// New starts a Line about work that is total units long.
func New(w io.Writer, what, unit string, total float64) *Line {
	l := &Line{w: w, what: what, unit: unit, total: total, started: time.Now(), every: 10 * time.Second}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		l.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	if l.terminal {
		l.every = 200 * time.Millisecond
	}
	l.printed = l.started
	return l
}

// Add says that more units are done.
func (l *Line) Add(units float64) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done += units
	if now := time.Now(); now.Sub(l.printed) >= l.every {
		l.printed = now
		l.print(now)
	}
}

// Done says that all is done, and prints the line a last time, with the mean
// rate over the whole work.
func (l *Line) Done() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = max(l.done, l.total)
	l.print(time.Now())
	if l.terminal {
		fmt.Fprintln(l.w)
	}
}

func (l *Line) print(now time.Time) {
	elapsed := now.Sub(l.started)
	rate := l.done / max(elapsed.Seconds(), 1e-9)
	text := fmt.Sprintf("%s: %3.0f%%, %s %s/s", l.what, min(100, 100*l.done/max(l.total, 1)), scaled(rate), l.unit)
	if l.done < l.total && l.done > 0 {
		text += ", " + time.Duration((l.total-l.done)/rate*float64(time.Second)).Round(time.Second).String() + " left"
	} else {
		text += ", took " + elapsed.Round(10*time.Millisecond).String()
	}
	if l.terminal {
		fmt.Fprint(l.w, "\r\x1b[K"+text)
		return
	}
	fmt.Fprintln(l.w, text)
}

// scaled prints a number with three digits and a metric prefix.
func scaled(v float64) string {
	for _, s := range []struct {
		from   float64
		suffix string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= s.from {
			return fmt.Sprintf("%.3g%s", v/s.from, s.suffix)
		}
	}
	return fmt.Sprintf("%.3g", v)
}
