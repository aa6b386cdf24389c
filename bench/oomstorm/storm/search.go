// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/oomstorm/internal/family"
	"github.com/promguard/promguard/bench/oomstorm/internal/fill"
	"github.com/promguard/promguard/bench/oomstorm/internal/grammar"
	"github.com/promguard/promguard/bench/oomstorm/internal/limit"
	"github.com/promguard/promguard/bench/oomstorm/internal/scenario"
	"github.com/promguard/promguard/bench/oomstorm/internal/server"
)

const (
	// Before a request, memory may exceed that at rest by near; it is waited for
	// at most calmTimeout.
	near        = 16 << 20
	calmTimeout = 5 * time.Second
)

// SearchOptions say what to search.
type SearchOptions struct {
	Options

	Series int // in the head
	// Limit is off or a size. A request that reaches it has its bytes.
	Limit    limit.Spec
	Families []string // patterns of names; all if none
	Tries    int      // how many requests to make up
	Timeout  time.Duration
	Top      int // how many of the worst to print
	Seed     uint64
}

// Check says what is wrong with the options.
func (o *SearchOptions) Check() error {
	switch {
	case o.Series < fill.MinSeries:
		return fmt.Errorf("--series must be %d or more, got %d", fill.MinSeries, o.Series)
	case o.Limit.Factor != 0:
		return errors.New("--limit must be off or a size")
	case o.Tries < 0 || o.Top < 1 || o.Timeout <= 0:
		return errors.New("--tries must be 0 or more, --top and --timeout more than 0")
	}
	_, err := family.Find(family.Shipped(), o.Families)
	return err
}

// measured is a request and what it took.
type measured struct {
	family  family.Family
	growth  int64 // of resident memory, in bytes
	outcome string
	took    time.Duration
}

// Search searches each binary. Requests are made one at a time, of a server that
// has nothing else to do.
func Search(ctx context.Context, o SearchOptions, stdout, stderr io.Writer) (err error) {
	s := &scenario.Scenario{Series: o.Series, History: 30 * time.Minute, Limit: o.Limit}
	h, err := newHost(ctx, o.Options, s, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	for _, b := range o.Binaries {
		all, err := searchOne(ctx, h, o, b)
		if err != nil {
			return err
		}
		if err := writeFound(stdout, b, all[:min(len(all), o.Top)]); err != nil {
			return err
		}
	}
	return nil
}

// searchOne measures families, then what is bred, and returns all, the worst
// first.
func searchOne(ctx context.Context, h *host, o SearchOptions, b binary.Binary) (all []measured, err error) {
	s, err := h.open(ctx, b)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return nil, err
	}
	known, err := family.Find(family.Shipped(), o.Families)
	if err != nil {
		return nil, err
	}
	for _, f := range known {
		m, err := s.measure(ctx, o, f)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	r := rand.New(rand.NewPCG(o.Seed, 0))
	p, bred := &grammar.Population{}, map[string]measured{}
	for tried := 0; tried < o.Tries && ctx.Err() == nil; {
		g := p.Next(r)
		f, ok := g.Family(fmt.Sprintf("found-%d", tried))
		if !ok {
			continue
		}
		tried++
		m, err := s.measure(ctx, o, f)
		if ctx.Err() != nil {
			break // What was found is worth to be known.
		}
		if err != nil {
			return nil, err
		}
		p.Add(grammar.Found{Genes: g, Bytes: m.growth})
		bred[fmt.Sprint(g)] = m
	}
	for _, f := range p.Best {
		all = append(all, bred[fmt.Sprint(f.Genes)])
	}
	slices.SortStableFunc(all, func(a, b measured) int { return cmp.Compare(b.growth, a.growth) })
	return all, nil
}

// refresh starts the server again if it has ended, or is not at rest.
func (s *session) refresh(ctx context.Context) (err error) {
	if s.Alive() && s.rss() <= s.rest+near {
		return nil
	}
	s.Kill()
	if err := s.start(ctx); err != nil {
		return err
	}
	s.rest, err = s.settle(ctx)
	return err
}

// measure makes one request of a server that is at rest.
func (s *session) measure(ctx context.Context, o SearchOptions, f family.Family) (m measured, err error) {
	if err := s.refresh(ctx); err != nil {
		return m, err
	}
	m.family = f
	req, err := f.Request(ctx, s.URL, family.Data{Points: family.PointsFor(o.Series)})
	if err != nil {
		return m, err
	}
	s.ResetPeak()
	begin := time.Now()
	m.outcome = exchange(req, o.Timeout)
	m.took = time.Since(begin)
	if ctx.Err() != nil {
		return m, context.Cause(ctx)
	}
	if err := s.calm(ctx); err != nil {
		return m, err
	}
	if !s.Alive() {
		m.outcome = s.how()
	}
	_, peak := s.Memory()
	m.growth = peak.RSS - s.rest
	s.say("%8s  %6.2f s  %s  %s", mib(m.growth), m.took.Seconds(), m.outcome, f.Name)
	return m, nil
}

// calm has garbage collected and waits until memory is at rest, at most for a while:
// what a request leaves running has that long to be seen.
func (s *session) calm(ctx context.Context) error {
	_, _ = s.Get(ctx, "/debug/pprof/heap?gc=1") // If it has ended, that is seen below.
	for begin := time.Now(); s.rss() > s.rest+near && time.Since(begin) < calmTimeout; {
		err := s.wait(ctx)
		if early := (*server.EarlyEndError)(nil); errors.As(err, &early) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// exchange makes a request, reads the answer to its end, and names what came of it.
func exchange(req *http.Request, timeout time.Duration) string {
	client := http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	res, err := client.Do(req)
	if err == nil {
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
	}
	var late interface{ Timeout() bool }
	switch {
	case errors.As(err, &late) && late.Timeout():
		return "no end in time"
	case err != nil:
		time.Sleep(cutTime) // Perhaps the server has ended, which is known in a moment.
		return "cut"
	}
	return res.Status
}

// writeFound prints requests as families that can be added to a scenario.
func writeFound(w io.Writer, b binary.Binary, found []measured) error {
	fmt.Fprintf(w, "# The worst of %s, %s\n", b.Name, b.Version)
	for _, m := range found {
		text, err := yaml.Marshal([]family.Family{m.family})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "# %s in %.2f s: %s\n%s", mib(m.growth), m.took.Seconds(), m.outcome, text); err != nil {
			return err
		}
	}
	return nil
}
