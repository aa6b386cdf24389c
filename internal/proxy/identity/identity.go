// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package identity says who sends a request. Headers can be written by anybody,
// so they count only if the peer of the connection is one that is configured,
// such as Grafana; what another peer says of itself is not believed.
package identity

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/promguard/promguard/internal/querylimit"
)

// DefaultTenantHeader is what Mimir and Cortex read the tenant from, and
// thanosTenantHeader what Thanos does.
const (
	DefaultTenantHeader = "X-Scope-OrgID"
	thanosTenantHeader  = "THANOS-TENANT"
)

// The headers by which Grafana says who asks.
const (
	headerDashboard = "X-Dashboard-Uid"
	headerPanel     = "X-Panel-Id"
	headerUser      = "X-Grafana-User"
	headerOrg       = "X-Grafana-Org-Id"
	headerAlert     = "Fromalert"
	headerAlertRule = "X-Rule-Uid"
)

// taken are headers that mean something else, to HTTP or to promguard.
var taken = []string{
	"Accept", "Accept-Encoding", "Authorization", "Connection", "Cookie", "Expect", "Host", "Keep-Alive", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "User-Agent", "Via", headerDashboard, headerPanel, headerUser, headerAlert, headerAlertRule,
	"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Range", "Http2-Settings",
	"X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "Idempotency-Key", "X-Idempotency-Key", "X-Grafana-Id",
	"X-Prometheus-Use-Start-Timestamps",
}

// passing are the headers of a request that go on to the server, whoever sends them:
// what it wants to know of the client's credentials and of the answer, what a browser
// asks before it sends a request from another origin, what traces and logs are put
// together by, and for what Grafana asks.
var passing = headers(
	"Authorization", "Cookie",
	"Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Pragma", "User-Agent",
	"Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers",
	"Traceparent", "Tracestate", "Uber-Trace-Id", "B3", "X-Request-Id", "Via",
	"X-Prometheus-Remote-Read-Version", "X-Prometheus-Scrape-Timeout-Seconds",
	headerDashboard, "X-Dashboard-Title", headerPanel, "X-Panel-Title", "X-Panel-Plugin-Id",
	"X-Query-Group-Id", "X-Datasource-Uid", "X-Grafana-From-Expr",
	headerAlert, headerAlertRule, "X-Rule-Name", "X-Rule-Folder", "X-Rule-Source", "X-Rule-Type", "X-Rule-Version",
)

// claims say who somebody is. They pass from peers that are believed.
var claims = headers(headerUser, headerOrg)

func headers(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[http.CanonicalHeaderKey(name)] = true
	}
	return set
}

// maxValue bounds a header's value in bytes; a longer one is not believed.
const maxValue = 256

// Source knows whom to believe. The zero value believes nobody. It is immutable
// and safe for concurrent use.
type Source struct {
	peers        []netip.Prefix
	tenantHeader string
	passing      map[string]bool // besides those that always do
}

// NewSource returns a Source that believes the given peers, and reads the tenant
// from a header; an empty name means DefaultTenantHeader. Pass names headers that go
// on to the server besides those that always do.
func NewSource(peers []netip.Prefix, tenantHeader string, pass ...string) *Source {
	return &Source{slices.Clone(peers), http.CanonicalHeaderKey(cmp.Or(tenantHeader, DefaultTenantHeader)), headers(pass...)}
}

// ParsePeer reads a network such as 10.1.0.0/16, or a single address.
func ParsePeer(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		a = a.Unmap().WithZone("")
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("peer %q is not a network: use one such as 10.1.0.0/16, or an address", text)
	}
	if p.Addr().Is4In6() {
		return p, fmt.Errorf("peer %q is of IPv4 and written as of IPv6: use one such as 10.1.0.0/16", text)
	}
	if p != p.Masked() {
		return p, fmt.Errorf("peer %q has bits behind its length: use %s", text, p.Masked())
	}
	return p, nil
}

// ValidateHeader returns an error if name cannot be the header of the tenant.
func ValidateHeader(name string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	if name == "" || strings.Trim(name, allowed) != "" {
		return fmt.Errorf("header %q is not the name of a header: use one such as %s", name, DefaultTenantHeader)
	}
	name = http.CanonicalHeaderKey(name)
	if slices.Contains(taken, name) || strings.HasPrefix(name, "Proxy-") || strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "X-Forwarded-") {
		return fmt.Errorf("header %q has another meaning: use one such as %s", name, DefaultTenantHeader)
	}
	return nil
}

// ValidatePassing returns an error if name cannot be a header that passes from
// anybody: one that means something to HTTP or to promguard, or says whose data is
// asked for.
func ValidatePassing(name string) error {
	if err := ValidateHeader(name); err != nil {
		return err
	}
	switch http.CanonicalHeaderKey(name) {
	case http.CanonicalHeaderKey(DefaultTenantHeader), http.CanonicalHeaderKey(thanosTenantHeader), headerOrg:
		return fmt.Errorf("header %q says who asks, so that it passes from peers only: make it the tenant_header", name)
	}
	return nil
}

// Subject returns who asks. Endpoint and Class are left to the caller. The user
// agent is as the client says; the rest is empty unless the peer is believed.
func (s *Source) Subject(r *http.Request) querylimit.Subject {
	who := querylimit.Subject{UserAgent: cut(r.UserAgent()), User: cut(Known(r))}
	if !s.Believes(r.RemoteAddr) {
		return who
	}
	who.Tenant = value(r.Header, s.tenantHeader)
	who.Dashboard = value(r.Header, headerDashboard)
	who.Panel = value(r.Header, headerPanel)
	who.User = cmp.Or(value(r.Header, headerUser), who.User)
	who.Alert = value(r.Header, headerAlert) == "true"
	who.AlertRule = value(r.Header, headerAlertRule)
	return who
}

type userKey struct{}

// WithUser returns a request of a user whose password was checked.
func WithUser(r *http.Request, name string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), userKey{}, name))
}

// Known returns who proved to be somebody, whatever headers say: the user of WithUser,
// or the subject of a client certificate that was verified; "" is nobody.
func Known(r *http.Request) string {
	if name, ok := r.Context().Value(userKey{}).(string); ok {
		return name
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return r.TLS.VerifiedChains[0][0].Subject.CommonName
	}
	return ""
}

// Believes reports whether the peer, an address with a port, is configured.
func (s *Source) Believes(peer string) bool {
	if len(s.peers) == 0 {
		return false
	}
	a, err := netip.ParseAddrPort(peer)
	if err != nil {
		return false
	}
	addr := a.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(s.peers, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Rewrite leaves those headers of a request that go on to the server. That of the
// tenant says what who was understood to be, and nothing if that is not known.
func (s *Source) Rewrite(h http.Header, who *querylimit.Subject, peer string) {
	believed := s.Believes(peer)
	for name := range h {
		if passes := passing[name] || s.passing[name] || believed && claims[name]; !passes {
			delete(h, name)
		}
	}
	if s.tenantHeader == "" {
		return
	}
	h.Del(s.tenantHeader)
	if who.Tenant != "" {
		h.Set(s.tenantHeader, who.Tenant)
	}
}

// value returns that of a header that is given once, or "": of two, somebody
// else might believe the other.
func value(h http.Header, name string) string {
	if v := h[name]; len(v) == 1 && len(v[0]) <= maxValue {
		return v[0]
	}
	return ""
}

func cut(s string) string {
	if len(s) > maxValue {
		return strings.Clone(s[:maxValue]) // It is remembered for longer than the request.
	}
	return s
}
