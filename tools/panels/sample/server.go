// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"math"
	"strconv"
)

// prometheusPods are the two replicas of the patched server. The second one is
// killed once, and replays its log.
var prometheusPods = []string{"prometheus-k8s-0", "prometheus-k8s-1"}

func servers(w *writer) {
	for i, pod := range prometheusPods {
		target := []string{"job", "prometheus-k8s", "namespace", "monitoring", "pod", pod, "instance", "10.0.7." + strconv.Itoa(10+i) + ":9090"}
		with := func(pairs ...string) []string { return append(pairs, target...) }
		s := server{writer: w, with: with, second: i == 1}
		s.memory()
		s.reads()
		s.starts()
		s.engine()
		s.dropRules()
	}
}

type server struct {
	*writer
	with   func(...string) []string
	second bool
}

// alive is v while the server is; a server that replays has some of its metrics,
// those of its process, of the replay and of readiness.
func (s server) alive(v value) value {
	return func(m, n float64) float64 {
		if s.second && m >= replay.from-.5 && m < replay.to {
			return math.NaN()
		}
		return v(m, n)
	}
}

// up is v but in the moment in which the process was away.
func (s server) up(v value) value {
	return func(m, n float64) float64 {
		if s.second && m >= replay.from-.5 && m < replay.from+.5 {
			return math.NaN()
		}
		return v(m, n)
	}
}

const gib = 1 << 30

func (s server) memory() {
	// Garbage grows until a collection: a saw.
	saw := func(m float64) float64 {
		period := 2.6
		if s.second {
			period = 3.1
		}
		return math.Mod(m+100, period) / period
	}
	live := func(m float64) float64 {
		if s.second && replay.in(m) {
			return 9 + 17*replay.share(m)
		}
		return 26 + .01*m + 7*readStorm.heat(m) + 1.2*nodesJoin.heat(m)
	}
	s.gauge("go_gc_heap_live_bytes", s.up(func(m, n float64) float64 { return gib * (live(m) + .15*n) }), s.with()...)
	s.gauge("go_memstats_heap_inuse_bytes", s.up(func(m, _ float64) float64 { return gib * live(m) * (1.04 + .34*saw(m)) }), s.with()...)
	s.gauge("process_resident_memory_bytes", s.up(func(m, n float64) float64 {
		return gib * (live(m)*1.32 + 3.4 + .4*n)
	}), s.with()...)
	s.gauge("go_gc_gomemlimit_bytes", s.up(steady(57*gib)), s.with()...)
	s.gauge("promguard_read_memory_budget_bytes", s.alive(steady(14.25*gib)), s.with()...)
	s.gauge("promguard_read_memory_reserved_bytes", s.alive(func(m, n float64) float64 {
		return gib * max(.2, .5+.4*n+(12.4+1.3*n)*readStorm.heat(m))
	}), s.with()...)
	series := func(m float64) float64 { return 11.8e6 + 2200*m + 4.4e5*nodesJoin.share(m) }
	s.gauge("prometheus_tsdb_head_series", s.alive(func(m, n float64) float64 { return series(m) + 9000*n }), s.with()...)
	s.gauge("prometheus_tsdb_head_chunks", s.alive(func(m, _ float64) float64 {
		return series(m) * (2.1 + 1.9*math.Mod(m+75, 120)/120)
	}), s.with()...)
	s.gauge("prometheus_tsdb_wal_storage_size_bytes", s.alive(func(m, _ float64) float64 {
		return gib * (19 + 11*math.Mod(m+75, 120)/120)
	}), s.with()...)
	s.counter("prometheus_tsdb_head_samples_appended_total", s.alive(around(395_000, .01)), s.with("type", "float")...)
	s.counter("process_cpu_seconds_total", s.up(func(m, n float64) float64 { return 6.5 + .5*n + 7*readStorm.heat(m) }), s.with()...)
}

func (s server) reads() {
	s.gauge("promguard_api_requests_in_flight", s.alive(func(m, n float64) float64 {
		return float64(int(max(0, 4+3*n+34*readStorm.heat(m))))
	}), s.with()...)
	bounds := []float64{.001, .01, .1, .5, 1, 2.5, 5, 10, 30}
	for pool, waiting := range map[string]float64{"metadata": 3, "query": 19, "bulk": 0} {
		s.gauge("promguard_api_requests_queued", s.alive(func(m, n float64) float64 {
			return float64(int(max(0, waiting*(1+.4*n)*readStorm.heat(m))))
		}), s.with("pool", pool)...)
		s.histogram("promguard_api_queue_duration_seconds", bounds, s.alive(around(5+waiting, .1)), func(m, n float64) float64 {
			return .0004 + waiting*.05*(1+.3*n)*readStorm.heat(m)
		}, s.with("pool", pool)...)
	}
	for _, r := range []struct {
		endpoint, reason string
		usual, storm     float64
	}{
		{"/api/v1/query_range", "deadline", .004, .25},
		{"/api/v1/query_range", "memory", 0, .7},
		{"/api/v1/query_range", "too_large", .006, .35},
		{"/api/v1/query_range", "queue", 0, 1.1},
		{"/api/v1/series", "deadline", .003, .06},
		{"/api/v1/query", "queue", 0, .4},
		{"/federate", "slow", .002, 0},
	} {
		s.counter("promguard_api_requests_stopped_total", s.alive(func(m, n float64) float64 {
			return r.usual*max(0, 1+2*n) + r.storm*readStorm.heat(m)
		}), s.with("endpoint", r.endpoint, "reason", r.reason)...)
	}
	s.counter("promguard_api_responses_truncated_total", s.alive(func(_, n float64) float64 {
		return max(0, .02+.03*n)
	}), s.with("endpoint", "/api/v1/label/:name/values")...)
	s.counter("promguard_api_responses_truncated_total", s.alive(func(_, n float64) float64 {
		return max(0, .05+.05*n)
	}), s.with("endpoint", "/api/v1/series")...)
	s.counter("promguard_api_responses_aborted_total", s.alive(func(m, n float64) float64 {
		return max(0, .004+.006*n) + .12*readStorm.heat(m)
	}), s.with("endpoint", "/api/v1/query_range")...)
	s.counter("promguard_spare_connections_accepted_total", s.alive(func(m, _ float64) float64 { return .9 * max(0, readStorm.heat(m)-.3) }), s.with()...)
	s.counter("promguard_spare_connections_refused_total", s.alive(func(m, _ float64) float64 { return .2 * max(0, readStorm.heat(m)-.7) }), s.with()...)
}

func (s server) starts() {
	s.gauge("up", s.up(steady(1)), s.with()...)
	s.gauge("prometheus_build_info", s.up(steady(1)), s.with("version", "3.16.0")...)
	s.gauge("prometheus_ready", s.up(func(m, _ float64) float64 {
		if s.second && replay.in(m) {
			return 0
		}
		return 1
	}), s.with()...)
	s.gauge("promguard_wal_replay_progress_ratio", s.up(func(m, _ float64) float64 {
		if s.second {
			return replay.share(m)
		}
		return 1
	}), s.with()...)
	s.gauge("promguard_wal_replay_gomaxprocs", s.up(steady(8)), s.with()...)
	s.gauge("prometheus_tsdb_data_replay_duration_seconds", s.alive(func(m, _ float64) float64 {
		if s.second && m >= replay.to {
			return 60 * (replay.to - replay.from)
		}
		return 352
	}), s.with()...)
	for every, at := range map[string]float64{"15s": 15, "30s": 30, "1m0s": 60} {
		s.gauge("prometheus_target_interval_length_seconds", s.alive(func(_, n float64) float64 {
			return at * (1.002 + .001*n)
		}), s.with("interval", every, "quantile", "0.99")...)
	}
}

func (s server) engine() {
	s.gauge("prometheus_engine_queries", s.alive(func(m, n float64) float64 {
		return float64(int(max(0, 3+2.5*n+12*readStorm.heat(m))))
	}), s.with()...)
	s.gauge("prometheus_engine_queries_concurrent_max", s.alive(steady(20)), s.with()...)
	s.counter("prometheus_engine_query_samples_total", s.alive(func(m, n float64) float64 {
		return 5.2e6*(1+.15*n) + 2.6e7*readStorm.heat(m)
	}), s.with()...)
	for slice, typical := range map[string]float64{"queue_time": .0004, "prepare_time": .012, "inner_eval": .09, "result_sort": .0002} {
		s.gauge("prometheus_engine_query_duration_seconds", s.alive(func(m, n float64) float64 {
			return typical * (1 + .25*n + 25*readStorm.heat(m))
		}), s.with("slice", slice, "quantile", "0.9")...)
	}
	for _, h := range []struct {
		handler              string
		rate, seconds, bytes float64
	}{
		{"/api/v1/query_range", 14, .16, 210e3},
		{"/api/v1/query", 24, .03, 6e3},
		{"/api/v1/label/:name/values", 5, .05, 45e3},
		{"/api/v1/series", .7, .41, 1.9e6},
		{"/api/v1/labels", 1.1, .22, 9e3},
		{"/api/v1/rules", .13, .04, 480e3},
		{"/api/v1/read", .2, 1.3, 8.1e6},
		{"/federate", .066, 2.1, 22e6},
		{"/metrics", .066, .03, 140e3},
		{"/api/v1/targets", .02, .3, 5.4e6},
	} {
		of := s.with("handler", h.handler)
		rate := s.alive(around(h.rate, .2))
		s.counter("prometheus_http_request_duration_seconds_count", rate, of...)
		s.counter("prometheus_http_request_duration_seconds_sum", func(m, n float64) float64 { return rate(m, n) * h.seconds }, of...)
		s.counter("prometheus_http_response_size_bytes_sum", func(m, n float64) float64 { return rate(m, n) * h.bytes }, of...)
	}
	const files = "/etc/prometheus/rules/prometheus-k8s-rulefiles-0/"
	for group, g := range map[string]struct{ took, every float64 }{
		"kubernetes-mixin.yaml;k8s.rules.container_cpu_usage_seconds_total":  {11.4, 30},
		"kubernetes-mixin.yaml;k8s.rules.container_memory_working_set_bytes": {8.7, 30},
		"kubernetes-mixin.yaml;kube-apiserver-burnrate.rules":                {21.8, 180},
		"kubernetes-mixin.yaml;kube-apiserver-histogram.rules":               {4.9, 30},
		"node-exporter.yaml;node-exporter.rules":                             {3.1, 30},
		"kubernetes-mixin.yaml;kubernetes-apps":                              {6.2, 30},
		"promguard.yaml;promguard-guard":                                     {.006, 30},
		"promguard.yaml;promguard-nodes":                                     {.21, 30},
		"gpu.yaml;gpu.rules":                                                 {1.8, 60},
	} {
		of := s.with("rule_group", files+group)
		s.gauge("prometheus_rule_group_last_duration_seconds", s.alive(func(m, n float64) float64 {
			return g.took * (1 + .08*n + .03*readStorm.heat(m) + 1.9*nodesJoin.heat(m))
		}), of...)
		s.gauge("prometheus_rule_group_interval_seconds", s.alive(steady(g.every)), of...)
		s.counter("prometheus_rule_group_iterations_missed_total", s.alive(func(m, _ float64) float64 {
			if g.took < .35*g.every {
				return 0
			}
			return .03 * max(0, nodesJoin.heat(m)-.4)
		}), of...)
	}
}

// dropRules are some of those of the profile recommended. Two of them meet nothing.
func (s server) dropRules() {
	for _, r := range []struct {
		rule, class, job string
		series           float64
	}{
		{"apiserver-body-size-buckets", "bucket", "apiserver", 214e3},
		{"apiserver-watch-buckets", "bucket", "apiserver", 88e3},
		{"apiserver-request-bounds", "thin", "apiserver", 402e3},
		{"apiserver-sli-bounds", "thin", "apiserver", 377e3},
		{"rest-client-size-buckets", "bucket", "kubelet", 611e3},
		{"kubernetes-feature-gates", "unused", "kubelet", 1.34e6},
		{"cadvisor-always-zero", "unused", "kubelet", 2.9e6},
		{"cadvisor-unread", "unused", "kubelet", 1.75e6},
		{"ksm-pod-tolerations", "unused", "kube-state-metrics", 530e3},
		{"node-network-constants", "unused", "node-exporter", 940e3},
		{"ksm-endpoint-ports", "unused", "", 0},
		{"go-godebug-counters", "unused", "", 0},
	} {
		s.gauge("promguard_drop_rule_info", s.alive(steady(1)), s.with("profile", "recommended", "rule", r.rule, "class", r.class)...)
		if r.job == "" {
			continue
		}
		pool := "serviceMonitor/monitoring/" + r.job + "/0"
		s.gauge("promguard_drop_rules_dropped_series_total", s.alive(func(m, _ float64) float64 {
			again := 1.0
			if r.job == "kubelet" || r.job == "node-exporter" {
				again += .056 * nodesJoin.share(m) // Nodes that join have targets that are new.
			}
			return math.Floor(r.series * again)
		}), s.with("profile", "recommended", "rule", r.rule, "scrape_job", pool)...)
	}
	// An agent of another cluster writes to this server.
	s.counter("prometheus_guard_drop_rules_dropped_samples_total", s.alive(steady(3200)),
		s.with("profile", "recommended", "rule", "cadvisor-unread", "path", "remote-write")...)
}

// scrapes are what a server says of every target: here, some targets of each job
// for all of them.
func scrapes(w *writer) {
	for job, j := range map[string]struct {
		targets               int
		samples, kept, churns float64
	}{
		"apiserver":          {3, 492e3, .28, 900},
		"kubelet":            {60, 118e3, .21, 260},
		"kube-state-metrics": {2, 2.6e6, .79, 4200},
		"node-exporter":      {60, 31e3, .55, 8},
		"dcgm-exporter":      {24, 14e3, 1, 2},
		"etcd":               {3, 3900, .83, 0},
		"kube-scheduler":     {3, 8800, .72, 6},
		"prometheus-k8s":     {2, 2900, 1, 0},
		"promguard":          {2, 640, 1, 0},
	} {
		for i := range j.targets {
			of := []string{"job", job, "instance", "10.1." + strconv.Itoa(i) + ".1:9100"}
			w.gauge("scrape_samples_scraped", func(_, n float64) float64 { return math.Floor(j.samples * (1 + .01*n)) }, of...)
			w.gauge("scrape_samples_post_metric_relabeling", func(_, n float64) float64 { return math.Floor(j.kept * j.samples * (1 + .01*n)) }, of...)
			w.gauge("scrape_series_added", func(m, n float64) float64 {
				return math.Floor(j.churns * (1 + .5*n) * (1 + 9*nodesJoin.heat(m)))
			}, of...)
		}
	}
}
