// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/oomstorm/internal/clients"
	"github.com/promguard/promguard/bench/oomstorm/internal/family"
	"github.com/promguard/promguard/bench/oomstorm/internal/limit"
	"github.com/promguard/promguard/bench/oomstorm/internal/probe"
	"github.com/promguard/promguard/bench/oomstorm/internal/scenario"
	"github.com/promguard/promguard/bench/oomstorm/internal/server"
	"github.com/promguard/promguard/internal/proc"
)

// ClientsWord is the first argument that has a program be the clients of a storm, by
// RunClients: every program that calls Run or Own must do so.
const ClientsWord = clients.Word

// RunClients is the clients' process.
func RunClients(in io.Reader, out io.Writer) error { return clients.RunChild(in, out) }

// ParseLimit parses a limit of memory that is a size such as 4GiB, in bytes.
func ParseLimit(text string) (int64, error) {
	var l limit.Spec
	if err := l.UnmarshalText([]byte(text)); err != nil || l.Bytes == 0 {
		return 0, fmt.Errorf("%q is not a size such as 8GiB", text)
	}
	return l.Bytes, nil
}

// OwnOptions say which requests to make of a server with which data.
type OwnOptions struct {
	// Binary has arguments that keep it from changing its data.
	Binary binary.Binary
	// Data makes the data directory.
	Data func(ctx context.Context, dir string) error
	// Config is the text of the configuration file.
	Config string
	// Limit of memory, in bytes.
	Limit    int64
	Requests []OwnRequest
	// Clients ask one request after the other, For so long, and wait at most for Timeout.
	Clients      int
	For, Timeout time.Duration
	TmpDir       string
	ReadyTimeout time.Duration
}

// OwnRequest is a GET. Each parameter has one line.
type OwnRequest struct {
	Path   string
	Params url.Values
}

// OwnResult is what came of a storm.
type OwnResult struct {
	Alive bool `json:"alive"`
	// Ended is how the server ended, if it did, and EndedIn when.
	Ended     string   `json:"ended,omitempty"`
	EndedIn   string   `json:"ended_in,omitempty"`
	LastWords []string `json:"last_words,omitempty"`
	LivedSec  float64  `json:"lived_seconds"` // in the storm
	LimitBy   string   `json:"limit_by"`
	PeakBytes int64    `json:"peak_bytes"` // anonymous memory
	// Requests by what came of them: 200, another status, cut by the server, no answer
	// in time.
	Answered int `json:"answered"`
	Refused  int `json:"refused"`
	Cut      int `json:"cut"`
	Late     int `json:"late"`
	// HealthP99Sec is of /-/healthy, which was asked meanwhile.
	HealthP99Sec float64 `json:"health_p99_seconds"`
}

// Own starts a binary on data under a limit, and has clients make requests. That the
// server ends is no error. No process, directory or cgroup is left.
func Own(ctx context.Context, o OwnOptions, log io.Writer) (r OwnResult, err error) {
	dir, err := os.MkdirTemp(o.TmpDir, "oomstorm-")
	if err != nil {
		return r, err
	}
	h := &host{Options: Options{TmpDir: o.TmpDir, ReadyTimeout: o.ReadyTimeout}, scenario: &scenario.Scenario{}, dir: dir, out: log, limit: o.Limit}
	defer func() { err = errors.Join(err, h.close()) }()
	s, err := h.prepareOwn(ctx, o)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return r, err
	}
	ended := (*server.EarlyEndError)(nil)
	err = s.start(ctx)
	switch {
	case errors.As(err, &ended):
		r.EndedIn = "its start"
	case err != nil:
		return r, err
	default:
		if err := s.stormOwn(ctx, o, &r); err != nil {
			return r, err
		}
		errors.As(s.wait(ctx), &ended)
		r.EndedIn = "the storm"
	}
	_, peak := s.Memory()
	r.PeakBytes, r.LimitBy, r.Alive = peak.Anon, s.limitBy, ended == nil
	if r.Alive {
		r.EndedIn = ""
	} else {
		r.Ended, r.LastWords = ended.How, s.Tail()
		s.say("ended in %s: %s", r.EndedIn, r.Ended)
	}
	return r, nil
}

func (h *host) prepareOwn(ctx context.Context, o OwnOptions) (*session, error) {
	s := &session{host: h, binary: o.Binary, limitBy: "off", options: server.Options{
		DataDir: filepath.Join(h.dir, "data"), ConfigFile: filepath.Join(h.dir, "prometheus.yml"), ReadyTimeout: h.ReadyTimeout,
	}}
	var err error
	if s.options.Addr, err = proc.FreeAddress(); err != nil {
		return s, err
	}
	if err := os.WriteFile(s.options.ConfigFile, []byte(o.Config), 0o666); err != nil {
		return s, err
	}
	if err := o.Data(ctx, s.options.DataDir); err != nil {
		return s, err
	}
	s.constrain()
	return s, nil
}

// stormOwn lets the storm happen until its time is over or the server has ended.
func (s *session) stormOwn(ctx context.Context, o OwnOptions, r *OwnResult) error {
	s.ResetPeak()
	phase := scenario.Phase{Name: "own", For: o.For, Storm: &scenario.Storm{Clients: o.Clients, Timeout: o.Timeout, Gzip: 1}}
	asking, stop := context.WithTimeout(ctx, o.For)
	defer stop()
	var (
		all        sync.WaitGroup
		answers    clients.Result
		clientsErr error
		probed     probe.Result
	)
	begin := time.Now()
	all.Go(func() {
		answers, clientsErr = clients.RunInChild(asking, clients.Config{URL: s.URL, Seed: 1, Phase: phase, Families: ownFamilies(o.Requests), Data: family.Data{Points: 1}})
	})
	all.Go(func() { probed = probe.Run(asking, s.Dead(), s.URL, ownProbeRate) })
	select {
	case <-s.Dead():
		r.LivedSec = s.Ended().Sub(begin).Seconds()
		time.Sleep(cutTime)
		stop()
	case <-asking.Done():
		r.LivedSec = time.Since(begin).Seconds()
	}
	all.Wait()
	r.HealthP99Sec = probed.Health.P99
	for _, outcomes := range answers.Storm {
		r.count(outcomes)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return clientsErr
}

// ownProbeRate is how often a second the health is asked.
const ownProbeRate = 2

// count adds what came of the requests of a family.
func (r *OwnResult) count(outcomes clients.Outcomes) {
	for outcome, n := range outcomes {
		switch outcome {
		case "200":
			r.Answered += n
		case clients.Cut:
			r.Cut += n
		case clients.Timeout:
			r.Late += n
		default:
			if _, err := strconv.Atoi(outcome); err == nil {
				r.Refused += n
			}
		}
	}
}

// ownFamilies has one for each request. Their texts are templates.
func ownFamilies(requests []OwnRequest) []family.Family {
	all := make([]family.Family, len(requests))
	for i, r := range requests {
		all[i] = family.Family{Name: fmt.Sprintf("own-%d", i+1), Path: r.Path, Params: map[string]string{}}
		for name := range r.Params {
			all[i].Params[name] = strings.ReplaceAll(r.Params.Get(name), "{{", `{{"{{"}}`)
		}
	}
	return all
}
