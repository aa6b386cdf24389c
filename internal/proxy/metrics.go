// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promguard/promguard/internal/proxy/admission"
	"github.com/promguard/promguard/internal/querylimit"
)

// classUnknown is the class of requests to what is no open endpoint.
const classUnknown = "unknown"

// statusClientGone is the code under which a request is counted whose client
// left before there was an answer; nginx introduced it, Prometheus uses it.
const statusClientGone = 499

// Reasons of promguard_upstream_errors_total.
const (
	reasonUnreachable = "unreachable" // no answer, or not HTTP
	reasonUnavailable = "unavailable" // none of several servers is ready
	reasonDeadline    = "deadline"    // the deadline passed, before or after the headers
	reasonRedirect    = "redirect"    // a redirect, which is not passed on
	reasonTruncated   = "truncated"   // the connection broke inside the body
	reasonEncoded     = "encoded"     // compressed, though it was asked not to be
	reasonLoop        = "loop"        // a request of promguard came back to it
)

// reasonStopped is that of promguard_refused_total for what an operator stopped.
const reasonStopped = "stopped"

// Reasons of promguard_shed_total.
const (
	reasonSaturated       = "saturated"        // no permit in time
	reasonTenantSaturated = "tenant_saturated" // the tenant has all permits it may have
)

type metrics struct {
	requests      *prometheus.CounterVec
	duration      *prometheus.HistogramVec
	inFlight      *prometheus.GaugeVec
	refused, shed *prometheus.CounterVec
	exceeded      *prometheus.CounterVec
	adjusted      *prometheus.CounterVec
	upstream      *prometheus.CounterVec
	clientGone    *prometheus.CounterVec
	partial       *prometheus.CounterVec
	lostWarnings  prometheus.Counter
	collapsed     prometheus.Counter
	logLost       prometheus.Counter
	waited        [admission.NumClasses]prometheus.Observer
	resent        *prometheus.CounterVec
	requestsReady map[string]map[int]prometheus.Counter // [class][code], the common ones
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		requests: counter("promguard_requests_total", "Requests answered, by endpoint class and status code; 499 if the client left before.", "class", "code"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:                           "promguard_request_duration_seconds",
			Help:                           "Time from the request's headers to the end of its answer, by endpoint class.",
			Buckets:                        []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
			NativeHistogramBucketFactor:    1.1,
			NativeHistogramMaxBucketNumber: 100,
			// A reset is not needed more often: classes are few.
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{"class"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "promguard_requests_in_flight", Help: "Requests being handled, by endpoint class.",
		}, []string{"class"}),
		refused:    counter("promguard_refused_total", "Requests refused by promguard, by reason: a limit, or what was wrong with the request.", "reason"),
		shed:       counter("promguard_shed_total", "Requests for which promguard had no room, by reason. The same may pass later.", "reason"),
		exceeded:   counter("promguard_limit_exceeded_total", "Requests that exceeded a limit, by limit and by the mode that it was in.", "limit", "mode"),
		adjusted:   counter("promguard_adjusted_total", "Requests that a limit in mode enforce gave a start or a limit of its own, by limit.", "limit"),
		upstream:   counter("promguard_upstream_errors_total", "Requests that the upstream server did not answer in full, by reason.", "reason"),
		clientGone: counter("promguard_client_gone_total", "Requests whose client left before the end of the answer, by endpoint class.", "class"),
		partial:    counter("promguard_partial_answers_total", "Answers of Thanos with a warning that a server behind it gave nothing, by endpoint class.", "class"),
		lostWarnings: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "promguard_warnings_lost_total", Help: "Answers without the warning of a limit in mode warn, because they were not plain JSON.",
		}),
		collapsed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "promguard_collapsed_total", Help: "Requests that waited for the answer to an identical one instead of being sent.",
		}),
		logLost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "promguard_query_log_lost_total", Help: "Requests that could not be written to the query log.",
		}),
		resent: counter("promguard_upstream_resent_total", "Requests that went to another upstream server after the first one failed, by why they could.", "reason"),
	}
	reg.MustRegister(m.requests, m.duration, m.inFlight, m.refused, m.shed, m.exceeded, m.adjusted, m.upstream, m.clientGone, m.partial, m.lostWarnings, m.collapsed, m.logLost, m.resent)
	m.precreate()
	return m
}

// registerAdmission makes what c holds visible.
func (m *metrics) registerAdmission(reg prometheus.Registerer, c *admission.Controller) {
	wait := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "promguard_admission_wait_seconds",
		Help:    "How long requests waited for a permit, by class.",
		Buckets: []float64{.001, .01, .1, .5, 1, 2.5, 5, 10, 30},
	}, []string{"class"})
	reg.MustRegister(wait,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "promguard_admission_room_bytes", Help: "Memory of the upstream server that requests may take together; 0 while it has not told."}, func() float64 {
			room, _ := c.Room()
			return float64(room)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "promguard_admission_taken_bytes", Help: "Memory of the upstream server that requests in flight are expected to take."}, func() float64 {
			_, taken := c.Room()
			return float64(taken)
		}),
	)
	for _, class := range admission.Classes() {
		m.waited[class] = wait.WithLabelValues(class.String())
		gauge := func(name, help string, value func() float64) prometheus.Collector {
			return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{"class": class.String()}}, value)
		}
		reg.MustRegister(
			gauge("promguard_admission_permits", "Permits that are held, by class.", func() float64 {
				held, _ := c.Usage(class)
				return float64(held)
			}),
			gauge("promguard_admission_queued", "Requests that wait for a permit, by class.", func() float64 {
				_, queued := c.Usage(class)
				return float64(queued)
			}),
		)
	}
}

// precreate makes every label value visible as zero: a rate over a counter that
// appears with its first event misses that event.
func (m *metrics) precreate() {
	m.requestsReady = map[string]map[int]prometheus.Counter{}
	classes := []string{classUnknown}
	for _, c := range querylimit.Classes() {
		classes = append(classes, c.String())
	}
	for _, class := range classes {
		m.requestsReady[class] = map[int]prometheus.Counter{}
		for _, code := range []int{200, 400, 404, 405, 415, 422, 429, statusClientGone, 500, 503} {
			m.requestsReady[class][code] = m.requests.WithLabelValues(class, strconv.Itoa(code))
		}
		m.duration.WithLabelValues(class)
		m.inFlight.WithLabelValues(class)
		m.clientGone.WithLabelValues(class)
		m.partial.WithLabelValues(class)
	}
	for _, limit := range querylimit.Limits() {
		for _, mode := range querylimit.Modes()[1:] {
			m.exceeded.WithLabelValues(limit, mode.String())
		}
		if limit != querylimit.LimitDeadline { // That one is an upstream error.
			m.refused.WithLabelValues(limit)
		}
	}
	m.adjusted.WithLabelValues(querylimit.LimitMetadataRange)
	for _, reason := range []string{"bad_data", "not_found", "method_not_allowed", "unsupported_media_type", reasonLoop, reasonStopped} {
		m.refused.WithLabelValues(reason)
	}
	for _, reason := range []string{reasonSaturated, reasonTenantSaturated} {
		m.shed.WithLabelValues(reason)
	}
	for _, reason := range []string{reasonUnreachable, reasonUnavailable, reasonDeadline, reasonRedirect, reasonTruncated, reasonEncoded, reasonLoop} {
		m.upstream.WithLabelValues(reason)
	}
	for _, reason := range []string{resentUnsent, resentNotReady, resentLight} {
		m.resent.WithLabelValues(reason)
	}
}

func (m *metrics) request(class string, code int, took time.Duration) {
	c, ok := m.requestsReady[class][code]
	if !ok {
		c = m.requests.WithLabelValues(class, strconv.Itoa(code))
	}
	c.Inc()
	m.duration.WithLabelValues(class).Observe(took.Seconds())
}
