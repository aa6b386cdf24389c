// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/promguard/promguard/internal/querylimit"
)

// Options is what a Pool is built from.
type Options struct {
	// URLs are the roots of the servers, at least one.
	URLs []*url.URL
	// Kind is what all of them are.
	Kind Kind
	// Transport carries what the pool asks them. Required.
	Transport http.RoundTripper
	// Probe says what to do about a server that is not what promguard takes it
	// for. The zero value does not ask.
	Probe ProbeMode
	// StaleAfter is how many samples less than another a server may have, as the time
	// in which that one takes them in, at least MinStaleAfter; 0 does not look. Only
	// servers of Prometheus tell.
	StaleAfter time.Duration
	// Registerer takes the metrics. Required.
	Registerer prometheus.Registerer
	// Logger is required.
	Logger *slog.Logger
}

// settleAfter is how long a server must have been ready before reads go back to
// it, while there is another: one that comes and goes would make graphs flip.
const settleAfter = 30 * time.Second

// Pool is safe for concurrent use.
type Pool struct {
	servers    []*Server
	kind       Kind
	transport  http.RoundTripper
	mode       ProbeMode
	staleAfter time.Duration
	logger     *slog.Logger
	metrics    *metrics
	via        string // see Name

	mu       sync.Mutex // guards what servers say of themselves
	checking bool       // nothing is chosen until the end of Check
	history  history    // of samples, if they are compared
	returned signal     // that a server is ready again
	chosen   atomic.Pointer[Server]
	assumed  atomic.Pointer[Assumptions]
	head     atomic.Pointer[querylimit.Head]
	learned  func(*querylimit.Head) // is told of each
}

// NewPool returns a pool. It asks nothing yet; the first server is read from
// until more is known.
func NewPool(o Options) *Pool {
	p := &Pool{kind: cmp.Or(o.Kind, KindPrometheus), transport: o.Transport, mode: cmp.Or(o.Probe, ProbeOff), staleAfter: o.StaleAfter, logger: o.Logger, via: newName(), returned: make(signal, 1), learned: func(*querylimit.Head) {}}
	for i, u := range o.URLs {
		p.servers = append(p.servers, newServer(u, i+1))
	}
	p.metrics = newMetrics(o.Registerer, p.servers)
	p.chosen.Store(p.servers[0])
	p.assume()
	return p
}

// OnHead has learned called with each Head, before any is asked for.
func (p *Pool) OnHead(learned func(*querylimit.Head)) { p.learned = learned }

// Alone reports whether there is no other server to turn to.
func (p *Pool) Alone() bool { return len(p.servers) == 1 }

// Pick returns the server to read from. The error is an *Unavailable. Where there
// is one server only it is always that one: what it cannot do, it says itself.
// With unready, a server that only answers will do.
func (p *Pool) Pick(unready bool) (*Server, error) {
	if s := p.chosen.Load(); s != nil {
		return s, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		if unready && s.state != Away {
			return s, nil
		}
	}
	return nil, p.unavailable()
}

// Status is how a server is, for people.
type Status struct {
	URL    string
	State  State
	Detail string
	Chosen bool // to be read from
}

// Status returns how the servers are.
func (p *Pool) Status() []Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Status, len(p.servers))
	for i, s := range p.servers {
		list[i] = Status{s.name, s.effective(), s.detail, s == p.chosen.Load()}
	}
	return list
}

// Other returns a server that can be read from besides s, or nil.
func (p *Pool) Other(s *Server) *Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.best(s, time.Now())
}

// Unavailable says why no server can be read from.
func (p *Pool) Unavailable() *Unavailable {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unavailable()
}

// Suspect has a server looked at now.
func (*Pool) Suspect(s *Server) { s.wake.send() }

// Failed notes what a request found out about a server that was taken for ready,
// before the next look does.
func (p *Pool) Failed(s *Server, state State) {
	if p.Alone() {
		return
	}
	p.mu.Lock()
	if s.state == Ready || s.state == Unknown { // Otherwise a look has found out more.
		p.set(s, state, "", time.Now())
		p.choose(time.Now())
	}
	p.mu.Unlock()
	p.Suspect(s)
}

// set changes the state of a server, and says so.
func (p *Pool) set(s *Server, state State, detail string, now time.Time) {
	before := s.state
	s.state, s.detail = state, detail
	if state == before {
		return
	}
	if state == Ready && before != Unknown {
		s.readySince = now
		if p.comparesSamples() {
			p.returned.send()
		} else {
			p.acquit(s.number-1, false)
		}
	}
	if state != Ready {
		if before == Ready || before == Unknown {
			s.lost = now
		}
		s.lives++ // It may come back as another.
		s.start, s.factsDue, s.factsWait = time.Time{}, time.Time{}, 0
		if s.facts != nil {
			f := *s.facts
			f.Started, s.facts = time.Time{}, &f
		}
	}
	switch {
	case state != Ready:
		p.logger.Warn("Upstream server "+describe(state, ""), "server", s.name, "state", state, "detail", detail)
	case before != Unknown:
		p.logger.Info("Upstream server is ready again", "server", s.name)
	}
}

// choose finds the server to read from.
func (p *Pool) choose(now time.Time) {
	if p.checking {
		return
	}
	best := p.best(nil, now)
	if p.Alone() {
		best = p.servers[0]
	}
	old := p.chosen.Swap(best)
	if old != best {
		p.metrics.switches.Inc()
		p.logger.Info("Reads go to another upstream server", "from", text(old), "to", text(best))
	}
	p.metrics.observe(p, best)
}

func text(s *Server) string {
	if s == nil {
		return "none"
	}
	return s.name
}

// best returns the server to read from besides one, or nil. It is one that is ready
// and has been for some time, rather than one that just is again, and of these the
// one whose data are complete for the longest time. That a server was chosen before
// does not count, so that several proxies that know the same choose the same.
func (p *Pool) best(besides *Server, now time.Time) (best *Server) {
	for _, s := range p.servers {
		if s != besides && s.state == Ready && (best == nil || s.compare(best, now) < 0) {
			best = s
		}
	}
	return best
}

// compare returns a number below 0 if s is to be read from rather than other.
func (s *Server) compare(other *Server, now time.Time) int {
	return cmp.Or(
		compareBools(s.settled(now), other.settled(now)),
		compareBools(!s.start.IsZero(), !other.start.IsZero()),
		s.completeSince().Compare(other.completeSince()),
	)
}

// compareBools puts true first.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (s *Server) settled(now time.Time) bool { return now.Sub(s.readySince) >= settleAfter }

// completeSince is when the data of a server began to have no hole, as far as that is
// known. One that is behind has a hole which does not end.
func (s *Server) completeSince() time.Time {
	if s.hole.After(s.start) {
		return s.hole
	}
	return s.start
}

// Check looks at every server once, before any request is sent. It returns the error
// of the first if none answers, or that of a server which is not what promguard takes
// it for.
func (p *Pool) Check(ctx context.Context) error {
	p.setChecking(true)
	defer p.setChecking(false)
	errs := make([]error, len(p.servers))
	var looks sync.WaitGroup
	for i, s := range p.servers {
		looks.Go(func() { errs[i] = p.check(ctx, s) })
	}
	looks.Wait()
	var g errgroup.Group
	for _, s := range p.servers {
		g.Go(func() error { return p.study(ctx, s) })
	}
	if p.comparesSamples() {
		p.compareNow(ctx)
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if slices.Contains(errs, nil) {
		p.setChecking(false)
		p.learnHead(ctx)
		return nil
	}
	return errs[0]
}

func (p *Pool) setChecking(checking bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checking = checking
	p.choose(time.Now())
}

// Run looks at the servers until ctx is done. It returns earlier with an error if
// a server that had not answered before is not what promguard takes it for.
func (p *Pool) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if p.comparesSamples() {
		g.Go(func() error {
			p.watchSamples(ctx)
			return nil
		})
	}
	g.Go(func() error {
		p.watchHead(ctx)
		return nil
	})
	for _, s := range p.servers {
		g.Go(func() error {
			p.watch(ctx, s)
			return nil
		})
		g.Go(func() error { return p.ask(ctx, s) })
	}
	return g.Wait()
}

// watch looks at a server. It asks nothing that can take long, so that a server that
// is ready no more is left in time.
func (p *Pool) watch(ctx context.Context, s *Server) {
	for {
		timer := time.NewTimer(p.pause(s))
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
		_ = p.check(ctx, s) // It is noted and logged.
		s.looked.send()
	}
}

// ask asks a server, after looks, what is due.
func (p *Pool) ask(ctx context.Context, s *Server) error {
	for {
		select {
		case <-s.looked:
		case <-ctx.Done():
			return nil
		}
		if err := p.study(ctx, s); err != nil {
			return err
		}
	}
}

// pause is how long to wait before the next look at a server.
func (p *Pool) pause(s *Server) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.state == Ready || p.Alone() {
		return lookEvery
	}
	return lookEveryUnready
}
