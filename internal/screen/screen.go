// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"time"
)

// Route is where the page is; what belongs to it is below.
const Route = "/guard"

const (
	// fresh is how long a State is shown again, however many look.
	fresh = 500 * time.Millisecond
	// interval is how often listeners are told, and patience how long one may take.
	interval, patience = time.Second, 10 * time.Second
	// maxListeners is how many are told. Others ask from time to time.
	maxListeners = 32
	// maxAsked bounds what may be explained, in bytes.
	maxAsked = 64 << 10
)

// Source is where the page has from what it shows.
type Source struct {
	// State must be quick: it is asked when the server has no time. What it returns must
	// not change.
	State func() *State
	// Stop ends a request that runs. It is asked unless the State has a NoStop.
	Stop func(id string) error
	// Explain judges a query over the last so long; an empty one is an instant. It is nil
	// where nobody judges.
	Explain func(query, window string) *Explanation
	// Titles names dashboards where the State does not.
	Titles *Titles
}

// Page serves the page. Safe for concurrent use.
type Page struct {
	source    Source
	stop      http.Handler
	listeners atomic.Int32
	closed    chan struct{}
	closeOnce sync.Once

	mu    sync.Mutex
	state *State
	at    time.Time
}

// New returns the page of a source.
func New(s Source) *Page {
	p := &Page{source: s, closed: make(chan struct{})}
	// A page of somebody else must not stop anything by a form of its own.
	p.stop = http.NewCrossOriginProtection().Handler(http.HandlerFunc(p.stopOne))
	return p
}

// Close lets listeners go, so that a server that shuts down need not wait for them.
func (p *Page) Close() { p.closeOnce.Do(func() { close(p.closed) }) }

// policy lets the page load nothing but what is served here.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves the page at any path that ends with Route, and its parts below.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	part := path.Base(r.URL.Path)
	if part == "stop" {
		p.stop.ServeHTTP(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "Use GET: this only shows", http.StatusMethodNotAllowed)
		return
	}
	switch part {
	case path.Base(Route):
		write(w, "page", p.view(r))
	case "now":
		write(w, "now", p.view(r))
	case "explain":
		write(w, "verdict", p.view(r))
	case "state":
		h.Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p.current())
	case "events":
		p.tell(w, r)
	default:
		serveAsset(w, r, part)
	}
}

func write(w http.ResponseWriter, name string, v *view) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(render(name, v)) // Else the client is gone.
}

// current returns the State, which may be as old as fresh.
func (p *Page) current() *State {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == nil || time.Since(p.at) > fresh {
		p.state = p.source.State()
		p.at = time.Now()
		if p.source.Titles != nil {
			p.source.Titles.fill(p.state)
		}
		p.state.At = p.at
	}
	return p.state
}

// tell sends what is to be seen, again and again, as events.
func (p *Page) tell(w http.ResponseWriter, r *http.Request) {
	defer p.listeners.Add(-1)
	if p.listeners.Add(1) > maxListeners {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "Ask for what is now instead: enough others listen", http.StatusServiceUnavailable)
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // Writers that cannot do it, as in tests, go without.
	w.Header().Set("Content-Type", "text/event-stream")
	next := time.NewTicker(interval)
	defer next.Stop()
	for {
		_ = control.SetWriteDeadline(time.Now().Add(patience))
		data := bytes.ReplaceAll(render("now", p.view(r)), []byte("\n"), []byte("\ndata: "))
		if _, err := w.Write(append(append([]byte("data: "), data...), "\n\n"...)); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-next.C:
		case <-p.closed:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// stopOne ends the request that a form names, and shows the page again.
func (p *Page) stopOne(w http.ResponseWriter, r *http.Request) {
	state := p.current()
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "Use POST to stop a request", http.StatusMethodNotAllowed)
	case state.NoStop != "":
		http.Error(w, state.NoStop, http.StatusForbidden)
	default:
		r.Body = http.MaxBytesReader(w, r.Body, maxText)
		if err := p.source.Stop(r.FormValue("id")); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		p.mu.Lock()
		p.state = nil
		p.mu.Unlock()
		// Relative to .../guard/stop, so that it holds behind any proxy.
		w.Header().Set("Location", "../"+path.Base(Route))
		w.WriteHeader(http.StatusSeeOther)
	}
}

//go:embed page.html screen.css screen.js icon.svg
var files embed.FS

// serveAsset serves what the page loads.
func serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	body, err := files.ReadFile(name)
	if err != nil || name == pageFile {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(body)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(body))
}
