// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package reads keeps account of the requests that read the database for a
// client: what each asks for, how much memory it holds, and why it was stopped.
//
// A request that is limited carries its Read in its context. Code on the way of
// such a request that can run for long, or take much memory, looks there; all
// other code, rule evaluation among it, finds none and behaves as if this
// package did not exist.
package reads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/storage"
)

// Limits bound one read. 0 means no bound.
type Limits struct {
	storage.ReadBounds
	// CheckText is called before anything is parsed or compiled. Nil checks
	// nothing.
	CheckText TextCheck
	// Narrower tells the client of a list how to ask for a smaller one. It is empty for
	// other endpoints.
	Narrower string
	// Exempt says that the read waits for neither memory nor a processor.
	Exempt bool
}

// TextCheck returns an error if PromQL texts cost too much to parse.
type TextCheck func(texts ...string) error

// Info says what is read and for whom.
type Info struct {
	Method, Endpoint string
	// Expressions are the PromQL texts and selectors of the request.
	Expressions []string
	Client      string // Address of the client.
	UserAgent   string
	// Origin holds Grafana's headers that say which dashboard and panel asked.
	Origin map[string]string
}

// Read is a request that reads the database. Its methods may be called by any
// goroutine; those that code deep in the database calls also on a nil *Read,
// which knows no limit.
type Read struct {
	Info
	Limits
	Started time.Time

	id     uint64
	cancel context.CancelCauseFunc
	procs  *Procs
	proc   proc
	done   chan struct{}

	running atomic.Bool
	place   atomic.Pointer[place]
	long    atomic.Bool // It has a place and memory for reads that may run for long, or waits for them.
	answer  atomic.Int32
	series  atomic.Int64
	bytes   atomic.Int64

	// What the read says of its memory, in bytes.
	expected, used atomic.Int64
	reserved       atomic.Int64 // What of the expected is reserved.

	budget *Budget
	// granted is how much may be used before the budget is asked.
	granted atomic.Int64
	// The rest is guarded by budget.mtx.
	held    int64
	large   bool
	most    int64 // What the read may have, of the budget at its start.
	needs   int64 // What it has to wait for, or 0.
	waited  bool  // It runs again, and has waited for what it needed.
	leaving bool  // It was stopped for want of memory.
	ended   bool
}

// What becomes of a run of a read.
const (
	undecided int32 = iota
	answering       // The answer has begun.
	runsAgain       // There is none: it will run again.
)

// Begun says that the answer is about to begin, and returns false if it must not: the
// read has found out that it must wait, and runs again.
func (r *Read) Begun() bool {
	return r.answer.CompareAndSwap(undecided, answering) || r.answer.Load() == answering
}

// MustWait says whether the read has ended only because it has to wait: then it is to be
// admitted again, and to run from its start.
func (r *Read) MustWait() bool { return r.answer.Load() == runsAgain }

// errMustWait unwinds a read that has to let go of all that it has, to wait, and to run
// again.
var errMustWait = errors.New("there is no room for this request yet")

// runAgain ends the run, unless the answer has begun.
func (r *Read) runAgain() error {
	if r.answer.CompareAndSwap(undecided, runsAgain) || r.MustWait() {
		return errMustWait
	}
	return nil
}

// stay returns nil if the read may go on where it is. One that is quick no more moves to
// a place and to memory for reads that may run for long. If there is none it runs again.
// One whose answer has begun cannot: it waits for a place where it is, so that those for
// quick reads are theirs, and keeps the memory that it has.
func (r *Read) stay(ctx context.Context) error {
	if r.MustWait() {
		return errMustWait
	}
	p := r.place.Load()
	if p == nil || time.Now().Before(p.quickUntil) || !p.judged.CompareAndSwap(false, true) {
		return nil
	}
	moved := p.move()
	if moved && r.budget.move(r) {
		return nil
	}
	r.long.Store(true)
	if err := r.runAgain(); err != nil {
		return err
	}
	r.long.Store(false)
	if !moved {
		r.Wait()
		p.waitToMove(ctx)
		r.budget.move(r)
	}
	return nil
}

// isQuick says whether the read has only just begun.
func (r *Read) isQuick() bool {
	p := r.place.Load()
	return p == nil || !r.long.Load() && time.Now().Before(p.quickUntil)
}

// FromContext returns the read that the context belongs to, or nil.
func FromContext(ctx context.Context) *Read {
	r, _ := storage.ReadAccountFrom(ctx).(*Read)
	return r
}

// Stop ends the read: its context is done, with s as the cause. Only the first
// call counts.
func (r *Read) Stop(s *Stop) { r.cancel(s) }

// Wrote accounts for n more bytes of the answer.
func (r *Read) Wrote(n int) { r.bytes.Add(int64(n)) }

// Sent returns how many bytes of the answer were written.
func (r *Read) Sent() int64 { return r.bytes.Load() }

// Check returns why the context has ended, or nil.
func Check(ctx context.Context) error { return storage.ReadEnded(ctx) }

// Wait says that the read is about to wait for something other than a processor,
// and returns whether it had one for long: then it calls Yield afterwards.
func (r *Read) Wait() bool { return r.procs.leave(&r.proc) }

// Reason is why a read was stopped or refused, as in metrics.
type Reason string

// The reasons. Those of the client's making have the status 422, all others 503.
const (
	ReasonDeadline Reason = "deadline"  // Took longer than it may.
	ReasonTooLarge Reason = "too_large" // Needs more than any read may have.
	ReasonText     Reason = "text"      // The PromQL text costs too much to parse.
	ReasonMemory   Reason = "memory"    // All reads together need more than there is.
	ReasonQueue    Reason = "queue"     // Waited too long for its turn.
	ReasonSlow     Reason = "slow"      // The client reads too slowly.
	ReasonOperator Reason = "operator"  // Somebody stopped it.
	ReasonShutdown Reason = "shutdown"  // The server ends.
	ReasonBroken   Reason = "broken"    // Failed after its answer had begun.
)

// Stop is the cause of the end of a read's context.
type Stop struct {
	Reason Reason
	// Text says what can be done, what happened, and which limit it was.
	Text string
}

// Refusal returns why the read is to be stopped: first what its client can do, as
// Grafana shows two lines of an error, and then what became of it.
func (r *Read) Refusal(reason Reason, do, what string, args ...any) *Stop {
	return &Stop{reason, do + ": " + r.Method + " " + r.Endpoint + " " + fmt.Sprintf(what, args...)}
}

func (s *Stop) Error() string { return s.Text }

// Is makes errors.Is(err, context.DeadlineExceeded) hold for a deadline.
func (s *Stop) Is(target error) bool {
	return s.Reason == ReasonDeadline && target == context.DeadlineExceeded
}

// Stopped returns why the read of the context was stopped, or nil if it was not,
// or if its client has left.
func Stopped(ctx context.Context) *Stop {
	var s *Stop
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &s) {
		return s
	}
	return nil
}

// CheckTexts stops the read if its PromQL texts cost too much to parse, and
// returns why.
func (r *Read) CheckTexts(texts ...string) error {
	if r.CheckText == nil {
		return nil
	}
	err := r.CheckText(texts...)
	if err == nil {
		return nil
	}
	stop := &Stop{ReasonText, err.Error()}
	r.Stop(stop)
	return stop
}

// CheckRegexes is CheckTexts for regular expressions that are not part of PromQL.
func (r *Read) CheckRegexes(regexes []string) error {
	texts := make([]string, len(regexes))
	for i, re := range regexes {
		texts[i] = "{x=~" + strconv.Quote(re) + "}"
	}
	return r.CheckTexts(texts...)
}

// CheckResponse stops the read if its answer would have more than the bytes that
// it may have, and returns why. size is reckoned before anything is sent, so
// that the refusal still has its status.
func (r *Read) CheckResponse(size int64) error {
	if r == nil || r.ResponseBytes == 0 || size <= r.ResponseBytes {
		return nil
	}
	stop := r.Refusal(ReasonTooLarge, cmp.Or(r.Narrower, "Aggregate, or select fewer series, a shorter range or a larger step"),
		"has an answer of more than %d bytes, and at most --guard.response-max-bytes=%d may be sent", size-1, r.ResponseBytes)
	r.Stop(stop)
	return stop
}
