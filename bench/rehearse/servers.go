// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rehearse

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/walreplay/replays"
	"github.com/promguard/promguard/internal/promapi"
)

// Restart is what one start took, from the start of the process until the log was
// replayed.
type Restart struct {
	Version    string   `json:"version"`
	Args       []string `json:"args,omitempty"`
	Seconds    float64  `json:"seconds"`
	CPUSeconds float64  `json:"cpu_seconds"`
	PeakBytes  int64    `json:"peak_bytes"` // anonymous memory
	Series     int64    `json:"series"`     // in the head then
	// From and To are when the head begins and ends, in milliseconds.
	FromMs int64 `json:"from_ms"`
	ToMs   int64 `json:"to_ms"`
	// Failed says why there was no start.
	Failed string `json:"failed,omitempty"`
}

// Restarts are those of both.
type Restarts struct {
	Stock   Restart `json:"stock"`
	Patched Restart `json:"patched"`
	// Equal says that the heads are the same, Differ where they are not. Neither: they
	// were not compared.
	Equal   bool   `json:"equal"`
	Differ  string `json:"differ,omitempty"`
	Samples int    `json:"samples,omitempty"`
}

func (r *Restarts) failed() bool { return r.Stock.Failed != "" || r.Patched.Failed != "" }

// Recording is what is replayed.
type Recording struct {
	Path      string `json:"path"`
	Series    int    `json:"series"` // records in the log
	Samples   int    `json:"samples"`
	Bytes     int64  `json:"bytes"`
	Blocks    int    `json:"blocks_left_out,omitempty"`
	Corrupt   string `json:"corrupt,omitempty"`
	Exemplars int    `json:"exemplars,omitempty"`
}

// replayTimeout bounds one replay.
const replayTimeout = time.Hour

// The servers that run, on copies of the recording. The patched one is there without
// limits of reads, and with those that it is given.
const (
	stockServer   = "stock"
	patchedServer = "patched"
	limitedServer = "limited"
)

// server starts a server, unless it runs.
func (r *rehearsal) server(ctx context.Context, name string) (*replays.Server, error) {
	if s := r.servers[name]; s != nil {
		return s, nil
	}
	b := r.patched
	if name == stockServer {
		b = r.stock
	}
	o := replays.Options{GOMAXPROCS: runtime.NumCPU(), Timeout: replayTimeout, Exemplars: r.report.Recording.Exemplars}
	if name == limitedServer {
		o.Limit = r.limit
	}
	r.say("%s: starting", name)
	s, err := replays.Start(ctx, b, r.dir, r.dataOf(name), o)
	if err != nil {
		return nil, err
	}
	r.servers[name] = s
	return s, nil
}

func (r *rehearsal) dataOf(name string) string { return filepath.Join(r.tmp, name) }

// stopAll ends all servers and removes their data.
func (r *rehearsal) stopAll() error {
	var err error
	for name, server := range r.servers {
		server.Kill()
		delete(r.servers, name)
		err = errors.Join(err, os.RemoveAll(r.dataOf(name)))
	}
	return err
}

// replay measures the restarts and compares the heads.
func (r *rehearsal) replay(ctx context.Context) error {
	files, err := filesOf(r.dir)
	if err != nil {
		return err
	}
	recording, err := step(r, "recording", files, func() (Recording, error) {
		c, err := replays.Count(ctx, r.dir, r.Progress)
		if err != nil {
			return Recording{}, err
		}
		found := Recording{Path: r.dir.Path, Series: c.Series, Samples: c.Samples, Bytes: r.dir.Bytes, Blocks: r.dir.Blocks, Exemplars: c.Exemplars}
		if c.Corruption != nil {
			found.Corrupt = c.Corruption.Error()
		}
		return found, nil
	})
	if err != nil {
		return err
	}
	r.report.Recording = &recording
	to := &Restarts{}
	r.report.Restart = to
	var programs [2]program
	for i, of := range []struct {
		name   string
		binary binary.Binary
		into   *Restart
	}{{stockServer, r.stock, &to.Stock}, {patchedServer, r.patched, &to.Patched}} {
		if programs[i], err = programOf(of.binary); err != nil {
			return err
		}
		if *of.into, err = step(r, of.name, []any{files, programs[i]}, func() (Restart, error) { return r.restart(ctx, of.name, of.binary) }); err != nil {
			return err
		}
	}
	r.inputs = []any{files, programs}
	if to.failed() {
		return nil
	}
	equal, err := step(r, "heads", r.inputs, func() (Restarts, error) { return r.compareHeads(ctx) })
	to.Equal, to.Differ, to.Samples = equal.Equal, equal.Differ, equal.Samples
	return err
}

// restart measures one. That the patched server does not start is a result.
func (r *rehearsal) restart(ctx context.Context, name string, b binary.Binary) (Restart, error) {
	found := Restart{Version: b.Version, Args: b.Args}
	s, err := r.server(ctx, name)
	if err != nil && (ctx.Err() != nil || name == stockServer) {
		return found, err
	}
	if err != nil {
		found.Failed = err.Error()
		return found, nil
	}
	found.Seconds, found.CPUSeconds = s.Result.Wall.Seconds(), s.Result.CPU.Seconds()
	found.PeakBytes, found.Series = s.Result.PeakAnon, s.Result.HeadSeries
	found.FromMs, found.ToMs, err = span(ctx, s.URL)
	return found, err
}

// span asks a server when its head begins and ends.
func span(ctx context.Context, address string) (from, to int64, err error) {
	server, err := promapi.NewServer(address, asker.Transport)
	if err != nil {
		return 0, 0, err
	}
	of, err := promapi.Ask[struct {
		HeadStats struct{ MinTime, MaxTime int64 }
	}](ctx, server, http.MethodGet, "status/tsdb", url.Values{"limit": {"1"}}, 1<<20)
	return of.HeadStats.MinTime, of.HeadStats.MaxTime, err
}

func (r *rehearsal) compareHeads(ctx context.Context) (found Restarts, err error) {
	var heads [2]replays.Head
	for i, name := range []string{stockServer, patchedServer} {
		s, err := r.server(ctx, name)
		if err != nil {
			return found, err
		}
		heads[i] = replays.Head{Name: name, URL: s.URL, Dir: r.dataOf(name)}
	}
	sum, err := replays.CompareSamples(ctx, heads[0], heads[1])
	switch {
	case err == nil:
		found.Equal, found.Samples = true, sum.Samples
	case replays.Differ(err):
		found.Differ, err = err.Error(), nil
	case r.died(ctx, patchedServer) != nil:
		found.Differ, err = "the patched server ended while its head was read: "+r.died(ctx, patchedServer).Error(), nil
	case r.died(ctx, stockServer) != nil:
		err = r.died(ctx, stockServer)
	}
	return found, err
}

// died returns how a server ended, if it has and was not asked to.
func (r *rehearsal) died(ctx context.Context, name string) error {
	if s := r.servers[name]; s != nil && ctx.Err() == nil {
		return s.Err()
	}
	return nil
}
