// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"cmp"
	"errors"
	"hash/maphash"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/route"
	"github.com/prometheus/common/version"

	"github.com/prometheus/prometheus/internal/screen"
	"github.com/prometheus/prometheus/promguard/memory"
	"github.com/prometheus/prometheus/promguard/newseries"
	"github.com/prometheus/prometheus/promguard/reads"
)

// topQueries is how many shapes of reads are kept of each minute and of ten minutes.
const topQueries = 100

// noStop is said where requests cannot be stopped.
const noStop = "Start the server with --web.enable-lifecycle to stop requests: the lifecycle API is not enabled"

var textSeed = maphash.MakeSeed()

// seen is what the page remembers of reads that have ended.
type seen struct {
	top      *screen.TopQueries
	refusals screen.Refusals
	titles   screen.Titles
}

// RegisterPage adds the page. Nothing on it waits for its turn.
func (h *Handlers) RegisterPage(r *route.Router, logger *slog.Logger) {
	if h == nil {
		return
	}
	page := screen.New(screen.Source{State: h.state, Stop: func(id string) error { return h.stopFromPage(id, logger) }, Titles: &h.seen.titles})
	r.Get(screen.Route, page.ServeHTTP)
	r.Get(screen.Route+"/:part", page.ServeHTTP)
	r.Post(screen.Route+"/stop", page.ServeHTTP)
}

func (h *Handlers) stopFromPage(id string, logger *slog.Logger) error {
	n, _ := strconv.ParseUint(id, 10, 64) // There is no request 0.
	read, _, ok := h.table.Stop(n, stoppedByOperator)
	if !ok {
		return errors.New("this request has ended already")
	}
	logger.Info("Stopping a request", "id", id, "endpoint", read.Endpoint, "client", read.Client, "expressions", read.Expressions)
	return nil
}

func (h *Handlers) state() *screen.State {
	s := &screen.State{
		Program: "Prometheus", Version: version.Version, Health: memory.OK.String(), Level: screen.Good, Running: []screen.Query{},
		Refusals: h.seen.refusals.List(), NewSeries: adders(h.opts.NewSeries.Recent()),
		Policy: screen.PolicyOf(h.opts.Settings),
	}
	if !h.opts.EnableStop {
		s.NoStop = noStop
	}
	if h.opts.Drops != nil {
		s.Drops = h.opts.Drops()
	}
	h.addMemory(s)
	for _, r := range h.table.List() {
		s.Running = append(s.Running, running(&r))
	}
	s.Costs = h.seen.top.Costs(time.Now())
	return s
}

// givenUp is what the server gives up in a state of its memory.
var givenUp = map[memory.State]struct {
	level  screen.Level
	detail string
}{
	memory.OK:       {screen.Good, ""},
	memory.Tight:    {screen.Warn, "reads get less memory, ended series leave the head early"},
	memory.Critical: {screen.Bad, "new series are refused, reads are stopped, the largest first"},
}

func (h *Handlers) addMemory(s *screen.State) {
	if m := h.opts.Memory.Status(); m != nil {
		up := givenUp[m.State]
		s.Health, s.Level, s.Detail = m.State.String(), up.level, up.detail
		s.Gauges = append(s.Gauges,
			screen.Gauge{Name: "Lives in memory", Used: m.Live, Of: m.Limit, Bytes: true},
			screen.Gauge{Name: "Seen by the kernel", Used: m.Resident, Of: cmp.Or(m.Kill, m.Limit), Bytes: true})
	}
	if b := h.opts.Budget; b != nil {
		s.Gauges = append(s.Gauges, screen.Gauge{Name: "Reads hold", Used: b.Held(), Of: b.Total(), Bytes: true})
	}
	if h.opts.Replay == nil {
		return
	}
	if replay := h.opts.Replay(); replay != "" {
		s.Health, s.Level, s.Detail = "replaying", screen.Warn, replay
	}
}

func running(r *reads.Status) screen.Query {
	return screen.Query{
		Asker: asker(r.Origin, r.Client), ID: strconv.FormatUint(r.ID, 10), Begun: r.Started, Waits: r.State == "waiting",
		Endpoint: r.Endpoint, Text: firstOf(r.Expressions), Series: r.Series, Bytes: r.ReservedBytes, Allowed: r.AllowedBytes,
	}
}

// asker says who asks by the headers of Grafana's. Anybody can send those: they are for
// the eye.
func asker(origin map[string]string, client string) screen.Asker {
	a := screen.Asker{
		User: origin["X-Grafana-User"], Dashboard: origin["X-Dashboard-Uid"], DashboardTitle: origin["X-Dashboard-Title"],
		Panel: origin["X-Panel-Id"], PanelTitle: origin["X-Panel-Title"], Client: client,
	}
	if origin["FromAlert"] == "true" {
		a.Alert = cmp.Or(origin["X-Rule-Name"], origin["X-Rule-Uid"], "rule of Grafana's")
	}
	return a
}

func firstOf(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return texts[0]
}

// note remembers a read that has ended.
func (s *seen) note(w *writer) {
	i := &w.read.Info
	who, text := asker(i.Origin, i.Client), firstOf(i.Expressions)
	s.titles.Add(who.Dashboard, who.DashboardTitle)
	stop := reads.Stopped(w.ctx)
	if stop != nil {
		s.refusals.Add(screen.Refusal{Asker: who, Endpoint: i.Endpoint, Text: text, Reason: string(stop.Reason), Offer: stop.Text})
	}
	if w.ran == 0 {
		return
	}
	cost := screen.TopCost{Requests: 1, Bytes: w.read.Sent(), Seconds: w.ran.Seconds(), Longest: w.ran.Seconds()}
	if stop != nil || w.aborted || cmp.Or(w.code, http.StatusOK)/100 != 2 {
		cost.Failed = 1
	}
	key := screen.TopKey{Endpoint: i.Endpoint, Dashboard: who.Dashboard, Panel: who.Panel, AlertRule: who.Alert}
	switch {
	case who.Dashboard != "" || who.Alert != "":
	case who.User != "":
		key.User = who.User
	default:
		key.Client = who.Client
	}
	if text != "" {
		key.Fingerprint = strconv.FormatUint(maphash.String(textSeed, text), 16)
	}
	s.top.Add(time.Now(), key, text, cost)
}

func adders(r *newseries.Report) *screen.Adders {
	if r == nil {
		return nil
	}
	a := &screen.Adders{From: r.From, Created: r.Created, Refused: r.Refused}
	for i := range r.Culprits {
		c := &r.Culprits[i]
		a.Adders = append(a.Adders, screen.Adder{Name: c.String(), Created: c.Created, Refused: c.Refused, Share: c.Share, Relabel: c.Relabel, Limit: c.Limit})
	}
	slices.SortStableFunc(a.Adders, func(x, y screen.Adder) int { return cmp.Compare(y.Share, x.Share) })
	return a
}
