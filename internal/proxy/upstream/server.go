// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// State is how a server is.
type State uint8

// The states.
const (
	// Unknown is that of a server that nobody has looked at.
	Unknown State = iota
	Ready
	// Behind is ready, but misses samples that another has.
	Behind
	// Replaying reads its write-ahead log and does not answer queries meanwhile.
	Replaying
	// NotReady answers, and says that it is not ready.
	NotReady
	// Away does not answer.
	Away

	numStates
)

var stateNames = [numStates]string{"unknown", "ready", "behind", "replaying", "not_ready", "away"}

// String returns the name used in metrics and logs.
func (s State) String() string { return stateNames[s] }

// Server is one upstream server. The URL never changes; the rest is guarded by the
// pool.
type Server struct {
	url  *url.URL
	base string // its path without a slash at the end, decoded
	raw  string // the same, escaped
	name string
	// number is its place in the configuration, from 1 on.
	number int

	state State
	// detail is what there is to say of the state, such as the progress of a
	// replay.
	detail string
	// readySince is when it became ready; zero if it was when first looked at.
	readySince time.Time
	// unanswered counts the looks without an answer since the last that had one.
	unanswered int
	alive      context.Context // see Pool.Alive
	bury       context.CancelCauseFunc
	// lives counts how often it ceased to be ready: what it said before says
	// nothing of it since.
	lives int

	// What it has. Start is that of the process, zero if that is not known; hole is
	// the end of the last hole since, as far as promguard knows of one.
	start, hole time.Time
	// missing is what another one has more, and behind is set if that is too much.
	missing time.Duration
	behind  bool
	// lost is when it ceased to be ready, until it is known whether that has made a
	// hole.
	lost    time.Time
	reading *reading // the last
	taken   float64  // samples over all restarts since the first reading

	facts     *Facts
	factsDue  time.Time     // when to ask for facts; zero for now
	factsWait time.Duration // how long was waited after questions without an answer
	told      []Mismatch    // that were logged

	// wake interrupts the wait for the next look, and looked tells that there was
	// one.
	wake, looked signal
}

// signal is a channel of capacity 1.
type signal chan struct{}

// send never waits: one signal that nobody has taken yet is as good as two.
func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

func newServer(u *url.URL, number int) *Server {
	s := &Server{
		url: u, base: strings.TrimSuffix(u.Path, "/"), raw: strings.TrimSuffix(u.EscapedPath(), "/"),
		name: u.Redacted(), number: number, unanswered: goneAfter, wake: make(signal, 1), looked: make(signal, 1),
	}
	s.alive, s.bury = context.WithCancelCause(context.Background())
	return s
}

// Number is the place of the server in the configuration, from 1 on. Clients, who
// learn no addresses, know it by that.
func (s *Server) Number() int { return s.number }

// Locate makes u, which has a path below the root of the server, the URL of that
// path there. A RawPath, if there is one, is the escaped path.
func (s *Server) Locate(u *url.URL) {
	if u.RawPath != "" || s.raw != s.base {
		u.RawPath = s.raw + u.EscapedPath()
	}
	u.Scheme, u.Host, u.Path = s.url.Scheme, s.url.Host, s.base+u.Path
}

// Unavailable says that no server can be read from, and why each cannot.
type Unavailable struct{ Causes []string }

// Error names servers by their place in the configuration: it is for clients,
// who learn no addresses.
func (e *Unavailable) Error() string {
	return "no upstream server is ready: " + strings.Join(e.Causes, ", ")
}

func (p *Pool) unavailable() *Unavailable {
	e := &Unavailable{}
	for _, s := range p.servers {
		e.Causes = append(e.Causes, fmt.Sprintf("upstream %d %s", s.number, describe(s.state, s.detail)))
	}
	return e
}

func describe(state State, detail string) string {
	text := map[State]string{
		Unknown: "has not been looked at yet", Ready: "is ready", Behind: "misses samples that another has",
		Replaying: "replays its write-ahead log", NotReady: "is not ready", Away: "does not answer",
	}[state]
	if detail != "" && state != Away { // That of a server that is away has its address.
		text += " (" + detail + ")"
	}
	return text
}

// effective is the state, with what it misses.
func (s *Server) effective() State {
	if s.state == Ready && s.behind {
		return Behind
	}
	return s.state
}
