// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/oomstorm/internal/fill"
	"github.com/promguard/promguard/bench/oomstorm/internal/limit"
	"github.com/promguard/promguard/bench/oomstorm/internal/scenario"
	"github.com/promguard/promguard/bench/oomstorm/internal/server"
	"github.com/promguard/promguard/bench/oomstorm/internal/targets"
)

const (
	// after is how far the samples reach that every series has when its server
	// starts, beyond the time that is measured.
	after = 10 * time.Minute
	// A head is compacted when it is longer than headSpan. The samples begin so
	// early that one of ahead of the time, which is as far as a server takes any,
	// makes it as long when the compaction is due, even if the starts take ahead.
	headSpan = 3 * time.Hour
	ahead    = 10 * time.Minute

	// Memory is at rest when it has not fallen by restShare for restPeriod, or
	// after restTimeout.
	restShare   = 0.005
	restPeriod  = 3 * time.Second
	restTimeout = 90 * time.Second

	// memLimitShare of the limit is what Prometheus aims for in a cgroup.
	memLimitShare = 0.9
)

// host opens sessions, one at a time, in one temporary directory.
type host struct {
	options
	scenario *scenario.Scenario
	dir      string
	set      *targets.Set // nil: nothing is scraped
	out      io.Writer    // progress
	limit    int64        // in bytes, once it is known
}

// newHost checks the binaries and makes the temporary directory, which close
// removes.
func newHost(ctx context.Context, o options, s *scenario.Scenario, out io.Writer) (*host, error) {
	for i := range o.binaries {
		if err := o.binaries[i].Check(ctx); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(o.tmpDir, "oomstorm-")
	if err != nil {
		return nil, fmt.Errorf("--tmp-dir: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	return &host{options: o, scenario: s, dir: dir, out: out, limit: s.Limit.Bytes}, nil
}

func (h *host) close() error { return os.RemoveAll(h.dir) }

func (h *host) say(b binary.Binary, format string, args ...any) {
	fmt.Fprintf(h.out, "%s %s: %s\n", time.Now().Format(time.TimeOnly), b.Name, fmt.Sprintf(format, args...))
}

// session is a server under its limit, on its data directory. The server can be
// another one after a restart.
type session struct {
	*server.Server
	host    *host
	binary  binary.Binary
	options server.Options
	cgroup  *limit.Cgroup // nil: none
	limitBy string        // what enforces the limit, in words
	rest    int64         // RSS in bytes, without the limit where that depends on it
	memory  string        // GOMEMLIMIT as the server says it
}

// open makes a data directory, starts a server on it and waits until its memory
// is at rest. If the limit is a multiple of that, the server is then started
// again under it. An EarlyEndError is that of a start under the limit.
func (h *host) open(ctx context.Context, b binary.Binary) (s *session, err error) {
	s = &session{host: h, binary: b, limitBy: "off", options: server.Options{DataDir: filepath.Join(h.dir, "data"), ReadyTimeout: h.readyTimeout}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.options.Addr, err = freeAddr(); err != nil {
		return s, err
	}
	if s.options.ConfigFile, err = writeConfig(h.dir, s.options.Addr, h.set, h.scenario.ScrapeInterval, h.scenario.RuleInterval); err != nil {
		return s, err
	}
	if err := s.fill(ctx); err != nil {
		return s, err
	}
	// A limit that depends on the memory at rest leaves that start free.
	if h.scenario.Limit.Factor == 0 {
		if err := s.constrain(); err != nil {
			return s, err
		}
	}
	if err := s.start(ctx); err != nil {
		return s, err
	}
	if s.rest, err = s.settle(ctx); err != nil {
		return s, err
	}
	h.say(b, "at rest: %s", mib(s.rest))
	if h.scenario.Limit.Factor > 0 {
		if h.limit == 0 {
			h.limit = h.scenario.Limit.Of(s.rest)
		}
		if err := s.startUnderLimit(ctx); err != nil {
			return s, err
		}
	}
	s.memory, err = s.goMemLimit(ctx)
	return s, err
}

// freeAddr is where a server can listen, also after a restart.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (s *session) fill(ctx context.Context) error {
	sc := s.host.scenario
	begin := time.Now()
	now := begin.Truncate(time.Second)
	o := fill.Options{Dir: s.options.DataDir, Series: sc.Series, Seed: sc.Seed, From: now.Add(-sc.History), To: now.Add(sc.Span() + after)}
	if until, ok := sc.UntilCompaction(); ok {
		o.Old = now.Add(until + ahead - headSpan)
		o.To = o.Old.Add(headSpan - fill.Step)
	}
	stats, err := fill.Write(ctx, o)
	if err != nil {
		return fmt.Errorf("writing the data directory: %w", err)
	}
	s.host.say(s.binary, "wrote %d series, %.0f%% of them with le, and %d samples in %s", stats.Series,
		100*float64(stats.Buckets)/float64(stats.Series), stats.Samples, time.Since(begin).Round(100*time.Millisecond))
	return nil
}

// start starts the server.
func (s *session) start(ctx context.Context) error {
	if s.host.set != nil {
		s.host.set.Forget()
	}
	begin := time.Now()
	started, err := server.Start(ctx, s.binary, s.options)
	if err != nil {
		if early := (*server.EarlyEndError)(nil); errors.As(err, &early) {
			early.How += s.byKernel()
		}
		return err
	}
	s.Server = started
	s.host.say(s.binary, "ready after %s, limit %s", time.Since(begin).Round(100*time.Millisecond), s.limitBy)
	return nil
}

// constrain has the next start be under the limit, if there is one.
func (s *session) constrain() error {
	if s.host.limit == 0 {
		return nil
	}
	if s.host.limitBy != byWatchdog {
		var err error
		if s.cgroup, err = limit.NewCgroup(s.host.limit); err == nil {
			s.options.Procs = s.cgroup.Procs()
			s.limitBy = fmt.Sprintf("%s by a cgroup of version %d", mib(s.host.limit), s.cgroup.Version)
			return nil
		}
		if s.host.limitBy == byCgroup {
			return fmt.Errorf("making a memory cgroup: %w", err)
		}
		s.host.say(s.binary, "no memory cgroup can be made (%v): a watchdog kills at the limit", err)
	}
	s.options.KillAt, s.options.GOMemLimit = s.host.limit, int64(memLimitShare*float64(s.host.limit))
	s.limitBy = mib(s.host.limit) + " by a watchdog on anonymous memory"
	return nil
}

// startUnderLimit starts the server again, under the limit that is known now.
func (s *session) startUnderLimit(ctx context.Context) error {
	if _, clean := s.Stop(ctx, s.host.readyTimeout); !clean {
		return errors.Join(fmt.Errorf("%s did not end after SIGTERM", s.binary.Name), context.Cause(ctx))
	}
	if err := s.constrain(); err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	_, err := s.settle(ctx)
	return err
}

// settle waits until every target was scraped twice, forces a collection of
// garbage, and returns the resident memory when it falls no more, or after
// restTimeout.
func (s *session) settle(ctx context.Context) (int64, error) {
	begin := time.Now()
	for s.host.set != nil && s.host.set.Scraped() < 2 {
		if time.Since(begin) > restTimeout {
			return 0, fmt.Errorf("%s had not scraped its targets twice after %s", s.binary.Name, restTimeout)
		}
		if err := s.wait(ctx); err != nil {
			return 0, err
		}
	}
	for range 2 {
		if _, err := s.Get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
			return 0, errors.Join(s.wait(ctx), fmt.Errorf("asking %s for a garbage collection: %w", s.binary.Name, err))
		}
	}
	begin = time.Now()
	rest, since := s.Watch.Now().RSS, begin
	for time.Since(since) < restPeriod && time.Since(begin) < restTimeout {
		if err := s.wait(ctx); err != nil {
			return 0, err
		}
		if now := s.Watch.Now().RSS; float64(now) < float64(rest)*(1-restShare) {
			rest, since = now, time.Now()
		}
	}
	return min(rest, s.Watch.Now().RSS), nil
}

// wait waits a moment; it is an error if the server ends meanwhile.
func (s *session) wait(ctx context.Context) error {
	select {
	case <-time.After(100 * time.Millisecond):
		return nil
	case <-s.Dead():
		return &server.EarlyEndError{Binary: s.binary, How: s.how(), Tail: s.Tail()}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// goMemLimit is what the server itself says about its GOMEMLIMIT.
func (s *session) goMemLimit(ctx context.Context) (string, error) {
	b, err := s.Get(ctx, "/api/v1/status/runtimeinfo")
	if err != nil {
		return "", err
	}
	var info struct {
		Data struct {
			GOMEMLIMIT int64 `json:"GOMEMLIMIT"`
		} `json:"data"`
	}
	if err := json.Unmarshal(b, &info); err != nil {
		return "", fmt.Errorf("runtime information of %s: %w", s.binary.Name, err)
	}
	return mib(info.Data.GOMEMLIMIT), nil
}

// how is how the server ended, and whether the kernel killed it for the limit.
func (s *session) how() string { return s.How() + s.byKernel() }

func (s *session) byKernel() string {
	if s.cgroup == nil {
		return ""
	}
	if kills, err := s.cgroup.Kills(); err != nil || kills == 0 {
		return ""
	}
	return ", by the kernel at the cgroup's limit"
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
