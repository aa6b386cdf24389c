// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package clients is those of a server, all in one process: hostile ones, people
// who look at dashboards, slow readers, and connections that say nothing. They
// read and throw away.
package clients

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/promguard/promguard/bench/oomstorm/internal/family"
	"github.com/promguard/promguard/bench/oomstorm/internal/scenario"
)

// Outcomes of requests besides status codes.
const (
	Left    = "left"    // the client left, as it meant to
	Timeout = "timeout" // the client had waited for its timeout
	Cut     = "cut"     // the connection ended within the request or the answer
	Refused = "refused" // no connection
	Ended   = "ended"   // still open when the phase ended
)

const (
	readBuffer = 256 << 10

	minLeave, maxLeave = 200 * time.Millisecond, 2 * time.Second
	maxPause           = 100 * time.Millisecond
	refusedPause       = 500 * time.Millisecond
	// dashboardTimeout is how long a browser waits.
	dashboardTimeout = 2 * time.Minute
	// narrow is what a slow reader's kernel takes in before it is read.
	narrow = 16 << 10
)

// Config is what the clients do.
type Config struct {
	URL         string
	Seed        uint64
	Phase       scenario.Phase
	Families    []family.Family
	Expressions []string
	Data        family.Data
}

// Result is what came of it.
type Result struct {
	// Storm and Slow are counts by outcome, Storm by family.
	Storm      map[string]Outcomes
	Slow       Outcomes
	Dashboards Dashboards
	// IdleAway is the longest time that an idle connection was not open.
	IdleAway time.Duration
}

// Outcomes counts requests by status code, if the answer was read to its end, or
// by one of the outcomes.
type Outcomes map[string]int

// Dashboards is what innocent clients saw.
type Dashboards struct {
	Outcomes Outcomes
	// Unfriendly are answers that are no 503 with Retry-After.
	Unfriendly int
	Took       []time.Duration // of those that were answered
	// Through is when all rounds were; 0 if they were not.
	Through time.Duration
}

// clients are all of them.
type clients struct {
	Config
	fast *http.Transport
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	mu   sync.Mutex
	Result
}

// Run runs clients until ctx ends, or until the dashboards have been asked as
// often as they should.
func Run(ctx context.Context, c Config) (Result, error) {
	ctx, through := context.WithCancel(ctx)
	defer through()
	s := &clients{Config: c, dial: (&net.Dialer{}).DialContext, Result: Result{Storm: map[string]Outcomes{}, Slow: Outcomes{}, Dashboards: Dashboards{Outcomes: Outcomes{}}}}
	s.fast = &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true, ReadBufferSize: readBuffer}
	defer s.fast.CloseIdleConnections()
	var all sync.WaitGroup
	ph := c.Phase
	if ph.Storm != nil {
		families, err := family.Find(c.Families, ph.Storm.Families)
		if err != nil {
			return s.Result, err
		}
		for i := range ph.Storm.Clients {
			all.Go(func() { s.storm(ctx, families, rand.New(rand.NewPCG(c.Seed, uint64(i)))) })
		}
	}
	if ph.Dashboards != nil {
		all.Go(func() { s.dashboards(ctx, through) })
	}
	if ph.SlowReaders != nil {
		for range ph.SlowReaders.Clients {
			all.Go(func() { s.slowReader(ctx) })
		}
	}
	for range ph.IdleConnections {
		all.Go(func() { s.idle(ctx) })
	}
	<-ctx.Done()
	all.Wait()
	return s.Result, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// storm makes one request after the other. The draws of each are the same,
// whatever comes of them, so that what a client asks depends on the seed alone.
func (s *clients) storm(ctx context.Context, families []family.Family, r *rand.Rand) {
	st := s.Phase.Storm
	buf := make([]byte, readBuffer)
	for ctx.Err() == nil {
		f := families[r.IntN(len(families))]
		gzip, leaving := r.Float64() < st.Gzip, r.Float64() < st.Leave
		leave := minLeave + time.Duration(r.Float64()*float64(maxLeave-minLeave))
		think := time.Duration(r.Float64() * float64(maxPause))
		limit := st.Timeout
		if leaving {
			limit = min(limit, leave)
		}
		outcome := s.ask(ctx, s.fast, f, gzip, limit, func(body io.Reader) error { return drain(body, buf) })
		if outcome == Timeout && leaving {
			outcome = Left
		}
		s.mu.Lock()
		if s.Storm[f.Name] == nil {
			s.Storm[f.Name] = Outcomes{}
		}
		s.Storm[f.Name][outcome]++
		s.mu.Unlock()
		if outcome == Refused {
			think = refusedPause
		}
		pause(ctx, think)
	}
}

// ask makes one request and names what came of it.
func (s *clients) ask(ctx context.Context, over http.RoundTripper, f family.Family, gzip bool, limit time.Duration, read func(io.Reader) error) string {
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := f.Request(inner, s.URL, s.Data)
	if err != nil {
		return Cut // Every family was checked.
	}
	if gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	res, err := over.RoundTrip(req)
	status := 0
	if err == nil {
		status = res.StatusCode
		err = read(res.Body)
		res.Body.Close()
	}
	return classify(ctx, inner, status, err)
}

func drain(body io.Reader, buf []byte) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, buf)
	return err
}

// classify names what came of a request. outer is the phase's context, inner the
// request's.
func classify(outer, inner context.Context, status int, err error) string {
	var op *net.OpError
	switch {
	case err == nil:
		return strconv.Itoa(status)
	case outer.Err() != nil:
		return Ended
	case inner.Err() != nil:
		return Timeout
	case errors.As(err, &op) && op.Op == "dial":
		return Refused
	default:
		return Cut
	}
}

// slowReader reads one answer after the other, at its rate, over a connection
// that takes little in before it is read.
func (s *clients) slowReader(ctx context.Context) {
	r := s.Phase.SlowReaders
	found, err := family.Find(s.Families, []string{r.Family})
	if err != nil {
		return // It was checked.
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := s.dial(ctx, network, addr)
		if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
			err = tcp.SetReadBuffer(narrow)
		}
		return conn, err
	}
	over := &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: dial}
	for ctx.Err() == nil {
		outcome := s.ask(ctx, over, found[0], false, time.Hour, func(body io.Reader) error {
			return trickle(ctx, body, rate.NewLimiter(rate.Limit(r.Rate), max(1, r.Rate/10)))
		})
		s.mu.Lock()
		s.Slow[outcome]++
		s.mu.Unlock()
		pause(ctx, refusedPause)
	}
}

// trickle reads no faster than a limiter lets it.
func trickle(ctx context.Context, body io.Reader, limit *rate.Limiter) error {
	buf := make([]byte, limit.Burst())
	for {
		n, err := body.Read(buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if limit.WaitN(ctx, n) != nil { // It will be too late.
			<-ctx.Done()
			return ctx.Err()
		}
	}
}

// idle keeps a connection open that says nothing, and opens another if it is
// closed.
func (s *clients) idle(ctx context.Context) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return // It was built here.
	}
	for closed := time.Now(); ctx.Err() == nil; pause(ctx, time.Second) {
		conn, err := s.dial(ctx, "tcp", u.Host)
		s.mu.Lock()
		s.IdleAway = max(s.IdleAway, time.Since(closed))
		s.mu.Unlock()
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
		_, _ = conn.Read(make([]byte, 1)) // It ends when the server closes it, or at the phase's end.
		stop()
		conn.Close()
		closed = time.Now()
	}
}

// dashboards asks everything in the order of the list, so many at a time.
func (s *clients) dashboards(ctx context.Context, through func()) {
	d := s.Phase.Dashboards
	list := panels(s.Phase.Dashboards, s.Expressions)
	begin := time.Now()
	var asking sync.WaitGroup
	next := make(chan family.Family)
	for range d.Clients {
		asking.Go(func() {
			buf := make([]byte, readBuffer)
			for f := range next {
				s.look(ctx, f, buf)
			}
		})
	}
	rounds := 0
	for ; (d.Rounds == 0 || rounds < d.Rounds) && ctx.Err() == nil; rounds++ {
		for _, p := range list {
			select {
			case next <- p:
			case <-ctx.Done():
			}
		}
		if d.Rounds == 0 {
			pause(ctx, time.Second)
		}
	}
	close(next)
	asking.Wait()
	if d.Rounds > 0 && ctx.Err() == nil {
		s.mu.Lock()
		s.Dashboards.Through = time.Since(begin)
		s.mu.Unlock()
		through()
	}
}

// look asks for one panel.
func (s *clients) look(ctx context.Context, f family.Family, buf []byte) {
	var status int
	var retry string
	begin := time.Now()
	over := roundTrip(func(req *http.Request) (*http.Response, error) {
		res, err := s.fast.RoundTrip(req)
		if err == nil {
			status, retry = res.StatusCode, res.Header.Get("Retry-After")
		}
		return res, err
	})
	outcome := s.ask(ctx, over, f, true, dashboardTimeout, func(body io.Reader) error { return drain(body, buf) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if outcome == Ended {
		return // Nobody knows what would have come.
	}
	s.Dashboards.Outcomes[outcome]++
	switch {
	case outcome == strconv.Itoa(http.StatusOK):
		s.Dashboards.Took = append(s.Dashboards.Took, time.Since(begin))
	case status != 0 && (status != http.StatusServiceUnavailable || retry == ""):
		s.Dashboards.Unfriendly++
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// panels are what dashboards ask: each expression as of now, and over the last hour.
func panels(d *scenario.Dashboards, expressions []string) (list []family.Family) {
	query := func(path, expr string) family.Family {
		expr = strings.ReplaceAll(uncommented(expr), "{{", `{{"{{"}}`)
		f := family.Family{Path: path, Params: map[string]string{"query": expr}}
		if path == "/api/v1/query_range" {
			f.Params["start"], f.Params["end"], f.Params["step"] = `{{ago "1h"}}`, `{{ago "0s"}}`, "15"
		}
		return f
	}
	if d.Expressions {
		for _, e := range expressions {
			list = append(list, query("/api/v1/query", e), query("/api/v1/query_range", e))
		}
	}
	if d.Buckets {
		for _, q := range []string{"0.5", "0.95", "0.99"} {
			for _, by := range []string{"le", "le, verb", "le, resource", "le, instance"} {
				list = append(list, query("/api/v1/query_range", "histogram_quantile("+q+", sum by ("+by+") (rate(apiserver_request_duration_seconds_bucket[5m])))"))
			}
		}
	}
	return list
}

// uncommented is an expression in one line.
func uncommented(expr string) string {
	var out strings.Builder
	for line := range strings.Lines(expr) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			out.WriteString(line + " ")
		}
	}
	return out.String()
}
