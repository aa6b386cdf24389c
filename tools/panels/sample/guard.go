// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"strconv"

	"github.com/promguard/promguard/internal/proxy/admission"
)

// guards are the two pods of the guard. When one server replays, reads go to the
// other; when somebody's dashboard reads everything, most of it is refused.
func guards(w *writer) {
	for i := range 2 {
		pod := "promguard-7c9f8d6b5-" + []string{"k4x2p", "v8rzn"}[i]
		target := []string{"job", "promguard", "namespace", "monitoring", "pod", pod, "instance", "10.0.7." + strconv.Itoa(20+i) + ":9092"}
		with := func(pairs ...string) []string { return append(pairs, target...) }

		w.gauge("up", steady(1), target...)
		w.gauge("promguard_upstream_up", steady(1), target...)
		w.gauge("promguard_config_last_reload_successful", steady(1), target...)
		w.gauge("promguard_config_hash", steady(184726351), target...)
		w.gauge("process_resident_memory_bytes", func(m, n float64) float64 {
			return 1e6 * (118 + 9*n + 140*readStorm.heat(m))
		}, target...)
		w.counter("process_cpu_seconds_total", func(m, n float64) float64 { return 0.11 + 0.02*n + 0.3*readStorm.heat(m) }, target...)

		guardRequests(w, with)
		guardAdmission(w, with)
		guardServers(w, with)
	}
}

func guardRequests(w *writer, with func(...string) []string) {
	// How many requests there are per second, by class and status.
	for _, r := range []struct {
		class, code         string
		usual, share, storm float64
	}{
		{"query", "200", 21, 0.12, 10},
		{"query", "422", 0.06, 1.5, 9},
		{"query", "429", 0, 0, 3.5},
		{"query", "499", 0.15, 0.9, 1.2},
		{"query", "503", 0, 0, 0.6},
		{"metadata", "200", 4.2, 0.3, 1},
		{"metadata", "422", 0.02, 1.8, 0.1},
		{"bulk", "200", 0.13, 0.2, 0},
		{"status", "200", 0.5, 0.3, 0},
	} {
		w.dayCounter("promguard_requests_total", func(m, n float64) float64 {
			return r.usual*(1+r.share*n) + r.storm*readStorm.heat(m)
		}, with("class", r.class, "code", r.code)...)
	}
	bounds := []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
	for class, typical := range map[string]float64{"query": .035, "metadata": .06} {
		w.histogram("promguard_request_duration_seconds", bounds,
			around(20, .1), func(m, n float64) float64 { return typical * (1 + .2*n + 12*readStorm.heat(m) + 1.5*replay.heat(m)) },
			with("class", class)...)
	}
	for class, usual := range map[string]float64{"query": 3.2, "metadata": .5, "bulk": .6, "status": .1} {
		w.gauge("promguard_requests_in_flight", func(m, n float64) float64 {
			return float64(int(max(0, usual*(1+.8*n)+usual*6*readStorm.heat(m)+.3)))
		}, with("class", class)...)
		w.counter("promguard_client_gone_total", func(m, n float64) float64 {
			return usual * (max(0, .03+.05*n) + .2*readStorm.heat(m))
		}, with("class", class)...)
	}
	for reason, r := range map[string]struct{ usual, storm float64 }{
		"selectivity": {.02, 5.2}, "subquery_points": {.008, 1.9}, "regex_size": {.004, 0}, "query_operators": {.003, 0},
		"selectors": {.002, .7}, "bad_data": {.012, .1}, "saturated": {0, 3.1}, "topk": {}, "range": {}, "deny": {},
	} {
		w.dayCounter("promguard_rejected_total", func(m, n float64) float64 {
			return r.usual*max(0, 1+2*n) + r.storm*readStorm.heat(m)
		}, with("reason", reason)...)
	}
	for _, e := range []struct {
		limit, mode  string
		usual, storm float64
	}{
		{"selectivity", "enforce", .02, 5.2},
		{"subquery_points", "enforce", .008, 1.9},
		{"regex_cost", "observe", .09, .4},
		{"points", "observe", .05, 1.6},
		{"range", "observe", .04, .1},
		{"vector_matching", "observe", .02, 0},
		{"topk", "warn", .03, .2},
		{"count_values", "observe", 0, 0},
	} {
		w.dayCounter("promguard_limit_exceeded_total", func(m, n float64) float64 {
			return e.usual*max(0, 1+1.5*n) + e.storm*readStorm.heat(m)
		}, with("limit", e.limit, "mode", e.mode)...)
	}
	w.counter("promguard_adjusted_total", func(m, n float64) float64 { return .7 + .3*n + .8*readStorm.heat(m) }, with("limit", "metadata_range")...)
	w.counter("promguard_adjusted_total", func(_, n float64) float64 { return .3 + .1*n }, with("limit", "results")...)
}

func guardAdmission(w *writer, with func(...string) []string) {
	typical := map[admission.Class]float64{admission.Alerts: .2, admission.Query: 3, admission.Metadata: .5, admission.Bulk: .5, admission.Status: .05}
	bounds := []float64{.001, .01, .1, .5, 1, 2.5, 5, 10, 30}
	for _, class := range admission.Classes() {
		usual, waits := typical[class], class != admission.Alerts && class != admission.Status
		of := with("class", class.String())
		w.gauge("promguard_admission_permits", func(m, n float64) float64 {
			return float64(int(max(0, usual*(1+.8*n)+min(1, usual)*2.2*readStorm.heat(m)+.3)))
		}, of...)
		w.gauge("promguard_admission_queued", func(m, n float64) float64 {
			if !waits {
				return 0
			}
			return float64(int(max(0, (usual*7+6*n)*readStorm.heat(m))))
		}, of...)
		w.histogram("promguard_admission_wait_seconds", bounds, around(1+5*usual, .1), func(m, n float64) float64 {
			if !waits {
				return .0004
			}
			return .0005 + max(0, usual*(.2+.08*n))*readStorm.heat(m)
		}, of...)
	}
	w.counter("promguard_collapsed_total", func(m, n float64) float64 { return 1.6 + .5*n + 3*readStorm.heat(m) }, with()...)
	w.counter("promguard_query_log_lost_total", func(m, _ float64) float64 { return .9 * readStorm.heat(m-2) }, with()...)
	w.counter("promguard_warnings_lost_total", func(_, n float64) float64 { return max(0, .02*n) }, with()...)
}

// guardServers is what the guard says of the two servers behind.
func guardServers(w *writer, with func(...string) []string) {
	for i := range 2 {
		server := "http://" + prometheusPods[i] + ".prometheus-operated:9090"
		for _, state := range []string{"unknown", "ready", "behind", "replaying", "not_ready", "away"} {
			w.gauge("promguard_upstream_state", func(m, _ float64) float64 {
				now := "ready"
				switch {
				case i == 1 && m >= replay.from-.5 && m < replay.from+.5:
					now = "away"
				case i == 1 && replay.in(m):
					now = "replaying"
				}
				if now == state {
					return 1
				}
				return 0
			}, with("server", server, "state", state)...)
		}
	}
	for reason, storm := range map[string]float64{"unreachable": 0, "unavailable": 0, "deadline": .5, "redirect": 0, "truncated": .12, "encoded": 0} {
		w.counter("promguard_upstream_errors_total", func(m, _ float64) float64 {
			rate := storm * readStorm.heat(m)
			if reason == "unreachable" && m > replay.from-1 && m < replay.from+.5 {
				rate += .8
			}
			return rate
		}, with("reason", reason)...)
	}
}
