// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/oomstorm/internal/fill"
	"github.com/promguard/promguard/bench/oomstorm/internal/limit"
	"github.com/promguard/promguard/bench/oomstorm/internal/server"
	"github.com/promguard/promguard/bench/oomstorm/internal/targets"
)

const (
	// before and after are how far the samples reach that every series has when
	// its server starts, beyond the time that is measured.
	before = 5 * time.Minute
	after  = 10 * time.Minute

	// Memory is at rest when it has not fallen by restShare for a while, or after
	// restTimeout.
	restShare   = 0.005
	restTimeout = 90 * time.Second

	// memLimitShare of the limit is what Prometheus aims for in a cgroup.
	memLimitShare = 0.9
)

// host opens sessions, one at a time, in one temporary directory.
type host struct {
	common
	dir    string
	config string       // Prometheus' configuration file
	set    *targets.Set // nil: nothing is scraped
	out    io.Writer    // progress
	span   time.Duration
	limit  int64 // in bytes, once it is known
}

// newHost checks the binaries and makes the temporary directory, which close
// removes.
func newHost(ctx context.Context, c common, span time.Duration, out io.Writer) (*host, error) {
	for i := range c.Binaries {
		if err := c.Binaries[i].Check(ctx); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(c.TmpDir, "oomstorm-")
	if err != nil {
		return nil, fmt.Errorf("--tmp-dir: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	return &host{common: c, dir: dir, out: out, span: span, limit: c.Limit.Bytes}, nil
}

func (h *host) close() error { return os.RemoveAll(h.dir) }

func (h *host) say(b binary.Binary, format string, args ...any) {
	fmt.Fprintf(h.out, "%s %s: %s\n", time.Now().Format(time.TimeOnly), b.Name, fmt.Sprintf(format, args...))
}

// session is a server under its limit.
type session struct {
	*server.Server
	host    *host
	data    string
	cgroup  *limit.Cgroup // nil: none
	limitBy string        // what enforces the limit, in words
	rest    int64         // RSS in bytes, without the limit where that depends on it
	from    time.Time     // of the first sample
	stats   fill.Stats
	memory  string // GOMEMLIMIT as the server says it
}

// open makes a data directory, starts a server on it and waits until its memory
// is at rest. If the limit is a multiple of that, the server is then started
// again under it. An EarlyEndError is that of a start under the limit.
func (h *host) open(ctx context.Context, b binary.Binary) (s *session, err error) {
	s = &session{host: h, data: filepath.Join(h.dir, "data"), limitBy: "off"}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.fill(ctx, b); err != nil {
		return s, err
	}
	if err := s.start(ctx, b); err != nil {
		return s, err
	}
	if s.rest, err = s.settle(ctx); err != nil {
		return s, err
	}
	h.say(b, "at rest with %d series: %s", s.stats.Series, mib(s.rest))
	if h.limit == 0 && h.Limit.Factor > 0 {
		h.limit = h.Limit.Of(s.rest)
	}
	if h.Limit.Factor > 0 {
		if err := s.restart(ctx, b); err != nil {
			return s, err
		}
	}
	s.memory, err = s.goMemLimit(ctx)
	return s, err
}

func (s *session) fill(ctx context.Context, b binary.Binary) error {
	now := time.Now().Truncate(time.Second)
	s.from = now.Add(-before)
	begin := time.Now()
	var err error
	s.stats, err = fill.Write(ctx, fill.Options{
		Dir: s.data, Series: s.host.Series, Seed: s.host.Seed, From: s.from, To: now.Add(s.host.span + after), Exemplars: true,
	})
	if err != nil {
		return fmt.Errorf("writing the data directory: %w", err)
	}
	s.host.say(b, "wrote %d series, %.0f%% of them with le, and %d samples in %s", s.stats.Series,
		100*float64(s.stats.Buckets)/float64(s.stats.Series), s.stats.Samples, time.Since(begin).Round(100*time.Millisecond))
	return nil
}

// start starts the server, under the limit if it is known.
func (s *session) start(ctx context.Context, b binary.Binary) error {
	o := server.Options{DataDir: s.data, ConfigFile: s.host.config, ReadyTimeout: s.host.ReadyTimeout}
	// The first start of the first of several binaries tells the limit; the
	// first starts of the others must then be as free.
	if s.host.limit > 0 && (s.host.Limit.Factor == 0 || s.rest > 0) {
		if err := s.constrain(b, &o); err != nil {
			return err
		}
	}
	if s.host.set != nil {
		s.host.set.Forget()
	}
	begin := time.Now()
	var err error
	if s.Server, err = server.Start(ctx, b, o); err != nil {
		if early := (*server.EarlyEndError)(nil); errors.As(err, &early) {
			early.How += s.byKernel()
		}
		return err
	}
	s.host.say(b, "ready after %s, limit %s", time.Since(begin).Round(100*time.Millisecond), s.limitBy)
	return nil
}

func (s *session) constrain(b binary.Binary, o *server.Options) error {
	if s.host.LimitBy != byWatchdog {
		var err error
		if s.cgroup, err = limit.NewCgroup(s.host.limit); err == nil {
			o.Procs = s.cgroup.Procs()
			s.limitBy = fmt.Sprintf("%s by a cgroup of version %d", mib(s.host.limit), s.cgroup.Version)
			return nil
		}
		if s.host.LimitBy == byCgroup {
			return fmt.Errorf("making a memory cgroup: %w", err)
		}
		s.host.say(b, "no memory cgroup can be made (%v): a watchdog kills at the limit", err)
	}
	o.KillAt, o.GOMemLimit = s.host.limit, int64(memLimitShare*float64(s.host.limit))
	s.limitBy = mib(s.host.limit) + " by a watchdog on anonymous memory"
	return nil
}

// restart starts the server again, under the limit that is known now.
func (s *session) restart(ctx context.Context, b binary.Binary) error {
	if _, clean := s.Stop(ctx, s.host.ReadyTimeout); !clean {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%s did not end after SIGTERM", b.Name)
	}
	if err := s.start(ctx, b); err != nil {
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
			return 0, fmt.Errorf("%s had not scraped its targets twice after %s", s.Binary.Name, restTimeout)
		}
		if err := s.wait(ctx); err != nil {
			return 0, err
		}
	}
	for range 2 {
		if _, err := s.Get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
			return 0, errors.Join(s.wait(ctx), fmt.Errorf("asking %s for a garbage collection: %w", s.Binary.Name, err))
		}
	}
	begin = time.Now()
	rest, since := s.Watch.Now().RSS, begin
	for time.Since(since) < s.host.RestPeriod && time.Since(begin) < restTimeout {
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
		return &server.EarlyEndError{Binary: s.Binary, How: s.how(), Tail: s.Tail()}
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
			GOMEMLIMIT json.Number `json:"GOMEMLIMIT"`
		} `json:"data"`
	}
	if err := json.Unmarshal(b, &info); err != nil {
		return "", fmt.Errorf("runtime information of %s: %w", s.Binary.Name, err)
	}
	n, err := info.Data.GOMEMLIMIT.Int64()
	if err != nil {
		return "", err
	}
	return mib(n), nil
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
	return errors.Join(err, os.RemoveAll(s.data))
}

func mib(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }
