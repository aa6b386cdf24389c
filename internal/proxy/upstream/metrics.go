// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	up, lookback, subqueryStep prometheus.Gauge
	series, memory             prometheus.Gauge
	switches                   prometheus.Counter
	state, preferred, missing  *prometheus.GaugeVec
	probed, mismatch           *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer, servers []*Server) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		up:           gauge("promguard_upstream_up", "1 if an upstream server answered the last probe over HTTP, else 0."),
		lookback:     gauge("promguard_upstream_lookback_seconds", "Lookback delta that limits take into account: that of the servers, or the default of Prometheus while they have not told."),
		subqueryStep: gauge("promguard_upstream_subquery_step_seconds", "Step of subqueries without one that limits take into account: that of the servers, or the default of Prometheus while they have not told."),
		series:       gauge("promguard_upstream_series", "Series that the upstream server says it has, from which the limits series and samples estimate; 0 while it has not told."),
		memory:       gauge("promguard_upstream_memory_bytes", "Memory that the upstream server may take, from which the limits series and samples follow; 0 while it has not told."),
		switches: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "promguard_upstream_switches_total", Help: "How often reads went to another upstream server than before, or to none.",
		}),
		state:     vec("promguard_upstream_state", "1 for the state that an upstream server is in, 0 for the others.", "server", "state"),
		preferred: vec("promguard_upstream_preferred", "1 for the upstream server that reads go to, else 0.", "server"),
		missing:   vec("promguard_upstream_missing_seconds", "Samples that an upstream server misses of those that another has, as the time in which that takes them in, if the two are compared.", "server"),
		probed:    vec("promguard_upstream_probed", "1 if an upstream server has told what it is, else 0.", "server"),
		mismatch:  vec("promguard_upstream_mismatch", "1 if an upstream server differs in this from what promguard takes it for, else 0.", "server", "mismatch"),
	}
	reg.MustRegister(m.up, m.lookback, m.subqueryStep, m.series, m.memory, m.switches, m.state, m.preferred, m.missing, m.probed, m.mismatch)
	for i, s := range servers {
		m.setState(s, Unknown)
		m.preferred.WithLabelValues(s.name).Set(flag(i == 0))
		m.learned(s, nil, nil)
	}
	return m
}

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}

func (m *metrics) setState(s *Server, is State) {
	for state := range numStates {
		m.state.WithLabelValues(s.name, state.String()).Set(flag(state == is))
	}
}

// observe shows how all servers are, and which is read from.
func (m *metrics) observe(p *Pool, chosen *Server) {
	up := false
	for _, s := range p.servers {
		m.setState(s, s.effective())
		m.preferred.WithLabelValues(s.name).Set(flag(s == chosen))
		up = up || s.state != Away && s.state != Unknown
		if s.reading != nil {
			m.missing.WithLabelValues(s.name).Set(s.missing.Seconds())
		}
	}
	m.up.Set(flag(up))
}

func (m *metrics) learned(s *Server, f *Facts, mismatches []Mismatch) {
	m.probed.WithLabelValues(s.name).Set(flag(f != nil && f.answered&askedBuild != 0 && !f.Secret))
	for _, name := range mismatchNames() {
		m.mismatch.WithLabelValues(s.name, name).Set(0)
	}
	for _, mismatch := range mismatches {
		m.mismatch.WithLabelValues(s.name, mismatch.Name).Set(1)
	}
}
