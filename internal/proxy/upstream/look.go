// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const (
	lookEvery        = 5 * time.Second
	lookEveryUnready = time.Second
	lookTimeout      = 4 * time.Second
)

const apiPrefix = "/api/v1/"

// maxAnswer bounds what is read of an answer: 10,000 entries of status/tsdb are a megabyte.
const maxAnswer = 16 << 20

// answer is what a server said.
type answer struct {
	code int
	body []byte
}

// get asks a server for a path below its root.
func (p *Pool) get(ctx context.Context, s *Server, path, query string) (answer, error) {
	res, err := p.open(ctx, s, path, query)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return answer{res.StatusCode, body}, err
}

func (p *Pool) open(ctx context.Context, s *Server, path, query string) (*http.Response, error) {
	u := &url.URL{Path: path, RawQuery: query}
	s.Locate(u)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "promguard")
	p.Sign(req.Header)
	return p.transport.RoundTrip(req)
}

// check looks at a server and notes how it is. The error is that of a server that
// does not answer.
func (p *Pool) check(ctx context.Context, s *Server) error {
	state, detail, err := p.look(ctx, s)
	if ctx.Err() != nil && err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.set(s, state, detail, now)
	p.choose(now)
	s.answered(err == nil, p.best(s, now) != nil)
	if err != nil {
		return fmt.Errorf("no answer from %s: %w", s.name, err)
	}
	return nil
}

// goneAfter is after how many looks in a row without an answer a server is gone. A
// server that is busy may miss one.
const goneAfter = 2

// ErrGone ends what waits for a server that is gone.
var ErrGone = errors.New("it no longer answers")

// answered notes whether a look had an answer. What waits for a server that is gone
// ends if there is another: if none answers, that may be the fault of promguard.
func (s *Server) answered(yes, another bool) {
	switch {
	case !yes:
		s.unanswered++
		if s.unanswered >= goneAfter && another {
			s.bury(ErrGone)
		}
	case s.alive.Err() != nil:
		s.alive, s.bury = context.WithCancelCause(context.Background())
		fallthrough
	default:
		s.unanswered = 0
	}
}

// Alive returns what is done, with ErrGone as its cause, once the server is gone and
// another one is ready.
func (p *Pool) Alive(s *Server) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.alive
}

// Gone reports whether no server has answered yet, or none does any more.
func (p *Pool) Gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.ContainsFunc(p.servers, func(s *Server) bool { return s.unanswered < goneAfter })
}

// look asks a server whether it is ready. A server that wants credentials is: it
// gets those of clients. So is one behind a gateway that does not let the question
// through.
func (p *Pool) look(ctx context.Context, s *Server) (State, string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	path := p.kind.readyPath()
	if path != "" {
		a, err := p.get(ctx, s, path, "")
		switch {
		case err != nil:
			return Away, err.Error(), err
		case a.code == StatusLoop:
			return Away, errLoop.Error(), errLoop
		case a.code/100 == 2:
			return Ready, "", nil
		case a.code >= http.StatusInternalServerError:
			state, detail := p.replay(ctx, s)
			return state, detail, nil
		}
	}
	a, err := p.get(ctx, s, apiPrefix+"status/buildinfo", "")
	switch {
	case err != nil:
		return Away, err.Error(), err
	case a.code == StatusLoop:
		return Away, errLoop.Error(), errLoop
	case a.code >= http.StatusInternalServerError:
		return NotReady, "status " + strconv.Itoa(a.code), nil
	}
	return Ready, "", nil
}

// replay asks a server that is not ready whether it replays its log. The patched
// Prometheus knows how far it is; a stock one counts segments.
func (p *Pool) replay(ctx context.Context, s *Server) (State, string) {
	a, err := p.get(ctx, s, apiPrefix+"status/walreplay", "")
	if err != nil || a.code/100 != 2 {
		return NotReady, ""
	}
	var answer struct {
		Data struct {
			Min, Max, Current float64
			Percent           *float64
		}
	}
	if json.Unmarshal(a.body, &answer) != nil {
		return NotReady, ""
	}
	d := answer.Data
	switch {
	case d.Percent != nil && *d.Percent > 0:
		return Replaying, fmt.Sprintf("%.0f %%", *d.Percent)
	case d.Max > d.Min:
		return Replaying, fmt.Sprintf("%.0f %%", 100*(d.Current-d.Min)/(d.Max-d.Min))
	case d.Max > 0 || d.Percent != nil:
		return Replaying, ""
	}
	return NotReady, ""
}
