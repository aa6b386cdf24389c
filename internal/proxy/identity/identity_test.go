// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/querylimit"
)

func request(peer string, header http.Header) *http.Request {
	return &http.Request{RemoteAddr: peer, Header: header}
}

func grafana() http.Header {
	h := http.Header{}
	for name, v := range map[string]string{
		"X-Scope-OrgID": "team-a", "X-Dashboard-Uid": "abc", "X-Panel-Id": "3", "X-Grafana-User": "ann", "FromAlert": "true", "User-Agent": "Grafana/12",
	} {
		h.Set(name, v)
	}
	return h
}

func TestHeadersCountFromConfiguredPeersOnly(t *testing.T) {
	s := NewSource([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}, "")
	known := querylimit.Subject{Tenant: "team-a", Dashboard: "abc", Panel: "3", User: "ann", UserAgent: "Grafana/12", Alert: true}
	unknown := querylimit.Subject{UserAgent: "Grafana/12"}
	for peer, want := range map[string]querylimit.Subject{
		"10.1.2.3:4444":          known,
		"[::ffff:10.1.2.3]:4444": known,
		"[fd00::1%eth0]:4444":    known,
		"10.2.2.3:4444":          unknown,
		"[::1]:4444":             unknown,
		"10.1.2.3":               unknown,
		"":                       unknown,
		"@":                      unknown,
	} {
		require.Equal(t, want, s.Subject(request(peer, grafana())), peer)
	}
	require.Equal(t, unknown, (&Source{}).Subject(request("10.1.2.3:4444", grafana())))
}

func TestHeaderThatIsGivenTwiceOrTooLongIsNotBelieved(t *testing.T) {
	s := NewSource([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "X-Team")
	h := http.Header{"X-Team": {"a", "b"}, "X-Panel-Id": {string(make([]byte, maxValue+1))}, "X-Dashboard-Uid": {"abc"}}
	require.Equal(t, querylimit.Subject{Dashboard: "abc"}, s.Subject(request("10.0.0.1:1", h)))
}

func TestWhatIsNotBelievedDoesNotPassAsTenant(t *testing.T) {
	for name, s := range map[string]*Source{"nobody": {}, "another header": NewSource(nil, "x-team")} {
		h := grafana()
		h.Set("X-Team", "b")
		s.Rewrite(h, &querylimit.Subject{}, "6.6.6.6:1")
		require.Empty(t, h.Values("X-Scope-Orgid"), name)
		if s.tenantHeader != "" {
			require.Empty(t, h.Values("X-Team"), name)
			s.Rewrite(h, &querylimit.Subject{Tenant: "c"}, "6.6.6.6:1")
			require.Equal(t, []string{"c"}, h.Values("X-Team"))
		}
		require.Equal(t, "abc", h.Get("X-Dashboard-Uid"))
	}
}

func TestOnlyKnownHeadersPass(t *testing.T) {
	s := NewSource([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "THANOS-TENANT", "x-api-key")
	all := func() http.Header {
		h := grafana()
		for _, name := range []string{
			"Authorization", "Cookie", "Accept-Encoding", "Origin", "Traceparent", "X-Request-Id", "X-Api-Key",
			"THANOS-TENANT", "X-Grafana-Org-Id", "X-Original-URL", "X-Rewrite-URL", "X-Remote-User", "X-Webauth-User", "X-Forwarded-User",
			"X-Auth-Request-User", "Remote-User", "X-Real-Ip", "Forwarded", "X_Scope_OrgID", "Content-Type", "Range", "If-None-Match", "X-Grafana-Id", "Idempotency-Key", "Upgrade",
		} {
			h.Set(name, "v")
		}
		return h
	}
	h := all()
	s.Rewrite(h, &querylimit.Subject{}, "6.6.6.6:1")
	require.Equal(t, []string{
		"Accept-Encoding", "Authorization", "Cookie", "Fromalert", "Origin", "Traceparent", "User-Agent", "X-Api-Key", "X-Dashboard-Uid", "X-Panel-Id", "X-Request-Id",
	}, slices.Sorted(maps.Keys(h)))
	h = all()
	s.Rewrite(h, &querylimit.Subject{Tenant: "a"}, "10.0.0.1:1")
	require.Equal(t, []string{
		"Accept-Encoding", "Authorization", "Cookie", "Fromalert", "Origin", "Thanos-Tenant", "Traceparent", "User-Agent", "X-Api-Key", "X-Dashboard-Uid",
		"X-Grafana-Org-Id", "X-Grafana-User", "X-Panel-Id", "X-Request-Id",
	}, slices.Sorted(maps.Keys(h)))
	require.Equal(t, "a", h.Get("Thanos-Tenant"))
	require.NoError(t, ValidatePassing("X-Api-Key"))
	for _, bad := range []string{"", "x-scope-orgid", "THANOS-TENANT", "Range", "Via", "X-Grafana-Id", "X-Grafana-User", "X-Grafana-Org-Id", "X-Forwarded-User", "Idempotency-Key"} {
		require.Error(t, ValidatePassing(bad), bad)
	}
}

func TestPeerIsANetworkOrAnAddress(t *testing.T) {
	for text, want := range map[string]string{"10.1.0.0/16": "10.1.0.0/16", "10.1.2.3": "10.1.2.3/32", "::1": "::1/128", "::ffff:10.0.0.1": "10.0.0.1/32"} {
		p, err := ParsePeer(text)
		require.NoError(t, err)
		require.Equal(t, want, p.String())
	}
	for text, want := range map[string]string{"": "is not a network", "grafana": "is not a network", "10.1.2.3/16": "use 10.1.0.0/16", "10.0.0.0/33": "is not a network", "::ffff:10.0.0.0/104": "written as of IPv6"} {
		_, err := ParsePeer(text)
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, ValidateHeader("X-Team"))
	for _, bad := range []string{"", "a b", "a:b", "ä", "authorization", "Connection", "proxy-authorization", "X-Forwarded-For", "FromAlert", "Content-Type"} {
		require.Error(t, ValidateHeader(bad))
	}
}

func TestUserIsWhoWasProvedUnlessABelievedPeerNamesAnother(t *testing.T) {
	s := NewSource([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "")
	signed := func(r *http.Request, verified bool) *http.Request {
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: "robot"}}
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
		if verified {
			r.TLS.VerifiedChains = [][]*x509.Certificate{{cert}}
		}
		return r
	}
	named := http.Header{headerUser: {"ann"}}
	for want, r := range map[string]*http.Request{
		"":      signed(request("192.0.2.1:1", named), false),
		"robot": signed(request("192.0.2.1:1", named), true),
		"bob":   WithUser(request("192.0.2.1:1", named), "bob"),
		"ann":   WithUser(signed(request("10.0.0.1:1", named), true), "bob"),
	} {
		require.Equal(t, want, s.Subject(r).User)
	}
	require.Equal(t, "robot", s.Subject(signed(request("10.0.0.1:1", http.Header{}), true)).User)
}
