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
	// lives counts how often it ceased to be ready: what it said before says
	// nothing of it since.
	lives int
	// behind is the newest sample of the other server when that of this one was
	// much older; zero if it is not stale.
	behind    time.Time
	newest    newest
	newestDue time.Time // when to ask for newest; zero for now
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

func newServer(u *url.URL) *Server {
	return &Server{
		url: u, base: strings.TrimSuffix(u.Path, "/"), raw: strings.TrimSuffix(u.EscapedPath(), "/"),
		name: u.Redacted(), wake: make(signal, 1), looked: make(signal, 1),
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
