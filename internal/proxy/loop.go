// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"slices"
	"sync"

	"github.com/promguard/promguard/internal/proxy/canonical"
	"github.com/promguard/promguard/internal/proxy/upstream"
)

// Name is what this promguard calls itself in the header Via of what it sends.
func (p *Proxy) Name() string { return p.pool.Name() }

// loop returns an error if promguard has sent the request itself. Another one on
// its way is all right, and told once: two of them judge the same twice.
func (p *Proxy) loop(r *http.Request) error {
	others, own := p.pool.Passed(r.Header)
	if own {
		p.looped.Do(func() {
			p.logger.Error("The upstream server is this promguard, or asks this promguard: --upstream.url must lead to a Prometheus", "from", r.RemoteAddr, "through", others)
		})
		return &apiError{code: upstream.StatusLoop, typ: typeExecution, reason: reasonLoop, err: canonical.Advise("Let --upstream.url lead to a Prometheus", "%w", errLoop)}
	}
	for _, name := range others {
		if p.through.isNew(name) {
			p.logger.Warn("Requests come through another promguard", "from", r.RemoteAddr, "via", name)
		}
	}
	return nil
}

// names remembers the first few names.
type names struct {
	mu   sync.Mutex
	seen []string
}

// isNew reports whether a name was not there before. Anybody can make up names: the
// first few are enough.
func (n *names) isNew(name string) bool {
	const most = 10
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.seen) >= most || slices.Contains(n.seen, name) {
		return false
	}
	n.seen = append(n.seen, name)
	return true
}
