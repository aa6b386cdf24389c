// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// quiet is how long a command runs before it says how far it is.
	quiet        = 2 * time.Second
	redrawPeriod = 200 * time.Millisecond
)

// Progress says on a terminal how far a command is, once it has run for two seconds:
// one line, which is gone when the command has ended. Where the writer is no terminal it
// says nothing. What is written to it stays above the line. Safe for concurrent use.
type Progress struct {
	mu    sync.Mutex
	out   io.Writer
	width func() int
	stop  func() // nil: nothing is drawn

	began, stepBegan time.Time
	step             string
	done, of         int64
	shown            bool
}

// NewProgress says how far a command is on stderr. End must be called.
func NewProgress(stderr io.Writer) *Progress {
	p := &Progress{out: stderr}
	if width := widthOf(stderr); width != nil {
		p.start(width)
	}
	return p
}

func (p *Progress) start(width func() int) {
	p.width, p.began = width, time.Now()
	quit, gone := make(chan struct{}), make(chan struct{})
	p.stop = func() {
		close(quit)
		<-gone
	}
	go func() {
		defer close(gone)
		tick := time.NewTicker(redrawPeriod)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.draw()
			case <-quit:
				return
			}
		}
	}()
}

// Step says what is done now, in a few words. Nothing of it has been done yet.
func (p *Progress) Step(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step, p.stepBegan, p.done, p.of = fmt.Sprintf(format, args...), time.Now(), 0, 0
}

// Set says how much of the step has been done, in any unit. Of may be 0, for unknown.
func (p *Progress) Set(done, of int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.of = done, of
}

// Count is Set for counts of things.
func (p *Progress) Count(done, of int) { p.Set(int64(done), int64(of)) }

// Reader counts what is read as done, in bytes, of so many more.
func (p *Progress) Reader(r io.Reader, more int64) io.Reader {
	p.mu.Lock()
	p.of += more
	p.mu.Unlock()
	return &countedReader{r, p}
}

type countedReader struct {
	io.Reader

	p *Progress
}

func (r *countedReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.p.mu.Lock()
	r.p.done += int64(n)
	r.p.mu.Unlock()
	return n, err
}

// Write writes lines that stay.
func (p *Progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hide()
	return p.out.Write(b)
}

// End takes the line away. What is said afterwards is not shown.
func (p *Progress) End() {
	if p.stop == nil {
		return
	}
	p.stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hide()
	p.stop = nil
}

func (p *Progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.step == "" || time.Since(p.began) < quiet {
		return
	}
	fmt.Fprintf(p.out, "\r%s\x1b[K", clip(p.line(), p.width()-1)) // In the last column some wrap.
	p.shown = true
}

func (p *Progress) hide() {
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = false
	}
}

func (p *Progress) line() string {
	took := time.Since(p.stepBegan)
	text := p.step
	switch {
	case p.of >= max(p.done, 1):
		text += fmt.Sprintf(", %d %%", 100*p.done/p.of)
	case p.done > 0:
		text += fmt.Sprintf(", %d done", p.done)
	}
	text += ", " + took.Round(time.Second).String()
	if p.of > p.done && p.done > 0 {
		left := time.Duration(float64(took) / float64(p.done) * float64(p.of-p.done))
		text += ", " + left.Round(time.Second).String() + " left"
	}
	return text
}

// clip cuts a line at so many characters.
func clip(line string, most int) string {
	runes := []rune(line)
	return string(runes[:max(0, min(len(runes), most))])
}
