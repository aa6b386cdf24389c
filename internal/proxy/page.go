// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/common/version"

	"github.com/promguard/promguard/internal/proxy/admission"
	"github.com/promguard/promguard/internal/proxy/identity"
	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
	"github.com/promguard/promguard/internal/running"
	"github.com/promguard/promguard/internal/screen"
)

// Page returns the page of what happens here.
func (p *Proxy) Page() *screen.Page {
	return screen.New(screen.Source{State: p.state, Stop: p.stopFromPage, Explain: p.explain, Titles: &p.titles})
}

// ServePage serves the page where the API is served, if one asks whom the policy names
// and who has proved it, and reports whether it did: headers are not believed, as what is
// shown is of all tenants. Nothing can be stopped there.
func (p *Proxy) ServePage(w http.ResponseWriter, r *http.Request) bool {
	user := identity.Known(r)
	if user == "" || !slices.Contains(p.policy.Load().PageUsers, user) {
		return false
	}
	p.readers.ServeHTTP(w, r)
	return true
}

func (p *Proxy) stateOfReaders() *screen.State {
	s := p.state()
	s.NoStop = "Requests are stopped at --web.telemetry-address"
	return s
}

func (p *Proxy) stopFromPage(id string) error {
	only := func(filter string) string {
		if filter == "id" {
			return id
		}
		return ""
	}
	found, err := p.running.Find(only, true)
	if err == nil && len(found) == 0 {
		err = errors.New("this request has ended already")
	}
	if err == nil {
		p.logger.Info("Stopping a query", "id", id, "fingerprint", found[0].Fingerprint, "tenant", found[0].Tenant, "dashboard", found[0].Dashboard)
	}
	return err
}

func (p *Proxy) state() *screen.State {
	policy := p.policy.Load()
	s := &screen.State{
		Program: "promguard", Version: version.Version, Health: "ok", Level: screen.Good, Running: []screen.Query{},
		Refusals: p.refusals.List(), Policy: screen.Policy{Hash: policy.Hash, Settings: p.settings()},
	}
	p.addServers(s)
	found, _ := p.running.Find(func(string) string { return "" }, false) // Nothing is ended, which alone can fail.
	for i := range found {
		s.Running = append(s.Running, runningQuery(&found[i]))
	}
	s.Costs = p.top.Costs(time.Now())
	if policy.Redact {
		redact(s)
	}
	return s
}

func (p *Proxy) addServers(s *screen.State) {
	for _, server := range p.pool.Status() {
		s.Policy.Settings = append(s.Policy.Settings, screen.Setting{Name: server.URL, Value: server.State.String()})
		if !server.Chosen && !p.pool.Alone() {
			continue
		}
		if server.State != upstream.Ready && server.State != upstream.Unknown {
			s.Health, s.Level, s.Detail = "server "+server.State.String(), screen.Warn, server.Detail
		}
	}
	if p.pool.Gone() {
		s.Health, s.Level, s.Detail = "no server", screen.Bad, p.pool.Unavailable().Error()
	}
	room, taken := p.admission.Room()
	s.Gauges = append(s.Gauges, screen.Gauge{Name: "Expected to take", Used: taken, Of: room, Bytes: true})
	var held, queued int
	for _, class := range admission.Classes() {
		h, q := p.admission.Usage(class)
		held, queued = held+h, queued+q
	}
	s.Gauges = append(s.Gauges, screen.Gauge{Name: "At the server", Used: int64(held)}, screen.Gauge{Name: "Wait for their turn", Used: int64(queued)})
}

// settings are the limits of everybody, as any query meets them.
func (p *Proxy) settings() (list []screen.Setting) {
	for _, f := range p.explain("up", "1h").Limits {
		list = append(list, screen.Setting{Name: f.Limit, Value: f.Mode + " " + f.Allowed})
	}
	return list
}

func runningQuery(q *running.Query) screen.Query {
	return screen.Query{
		Asker: screen.Asker{Tenant: q.Tenant, User: q.User, Dashboard: q.Dashboard, Panel: q.Panel, Alert: q.Alert},
		ID:    q.ID, Begun: q.Begun, Waits: !q.Sent, Endpoint: q.Endpoint, Text: q.Text, Bytes: q.Bytes,
	}
}

// redact takes away the texts of before a reload, too.
func redact(s *screen.State) {
	for i := range s.Running {
		s.Running[i].Text = ""
	}
	for i := range s.Refusals {
		s.Refusals[i].Text, s.Refusals[i].Offer = "", ""
	}
	for _, w := range s.Costs {
		for i := range w.Costs {
			w.Costs[i].Text = ""
		}
	}
}

// remember keeps what was refused or warned of, for the page.
func (p *Proxy) remember(x *exchange, rw *responseWriter) {
	r := screen.Refusal{Asker: screen.Asker{Tenant: x.who.Tenant, User: x.who.User, Dashboard: x.who.Dashboard, Panel: x.who.Panel, Alert: x.who.AlertRule}}
	if x.endpoint != nil {
		r.Endpoint = x.endpoint.Name
	}
	if x.request != nil {
		if texts := x.request.PromQL(); len(texts) > 0 {
			r.Text = texts[0]
		}
	}
	if refused := rw.refused; refused != nil {
		r.Reason, r.Offer = cmp.Or(refused.reason, refused.typ), refused.Error()
		p.refusals.Add(r)
	}
	for _, refusal := range x.refusals() {
		if refusal.Mode == querylimit.ModeWarn {
			r.Reason, r.Offer, r.Warned = refusal.Limit, refusal.Error(), true
			p.refusals.Add(r)
		}
	}
}

// explain judges a query by the limits of everybody, as it would be judged now.
func (p *Proxy) explain(query, window string) *screen.Explanation {
	now, assumed := time.Now(), p.pool.Assumed()
	req := &querylimit.Request{
		Endpoint: querylimit.FindEndpoint("query"), Texts: []string{query}, Start: now, End: now, Given: true, Limit: -1,
		Head: p.pool.Head(), Lookback: assumed.Lookback, SubqueryStep: assumed.SubqueryStep, UnknownPromQL: assumed.UnknownPromQL,
	}
	if back, err := time.ParseDuration(window); err == nil && back > 0 {
		const points = 1000 // As many as Grafana draws of a panel.
		req.Endpoint = querylimit.FindEndpoint("query_range")
		req.Start, req.Step = now.Add(-back), max(15*time.Second, (back/points).Truncate(time.Second))
	}
	e, err := p.policy.Load().Rules.Explain(p.analyzer, req, now)
	if err != nil {
		return &screen.Explanation{Error: err.Error()}
	}
	out := &screen.Explanation{Passes: e.Passes, Bytes: e.Bytes}
	for _, f := range e.Limits {
		out.Limits = append(out.Limits, screen.Finding{Limit: f.Limit, Mode: f.Mode.String(), Seen: f.Seen, Allowed: f.Allowed, Exceeded: f.Exceeded})
	}
	for _, r := range e.Refusals {
		out.Refusals = append(out.Refusals, r.Error())
	}
	return out
}
