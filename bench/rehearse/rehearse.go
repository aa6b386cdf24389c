// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package rehearse says what would change if the patched Prometheus and promguard's
// policy took the place of a stock server: on a recording of that server, or, as far as
// that can be told so, on the server itself. It composes the replays of walreplay, the
// storms of oomstorm, the checks of drop rules and the judgement of policies, and
// decides nothing that those measure.
package rehearse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/prometheus/prometheus/tsdb/fileutil"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/oomstorm/storm"
	"github.com/promguard/promguard/bench/walreplay/replays"
	"github.com/promguard/promguard/internal/promapi"
	"github.com/promguard/promguard/internal/querylimit"
	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/source"
)

// Input is what is rehearsed.
type Input struct {
	// Recording is a data directory, as walreplay record writes it. Without one, Live is
	// asked for what can be told so.
	Recording string
	Live      *promapi.Client
	// LiveURL is that of Live, and LiveTransport how it is reached.
	LiveURL       string
	LiveTransport http.RoundTripper

	// Stock and Patched are "PATH [ARG...]".
	Stock, Patched string
	// MemoryLimit is that of the server's container, such as 8GiB.
	MemoryLimit string
	// Storm is how long each server is stormed.
	Storm time.Duration

	// Found are the expressions of rules and dashboards, and QueryLogs files of
	// Prometheus's or of promguard's.
	Found     source.Found
	QueryLogs []string
	// Profile are the drop rules, DropRules how the patched server is told of them (a name
	// or a file), and Rules the policy.
	Profile   relabel.Profile
	DropRules string
	Rules     *querylimit.Ruleset
	// Interval is how often jobs are scraped of which it cannot be found out.
	Interval time.Duration

	// Dir keeps the steps that are done, and is made if it is absent. TmpDir has room for
	// two copies of the recording.
	Dir, TmpDir string
	Progress    Progress
}

// Progress is told how far the rehearsal is. What is written to it are whole lines.
type Progress interface {
	io.Writer
	Step(format string, args ...any)
	Count(done, of int)
}

// rehearsal is one that runs.
type rehearsal struct {
	Input

	stock, patched binary.Binary
	limit          int64
	dir            *replays.Dir
	tmp            string
	servers        map[string]*replays.Server
	inputs         []any     // of steps that depend on the recording and both binaries
	from, at       time.Time // the first and the last sample of the recording
	pace           pace
	report         Report
}

// Run rehearses. The error is that of an input, or of a measurement that was not
// possible: then nothing is left but the steps that were done, and the next Run goes on
// after them. What servers do wrong is in the report.
func Run(ctx context.Context, in Input) (*Report, error) {
	// A server dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &rehearsal{Input: in, servers: map[string]*replays.Server{}}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	var err error
	if in.Recording == "" {
		err = r.look(ctx)
	} else {
		err = r.onCopies(ctx)
	}
	if err != nil {
		return nil, err
	}
	if r.report.Answers != nil {
		r.report.Answers.Costs = nil // The steps have them.
	}
	r.report.settle()
	return &r.report, nil
}

// onCopies rehearses on copies of the recording. What is left of a rehearsal that was
// killed is removed first.
func (r *rehearsal) onCopies(ctx context.Context) (err error) {
	if err := os.MkdirAll(r.Dir, 0o777); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	lock, _, err := fileutil.Flock(filepath.Join(r.Dir, "lock"))
	if err != nil {
		return fmt.Errorf("--out: another rehearsal runs in %s: %w", r.Dir, err)
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	place, err := filepath.Abs(r.Dir)
	if err != nil {
		return err
	}
	sum, err := sumOf("place", place)
	if err != nil {
		return err
	}
	copies := filepath.Join(r.TmpDir, "rehearsal-"+sum[:12])
	if err := errors.Join(os.RemoveAll(copies), os.Mkdir(copies, 0o777)); err != nil {
		return fmt.Errorf("--tmp-dir: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(copies)) }()
	return replays.WithCopies(r.Recording, copies, 2, func(dir *replays.Dir, tmp string) error {
		r.dir, r.tmp = dir, tmp
		return errors.Join(r.rehearse(ctx), r.stopAll())
	})
}

// prepare finds mistakes before anything takes long.
func (r *rehearsal) prepare(ctx context.Context) (err error) {
	if r.Recording == "" && r.Live == nil {
		return errors.New("nothing to rehearse: give --recording, or --prometheus.url for a look without one")
	}
	if r.Recording == "" {
		return nil
	}
	if r.stock, err = parseBinary(ctx, "stock", r.Stock); err != nil {
		return err
	}
	if r.patched, err = parseBinary(ctx, "patched", r.Patched); err != nil {
		return err
	}
	if r.MemoryLimit == "" {
		return errors.New("--memory-limit: say which limit your server's container has, such as 8GiB")
	}
	if r.limit, err = storm.ParseLimit(r.MemoryLimit); err != nil {
		return fmt.Errorf("--memory-limit: %w", err)
	}
	if r.Storm < time.Second {
		return fmt.Errorf("--storm must be 1s or more, got %s", r.Storm)
	}
	return nil
}

func parseBinary(ctx context.Context, name, spec string) (binary.Binary, error) {
	if spec == "" {
		return binary.Binary{}, fmt.Errorf("--%s: name the Prometheus, as in --%s='PATH [ARG...]'", name, name)
	}
	b, err := binary.Parse(name + "=" + spec)
	if err == nil {
		err = b.Check(ctx)
	}
	if err != nil {
		return b, fmt.Errorf("--%s: %w", name, err)
	}
	return b, nil
}

// rehearse does everything on the recording.
func (r *rehearsal) rehearse(ctx context.Context) error {
	if err := r.replay(ctx); err != nil {
		return err
	}
	r.from, r.at = time.UnixMilli(r.report.Restart.Stock.FromMs), time.UnixMilli(r.report.Restart.Stock.ToMs)
	asked, err := r.questions()
	if err != nil {
		return err
	}
	if r.report.Restart.failed() {
		r.report.lack("answers", "the patched server did not start")
		return r.static(nil, asked)
	}
	if err := r.compare(ctx, asked); err != nil {
		return err
	}
	known, err := r.ofStock(ctx)
	if err != nil {
		return err
	}
	if err := r.stopAll(); err != nil { // The next ones need the memory.
		return err
	}
	if err := r.refusedByServer(ctx, asked); err != nil {
		return err
	}
	if err := r.stopAll(); err != nil {
		return err
	}
	if err := r.scrapes(ctx); err != nil {
		return err
	}
	if err := r.storms(ctx, asked); err != nil {
		return err
	}
	return r.static(known, asked)
}

// look is what can be told of a live server.
func (r *rehearsal) look(ctx context.Context) error {
	r.report.Live = r.Live.String()
	r.report.lack("restart", "how long it takes, and with how much memory, needs a recording")
	r.report.lack("answers", "whether they differ needs a recording")
	r.report.lack("storm", "whether it is survived needs a recording")
	if err := r.liveRules(ctx); err != nil {
		return err
	}
	known, err := r.ofServer(ctx, r.LiveURL, r.Live)
	if err != nil {
		return err
	}
	r.at = time.Now()
	asked, err := r.questions()
	if err != nil {
		return err
	}
	return r.static(known, asked)
}

// static is what takes no server, and no time.
func (r *rehearsal) static(k *known, asked *asked) error {
	if err := r.refusedByPolicy(k, asked); err != nil {
		return err
	}
	return r.checkRules(k, asked)
}
