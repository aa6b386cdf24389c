// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"math"
	"strconv"
)

// apiservers are three, of which the first gets most of the storm of lists.
func apiservers(w *writer) {
	for i := range 3 {
		target := []string{"job", "apiserver", "instance", "10.0.0." + strconv.Itoa(11+i) + ":6443"}
		a := apiserver{writer: w, target: target, hit: []float64{1, .45, .4}[i]}
		a.requests()
		a.load()
		a.watches()
		a.lists()
	}
}

type apiserver struct {
	*writer
	target []string
	// hit is how much of the storm this one gets.
	hit float64
}

func (a apiserver) with(pairs ...string) []string { return append(pairs, a.target...) }

// storm is the heat of the storm of lists here.
func (a apiserver) storm(m float64) float64 { return a.hit * listStorm.heat(m) }

func (a apiserver) requests() {
	for _, r := range []struct {
		verb, resource, code         string
		usual, storm, joined, spread float64
	}{
		{"GET", "nodes", "200", 420, -60, 60, .05},
		{"GET", "pods", "200", 190, -20, 30, .05},
		{"PUT", "leases", "200", 250, -25, 8, .02},
		{"PATCH", "nodes", "200", 95, -30, 130, .05},
		{"PATCH", "pods", "200", 70, -25, 90, .1},
		{"POST", "events", "201", 60, -12, 260, .2},
		{"POST", "pods", "201", 8, -2, 40, .2},
		{"LIST", "pods", "200", 2.1, 26, 3, .2},
		{"LIST", "nodes", "200", 1.3, 0, 4, .2},
		{"LIST", "configmaps", "200", 3.8, 0, 0, .2},
		{"LIST", "secrets", "200", 2.6, 0, 0, .2},
		{"LIST", "endpointslices", "200", .8, 0, 2, .2},
		{"WATCH", "pods", "200", 14, 3, 30, .1},
		{"DELETE", "pods", "200", 7, -1, 20, .2},
		{"LIST", "pods", "429", 0, 41, 0, .2},
		{"GET", "pods", "429", 0, 6, 0, .2},
		{"POST", "events", "429", 0, 3.4, 4, .2},
		{"LIST", "nodes", "429", 0, 1.2, 0, .2},
		{"LIST", "pods", "504", 0, 2.2, 0, .3},
		{"PATCH", "nodes", "500", .02, .5, .4, .9},
		{"POST", "pods", "500", .01, .2, .3, .9},
	} {
		a.counter("apiserver_request_total", func(m, n float64) float64 {
			return r.usual*(1+r.spread*n) + r.storm*(1+.2*n)*a.storm(m) + r.joined*nodesJoin.heat(m) + .6*r.joined*nodesLeave.heat(m)
		}, a.with("verb", r.verb, "resource", r.resource, "code", r.code)...)
	}
	a.counter("apiserver_request_total", func(m, n float64) float64 { return max(0, .3*n+1.1*nodesJoin.heat(m-10)) },
		a.with("verb", "POST", "resource", "pods", "subresource", "eviction", "code", "429")...)
	for level, storm := range map[string]float64{"workload-low": 28, "global-default": 12, "workload-high": .6, "leader-election": 0, "system": 0} {
		a.counter("apiserver_flowcontrol_rejected_requests_total", func(m, n float64) float64 { return storm * (1 + .2*n) * a.storm(m) },
			a.with("priority_level", level, "flow_schema", "service-accounts", "reason", "queue-full")...)
		a.counter("apiserver_flowcontrol_rejected_requests_total", func(m, n float64) float64 { return .15 * storm * (1 + .4*n) * a.storm(m) },
			a.with("priority_level", level, "flow_schema", "service-accounts", "reason", "time-out")...)
		a.gauge("apiserver_flowcontrol_current_inqueue_requests", func(m, n float64) float64 {
			return math.Floor(storm * 9 * (1 + .2*n) * a.storm(m))
		}, a.with("priority_level", level, "flow_schema", "service-accounts")...)
	}
}

func (a apiserver) load() {
	a.gauge("apiserver_current_inflight_requests", func(m, n float64) float64 { return math.Floor(38 + 9*n + 330*a.storm(m)) }, a.with("request_kind", "readOnly")...)
	a.gauge("apiserver_current_inflight_requests", func(m, n float64) float64 {
		return math.Floor(12 + 4*n + 25*a.storm(m) + 40*nodesJoin.heat(m))
	}, a.with("request_kind", "mutating")...)
	bounds := []float64{.05, .1, .2, .4, .6, .8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	for _, v := range []struct {
		verb, resource string
		rate, seconds  float64
	}{
		{"GET", "nodes", 420, .006},
		{"GET", "pods", 190, .006},
		{"LIST", "pods", 2.1, .35},
		{"LIST", "nodes", 1.3, .5},
		{"LIST", "configmaps", 3.8, .03},
		{"LIST", "endpointslices", .8, .2},
		{"PATCH", "nodes", 165, .012},
		{"PUT", "leases", 250, .009},
		{"POST", "events", 70, .011},
		{"DELETE", "pods", 7, .014},
	} {
		a.histogram("apiserver_request_sli_duration_seconds", bounds, around(v.rate, .05), func(m, n float64) float64 {
			return v.seconds * (1 + .1*n + 14*a.storm(m) + 2*nodesJoin.heat(m))
		}, a.with("verb", v.verb, "resource", v.resource)...)
	}
	a.gauge("up", steady(1), a.target...)
	a.gauge("process_start_time_seconds", steady(float64(End.Unix()-5*86400)), a.target...)
	a.gauge("process_resident_memory_bytes", func(m, n float64) float64 {
		// What a list takes is given back slowly.
		after := max(listStorm.heat(m), .8*math.Exp(-max(0, m-listStorm.to)/18))
		if m < listStorm.from {
			after = 0
		}
		return gib * (61 + 1.2*n + 52*a.hit*after + 4*nodesJoin.share(m))
	}, a.target...)
	a.gauge("go_goroutines", func(m, n float64) float64 {
		return math.Floor(128_000 + 900*n + 21_000*a.storm(m) - 6500*nodesLeave.share(m) + 6800*nodesJoin.share(m))
	}, a.target...)
	a.counter("process_cpu_seconds_total", func(m, n float64) float64 {
		return 17 + 1.1*n + 29*a.storm(m) + 9*nodesJoin.heat(m)
	}, a.target...)
}

func (a apiserver) watches() {
	for _, r := range []struct {
		resource, kind string
		watches        float64
		events, bytes  float64
	}{
		{"configmaps", "ConfigMap", 21_400, 310, 900},
		{"secrets", "Secret", 14_800, 25, 1800},
		{"pods", "Pod", 5_600, 2900, 7100},
		{"nodes", "Node", 2_720, 8300, 5200},
		{"services", "Service", 2_560, 4, 1400},
		{"endpointslices", "EndpointSlice", 2_540, 5200, 11_800},
		{"csinodes", "CSINode", 2_510, 60, 500},
		{"leases", "Lease", 46, 260, 450},
		{"events", "Event", 14, 410, 800},
		{"jobs", "Job", 31, 90, 3300},
	} {
		share := 1.0
		a.gauge("apiserver_longrunning_requests", func(m, n float64) float64 {
			return math.Floor(r.watches * (share + .004*n - .056*nodesLeave.share(m) + .056*nodesJoin.share(m)))
		}, a.with("verb", "WATCH", "resource", r.resource)...)
		rate := func(m, n float64) float64 {
			return r.events * (1 + .07*n + 3*nodesLeave.heat(m) + 4*nodesJoin.heat(m))
		}
		a.counter("apiserver_watch_events_sizes_count", rate, a.with("kind", r.kind)...)
		a.counter("apiserver_watch_events_sizes_sum", func(m, n float64) float64 { return r.bytes * rate(m, n) }, a.with("kind", r.kind)...)
	}
}

func (a apiserver) lists() {
	for _, r := range []struct {
		resource           string
		usual, storm, each float64
	}{
		{"pods", 2.1, 26, 9e6},
		{"nodes", 1.3, 0, 30e6},
		{"configmaps", 3.8, 0, 140e3},
		{"secrets", 2.6, 0, 90e3},
		{"endpointslices", .8, 0, 21e6},
		{"jobs", .2, 0, 4e6},
	} {
		a.counter("apiserver_response_sizes_sum", func(m, n float64) float64 {
			return r.each * (r.usual*(1+.2*n) + r.storm*a.storm(m))
		}, a.with("verb", "LIST", "resource", r.resource)...)
		// Since 1.34 the label is resource.
		a.counter("etcd_request_duration_seconds_count", func(m, n float64) float64 {
			return .05*r.usual*(1+.5*n) + .3*r.storm*a.storm(m)
		}, a.with("operation", "list", "resource", r.resource, "group", "")...)
	}
	for _, o := range []struct {
		group, resource string
		objects         float64
	}{
		{"", "events", 412e3},
		{"", "pods", 171e3},
		{"", "configmaps", 38e3},
		{"", "secrets", 29e3},
		{"", "nodes", 7500},
		{"coordination.k8s.io", "leases", 7900},
		{"batch", "jobs", 16e3},
		{"discovery.k8s.io", "endpointslices", 11e3},
		{"apps", "replicasets", 14e3},
		{"storage.k8s.io", "csinodes", 7500},
		{"", "serviceaccounts", 5200},
	} {
		a.gauge("apiserver_resource_objects", func(m, n float64) float64 {
			return math.Floor(o.objects * (1 + .004*n + .12*nodesJoin.share(m)*boolean(o.resource == "events")))
		}, a.with("group", o.group, "resource", o.resource)...)
	}
}

func boolean(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// etcd has five members; the disk of the last one is slow, and once it loses its
// leader.
func etcd(w *writer) {
	bounds := []float64{.001, .002, .004, .008, .016, .032, .064, .128, .256, .512, 1.024, 2.048, 4.096, 8.192}
	const members = 5
	for i := range members {
		address := func(i int) string { return "10.0.0." + strconv.Itoa(31+i) }
		target := []string{"job", "etcd", "instance", address(i) + ":2379"}
		with := func(pairs ...string) []string { return append(pairs, target...) }
		slow := 1 + 1.6*boolean(i == members-1)
		busy := func(m float64) float64 { return .9*listStorm.heat(m) + 1.4*nodesJoin.heat(m) }

		w.gauge("up", steady(1), target...)
		w.gauge("etcd_server_has_leader", steady(1), target...)
		w.counter("etcd_server_leader_changes_seen_total", func(m, _ float64) float64 {
			return boolean(m == listStorm.from+6) / 30
		}, target...)
		w.gauge("etcd_mvcc_db_total_size_in_bytes", func(m, _ float64) float64 { return gib * (4.6 + .25*nodesJoin.share(m) + .02*float64(i)) }, target...)
		w.gauge("etcd_mvcc_db_total_size_in_use_in_bytes", func(m, _ float64) float64 {
			// Every five minutes the old revisions are compacted.
			return gib * (2.9 + .05*float64(i)*.3 + .35*math.Mod(m+20, 5)/5*(1+busy(m)))
		}, target...)
		w.gauge("etcd_server_quota_backend_bytes", steady(8*gib), target...)
		w.gauge("etcd_server_proposals_pending", func(m, n float64) float64 { return math.Floor(max(0, 1.2*n+9*busy(m)*slow*(1+n)/2)) }, target...)
		w.counter("etcd_server_proposals_failed_total", func(m, _ float64) float64 {
			return .9 * boolean(m >= listStorm.from+5 && m < listStorm.from+7)
		}, target...)
		w.counter("etcd_server_slow_apply_total", func(m, n float64) float64 { return max(0, .02+.03*n) + .9*slow*busy(m) }, target...)
		w.histogram("etcd_disk_wal_fsync_duration_seconds", bounds, around(420, .05), func(m, n float64) float64 {
			return .0007 * slow * (1 + .1*n + 2.2*busy(m))
		}, target...)
		w.histogram("etcd_disk_backend_commit_duration_seconds", bounds, around(31, .05), func(m, n float64) float64 {
			return .0021 * slow * (1 + .1*n + 1.8*busy(m))
		}, target...)
		w.gauge("process_resident_memory_bytes", func(m, n float64) float64 { return gib * (9.8 + .3*n + 3.1*listStorm.heat(m) + .7*float64(i%2)) }, target...)
		w.counter("etcd_network_client_grpc_sent_bytes_total", func(m, n float64) float64 {
			return 1e6 * (48 + 4*n + 610*listStorm.heat(m)/float64(i+1) + 70*nodesJoin.heat(m))
		}, target...)
		w.counter("etcd_network_client_grpc_received_bytes_total", func(m, n float64) float64 {
			return 1e6 * (6 + .4*n + 7*nodesJoin.heat(m))
		}, target...)
		for other := range members {
			if other != i {
				w.histogram("etcd_network_peer_round_trip_time_seconds", []float64{.0001, .0002, .0004, .0008, .0016, .0032, .0064, .0128, .0256, .0512, .1024, .2048, .4096, .8192, 1.6384, 3.2768},
					around(3, .1), func(m, n float64) float64 { return .0006 * (1 + .15*n + .8*busy(m)) }, with("To", strconv.FormatUint(0x8e9e05c52164694d+uint64(other), 16))...)
			}
		}
	}
}
