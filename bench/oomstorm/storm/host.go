// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package storm starts Prometheus binaries under a limit of memory, does to them what
// a scenario says, and measures what comes of it.
package storm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/oomstorm/internal/fill"
	"github.com/promguard/promguard/bench/oomstorm/internal/limit"
	"github.com/promguard/promguard/bench/oomstorm/internal/scenario"
	"github.com/promguard/promguard/bench/oomstorm/internal/server"
	"github.com/promguard/promguard/bench/oomstorm/internal/targets"
	"github.com/promguard/promguard/internal/proc"
)

const (
	// after is how far the samples reach that every series has when its server
	// starts, beyond the time that is measured.
	after = 10 * time.Minute
	// A head is compacted when it is longer than headSpan. The samples begin so
	// early that one of ahead of the time, which is as far as a server takes any,
	// makes it as long when the compaction is due, even if the starts take ahead.
	headSpan = 3 * time.Hour
	ahead    = 10*time.Minute - 15*time.Second

	// Memory is at rest when it has not fallen by restShare for restPeriod, or
	// after restTimeout.
	restShare   = 0.005
	restPeriod  = 3 * time.Second
	restTimeout = 90 * time.Second
)

// Options are what every measurement needs.
type Options struct {
	Binaries []binary.Binary
	// TmpDir is where the data directory goes; there is one at a time.
	TmpDir string
	// ReadyTimeout is how long a binary may take to start.
	ReadyTimeout time.Duration
}

// host opens sessions, one at a time, in one temporary directory.
type host struct {
	Options

	scenario *scenario.Scenario
	dir      string
	set      *targets.Set // nil: nothing is scraped
	out      io.Writer    // progress
	limit    int64        // in bytes, once it is known
}

// newHost checks the binaries and makes the temporary directory, which close
// removes.
func newHost(ctx context.Context, o Options, s *scenario.Scenario, out io.Writer) (*host, error) {
	for i := range o.Binaries {
		if err := o.Binaries[i].Check(ctx); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(o.TmpDir, "oomstorm-")
	if err != nil {
		return nil, fmt.Errorf("--tmp-dir: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	return &host{Options: o, scenario: s, dir: dir, out: out, limit: s.Limit.Bytes}, nil
}

func (h *host) close() error { return os.RemoveAll(h.dir) }

// session is a server under its limit, on its data directory. The server can be
// another one after a restart.
type session struct {
	*server.Server
	host    *host
	binary  binary.Binary
	options server.Options
	cgroup  *limit.Cgroup // nil: none
	limitBy string        // what enforces the limit, in words
	ready   time.Time     // when it was last started
	restAt  time.Time
	rest    int64 // RSS in bytes, without the limit where that depends on it
	live    int64 // of the heap, at rest
}

func (s *session) say(format string, args ...any) {
	fmt.Fprintf(s.host.out, "%s %s: %s\n", time.Now().Format(time.TimeOnly), s.binary.Name, fmt.Sprintf(format, args...))
}

// open makes a data directory, starts a server on it and waits until its memory
// is at rest. If the limit is a multiple of that, the server is then started
// again under it. The session must be closed, also after an error.
func (h *host) open(ctx context.Context, b binary.Binary) (*session, error) {
	s := &session{host: h, binary: b, limitBy: "off", options: server.Options{DataDir: filepath.Join(h.dir, "data"), ReadyTimeout: h.ReadyTimeout}}
	var err error
	if s.options.Addr, err = proc.FreeAddress(); err != nil { // It stays, also after a restart.
		return s, err
	}
	if s.options.ConfigFile, err = writeConfig(h.dir, s.options.Addr, h.set, h.scenario.ScrapeInterval, h.scenario.RuleInterval); err != nil {
		return s, err
	}
	if err := s.fill(ctx); err != nil {
		return s, err
	}
	free := h.scenario.Limit.Factor > 0 // What it takes at rest makes the limit.
	if !free {
		s.constrain()
	}
	if err := s.start(ctx); err != nil {
		return s, err
	}
	if s.rest, err = s.settle(ctx); err != nil || !free {
		return s, err
	}
	h.limit = cmp.Or(h.limit, h.scenario.Limit.Of(s.rest))
	if !s.Stop(ctx, h.ReadyTimeout) {
		return s, errors.Join(fmt.Errorf("%s did not end after SIGTERM", b.Name), context.Cause(ctx))
	}
	s.constrain()
	if err := s.start(ctx); err != nil {
		return s, err
	}
	_, err = s.settle(ctx)
	return s, err
}

func (s *session) fill(ctx context.Context) error {
	sc := s.host.scenario
	begin := time.Now()
	now := begin.Truncate(time.Second)
	o := fill.Options{Dir: s.options.DataDir, Series: sc.Series, From: now.Add(-sc.History), To: now.Add(sc.Span() + after)}
	if until, ok := sc.UntilCompaction(); ok {
		o.Old = now.Add(until + ahead - headSpan)
		o.To = o.Old.Add(headSpan - fill.Step)
	}
	if err := fill.Write(ctx, o); err != nil {
		return fmt.Errorf("writing the data directory: %w", err)
	}
	s.say("wrote %d series in %s", sc.Series, time.Since(begin).Round(100*time.Millisecond))
	return nil
}

// start starts the server.
func (s *session) start(ctx context.Context) error {
	begin := time.Now()
	started, err := server.Start(ctx, s.binary, s.options)
	if early := (*server.EarlyEndError)(nil); errors.As(err, &early) {
		s.Server = early.Server
		early.How = s.how()
	}
	if err != nil {
		return err
	}
	s.Server, s.ready = started, time.Now()
	s.say("ready after %s, limit %s", s.ready.Sub(begin).Round(100*time.Millisecond), s.limitBy)
	return nil
}

// constrain has the next start be under the limit, if there is one: by a cgroup
// where one can be made.
func (s *session) constrain() {
	if s.host.limit == 0 {
		return
	}
	var err error
	if s.cgroup, err = limit.NewCgroup(s.host.limit); err == nil {
		s.options.Procs = s.cgroup.Procs()
		s.limitBy = fmt.Sprintf("%s by a cgroup of version %d", mib(s.host.limit), s.cgroup.Version)
		return
	}
	s.say("no memory cgroup can be made (%v): oomstorm kills at the limit", err)
	s.options.KillAt = s.host.limit
	s.limitBy = mib(s.host.limit) + " of anonymous memory by oomstorm"
}

// settle waits until everything was scraped twice, forces a collection of garbage,
// and returns the resident memory when it falls no more, or after restTimeout.
func (s *session) settle(ctx context.Context) (int64, error) {
	begin := time.Now()
	for s.host.set != nil {
		window := model.Duration(time.Since(s.ready) + time.Millisecond)
		scraped, err := s.query(ctx, fmt.Sprintf("count(count_over_time(up[%s]) > 1)", window), time.Now())
		if err == nil && int(scraped) > s.host.set.Len(targets.Steady, targets.Churning, targets.Exploding) {
			break
		}
		if time.Since(begin) > restTimeout {
			return 0, fmt.Errorf("%s had not scraped its targets twice after %s", s.binary.Name, restTimeout)
		}
		if err := s.wait(ctx); err != nil {
			return 0, err
		}
	}
	if _, err := proc.Collect(ctx, s.URL); err != nil {
		return 0, errors.Join(s.wait(ctx), fmt.Errorf("asking %s for a garbage collection: %w", s.binary.Name, err))
	}
	begin = time.Now()
	rest, since := s.rss(), begin
	for time.Since(since) < restPeriod && time.Since(begin) < restTimeout {
		if err := s.wait(ctx); err != nil {
			return 0, err
		}
		if now := s.rss(); float64(now) < float64(rest)*(1-restShare) {
			rest, since = now, time.Now()
		}
	}
	s.restAt = time.Now()
	s.live, _ = s.Live()
	s.say("at rest: %s", mib(s.rss()))
	return s.rss(), nil
}

func (s *session) rss() int64 {
	now, _ := s.Memory()
	return now.RSS
}

// wait waits a moment; it is an error if the server ends meanwhile.
func (s *session) wait(ctx context.Context) error {
	err := s.Wait(ctx)
	if early := (*server.EarlyEndError)(nil); errors.As(err, &early) {
		early.How = s.how()
	}
	return err
}

// how is how the server ended, and whether the kernel killed it for the limit.
func (s *session) how() string {
	if s.cgroup != nil {
		if kills, err := s.cgroup.Kills(); err == nil && kills > 0 {
			return s.How() + ", by the kernel at the cgroup's limit"
		}
	}
	return s.How()
}

// query is the value of an instant query that has one.
func (s *session) query(ctx context.Context, query string, at time.Time) (float64, error) {
	vector, err := s.vector(ctx, query, at)
	if err == nil && len(vector) != 1 {
		err = fmt.Errorf("%s has not one value, but %s", query, vector)
	}
	if err != nil {
		return 0, err
	}
	return float64(vector[0].Value), nil
}

// vector are the values of an instant query.
func (s *session) vector(ctx context.Context, query string, at time.Time) (model.Vector, error) {
	client, err := api.NewClient(api.Config{Address: s.URL})
	if err != nil {
		return nil, err
	}
	defer client.(api.CloseIdler).CloseIdleConnections()
	value, _, _, err := promv1.NewAPI(client).Query(ctx, query, at)
	vector, _ := value.(model.Vector)
	return vector, err
}

// close ends the server and removes what was made for it.
func (s *session) close() error {
	if s.Server != nil {
		s.Kill()
	}
	var err error
	if s.cgroup != nil {
		err = s.cgroup.Remove()
	}
	return errors.Join(err, os.RemoveAll(s.options.DataDir))
}

func mib(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }
