// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
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
	// Stale is ready, but its newest sample is much older than that of another.
	Stale
	// Replaying reads its write-ahead log and does not answer queries meanwhile.
	Replaying
	// NotReady answers, and says that it is not ready.
	NotReady
	// Away does not answer.
	Away

	numStates
)

var stateNames = [numStates]string{"unknown", "ready", "stale", "replaying", "not_ready", "away"}

// String returns the name used in metrics and logs.
func (s State) String() string { return stateNames[s] }

// Server is one server behind. The URL never changes; the rest is guarded by the
// pool.
type Server struct {
	url  *url.URL
	base string // its path without a slash at the end, decoded
	raw  string // the same, escaped
	name string

	state State
	// detail is what there is to say of the state, such as the progress of a
	// replay.
	detail string
	// readySince is when it became ready; zero if it was when first looked at.
	readySince time.Time
	lastAnswer time.Time
	newest     newest
	newestAt   time.Time // when newest was asked for
	facts      *Facts
	factsAt    time.Time  // when facts were asked for; zero to ask again
	told       []Mismatch // that were logged

	// wake interrupts the wait for the next look.
	wake chan struct{}
}

// newest is the time of the newest sample of a server.
type newest struct {
	known bool
	at    time.Time // zero if it has none
}

func newServer(u *url.URL) *Server {
	return &Server{
		url: u, base: strings.TrimSuffix(u.Path, "/"), raw: strings.TrimSuffix(u.EscapedPath(), "/"),
		name: u.Redacted(), wake: make(chan struct{}, 1),
	}
}

// String returns the URL.
func (s *Server) String() string { return s.name }

// Locate makes u, which has a path below the root of the server, the URL of that
// path there. A RawPath, if there is one, is the escaped path.
func (s *Server) Locate(u *url.URL) {
	if u.RawPath != "" || s.raw != s.base {
		u.RawPath = s.raw + u.EscapedPath()
	}
	u.Scheme, u.Host, u.Path = s.url.Scheme, s.url.Host, s.base+u.Path
}

// effective is the state, with staleness.
func (p *Pool) effective(s *Server) State {
	if s.state != Ready || p.staleAfter <= 0 || !s.newest.known {
		return s.state
	}
	for _, other := range p.servers {
		if other.state == Ready && other.newest.known && other.newest.at.Sub(s.newest.at) > p.staleAfter {
			return Stale
		}
	}
	return Ready
}

// Unavailable says that no server can be read from, and why each cannot.
type Unavailable struct{ Causes []string }

// Error names servers by their place in the configuration: it is for clients,
// who learn no addresses.
func (e *Unavailable) Error() string {
	return "no server behind is ready: " + strings.Join(e.Causes, ", ")
}

func (p *Pool) unavailable() *Unavailable {
	e := &Unavailable{}
	for i, s := range p.servers {
		e.Causes = append(e.Causes, fmt.Sprintf("upstream %d %s", i+1, describe(s.state, s.detail)))
	}
	return e
}

func describe(state State, detail string) string {
	text := map[State]string{
		Unknown: "has not been looked at yet", Ready: "is ready", Stale: "has no new samples",
		Replaying: "replays its write-ahead log", NotReady: "is not ready", Away: "does not answer",
	}[state]
	if detail != "" && state != Away { // That of a server that is away has its address.
		text += " (" + detail + ")"
	}
	return text
}
