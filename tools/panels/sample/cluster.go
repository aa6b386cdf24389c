// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"fmt"
	"math"
	"strconv"
)

const ksm = "kube-state-metrics"

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// rackShare is the share of the nodes that leave and join.
const rackShare = 0.056

// nodes are what kube-state-metrics says of every node. Of the statuses of a
// condition that never change, only "true" is written.
func nodes(w *writer) {
	begin := float64(End.Add(-Shown).Unix())
	rack := int(rackShare * float64(w.size.Nodes))
	for i := range w.size.Nodes {
		node := nodeName(i)
		with := func(pairs ...string) []string { return append([]string{"job", ksm, "node", node}, pairs...) }
		place := float64(i) / float64(max(1, rack)) // in the rack: below 1
		leaves := nodesLeave.from + place*(nodesLeave.to-nodesLeave.from)
		joins := nodesJoin.from + place*(nodesJoin.to-nodesJoin.from)
		there := func(v value) value {
			return func(m, n float64) float64 {
				if i < rack && m >= leaves && m < joins {
					return math.NaN()
				}
				return v(m, n)
			}
		}
		version := "v1.34.4"
		if i%3 == 1 {
			version = "v1.33.9"
		}
		w.rarely("kube_node_info", there(steady(1)), with("kubelet_version", version, "os_image", "Debian GNU/Linux 12 (bookworm)")...)
		w.rarely("kube_node_created", there(func(m, _ float64) float64 {
			if i < rack && m >= joins {
				return begin + 60*joins
			}
			return begin - 86400*float64(3+i%200)
		}), with()...)
		cordoned := i%331 == 17
		w.rarely("kube_node_spec_unschedulable", there(steady(boolean(cordoned))), with()...)
		taints(w, i, there, with)

		// A node that leaves is not ready for some minutes before, one that joins for one after.
		oneMinuteAfter := joins + 1
		unready := func(m float64) bool {
			return i%853 == 5 || i < rack && (m >= leaves-3 && m < oneMinuteAfter)
		}
		for _, status := range []string{"true", "false", "unknown"} {
			w.rarely("kube_node_status_condition", there(func(m, _ float64) float64 {
				now := "true"
				if unready(m) {
					now = "unknown"
				}
				return boolean(now == status)
			}), with("condition", "Ready", "status", status)...)
		}
		for condition, one := range map[string]struct{ of, at int }{"MemoryPressure": {610, 21}, "DiskPressure": {270, 40}, "PIDPressure": {1, -1}, "GpuNeedsReset": {490, 3}} {
			w.rarely("kube_node_status_condition", there(func(m, _ float64) float64 {
				return boolean(i%one.of == one.at && m > float64(20+i%90))
			}), with("condition", condition, "status", "true")...)
		}
	}
}

func taints(w *writer, i int, there func(value) value, with func(...string) []string) {
	taint := func(v value, key, of, effect string) {
		w.rarely("kube_node_spec_taint", there(v), with("key", key, "value", of, "effect", effect)...)
	}
	if i%331 == 17 {
		taint(steady(1), "node.kubernetes.io/unschedulable", "", "NoSchedule")
	}
	if i%853 == 5 {
		taint(steady(1), "node.kubernetes.io/unreachable", "", "NoExecute")
	}
	if i%29 == 8 {
		taint(steady(1), "team", namespaces[i%len(namespaces)], "NoSchedule")
	}
	if i%61 == 9 {
		taint(steady(1), "maintenance", "", "NoSchedule")
	}
}

var namespaces = []string{"rl", "vision", "speech", "language", "evaluation", "data", "robotics", "search"}

// jobs are pods of jobs, each a gang, and the balloons. Some gangs run in part
// while the rack is away.
func jobs(w *writer) {
	const gangs, workers = 24, 16
	for g := range gangs {
		namespace, job := namespaces[g%5], fmt.Sprintf("train-%02d", g)
		inRack := g%4 == 1
		of := []string{"job", ksm, "namespace", namespace}
		until := nodesJoin.to + float64(g)/4
		if g == 9 || g == 13 {
			until = math.Inf(1) // Of these, others have the room now.
		}
		missing := func(m float64, worker int) bool {
			return inRack && worker < 3+g/4 && m > nodesLeave.from+2+float64(worker)/4 && m < until
		}
		for p := range workers {
			pod := fmt.Sprintf("%s-%d", job, p)
			w.gauge("kube_pod_owner", steady(1), append([]string{"pod", pod, "owner_kind", "Job", "owner_name", job, "owner_is_controller", "true"}, of...)...)
			w.gauge("kube_pod_status_unschedulable", func(m, _ float64) float64 {
				if !missing(m, p) {
					return math.NaN() // It is exported only for pods that are.
				}
				return 1
			}, append([]string{"pod", pod}, of...)...)
			w.gauge("kube_pod_status_phase", func(m, _ float64) float64 { return boolean(!missing(m, p)) },
				append([]string{"pod", pod, "phase", "Running"}, of...)...)
		}
		named := append([]string{"job_name", job}, of...)
		w.gauge("kube_job_spec_parallelism", steady(workers), named...)
		w.gauge("kube_job_spec_completions", steady(workers), named...)
		w.gauge("kube_job_status_active", steady(workers), named...)
		w.gauge("kube_job_status_ready", func(m, _ float64) float64 {
			ready := 0.0
			for p := range workers {
				ready += boolean(!missing(m, p))
			}
			return ready
		}, named...)
	}
	for pool, replicas := range map[string]float64{"balloon-cpu": 120, "balloon-gpu": 16} {
		of := []string{"job", ksm, "namespace", "balloons", "deployment", pool}
		w.gauge("kube_deployment_spec_replicas", steady(replicas), of...)
		w.gauge("kube_deployment_status_replicas_available", func(m, n float64) float64 {
			taken := max(nodesLeave.share(m)*(1-nodesJoin.share(m-6)), .1*max(0, n))
			return math.Floor(replicas * (1 - .7*taken))
		}, of...)
	}
}

func scheduler(w *writer) {
	const gone = 12 // Minutes until all that was on the rack has a place again.
	waiting := func(m float64) float64 { return nodesLeave.share(m) * (1 - nodesJoin.share(m-gone)) }
	of := []string{"job", "kube-scheduler", "instance", "10.0.0.11:10259"}
	with := func(pairs ...string) []string { return append(pairs, of...) }
	for queue, q := range map[string]struct{ usual, peak float64 }{"active": {6, 90}, "backoff": {14, 310}, "unschedulable": {60, 1400}, "gated": {25, 0}} {
		w.gauge("scheduler_pending_pods", func(m, n float64) float64 {
			return math.Floor(max(0, q.usual*(1+.5*n)+q.peak*(1+.05*n)*waiting(m)))
		}, with("queue", queue)...)
	}
	for result, r := range map[string]struct{ usual, peak float64 }{"scheduled": {21, 60}, "unschedulable": {3, 45}, "error": {.02, .3}} {
		w.counter("scheduler_schedule_attempts_total", func(m, n float64) float64 {
			return r.usual*(1+.2*n) + r.peak*max(nodesLeave.heat(m), nodesJoin.heat(m-3))
		}, with("result", result, "profile", "default-scheduler")...)
	}
	for plugin, p := range map[string]struct{ usual, peak float64 }{"NodeResourcesFit": {48, 1320}, "NodeAffinity": {20, 410}, "TaintToleration": {9, 380}, "PodTopologySpread": {3, 0}, "VolumeBinding": {0, 0}} {
		w.gauge("scheduler_unschedulable_pods", func(m, n float64) float64 {
			return math.Floor(p.usual*(1+.4*n) + p.peak*waiting(m))
		}, with("plugin", plugin, "profile", "default-scheduler")...)
	}
	w.counter("scheduler_preemption_attempts_total", func(m, n float64) float64 { return .15 + .1*n + 9*nodesLeave.heat(m) }, of...)
}

// gpus are eight in each node that has some. A few have errors; one is lost.
func gpus(w *writer) {
	for i := range w.size.GPUNodes {
		host := fmt.Sprintf("gpu-%03d", i)
		for gpu := range gpusEach {
			gpuSeries(w, host, i, gpu)
		}
		of := []string{"job", ksm, "node", host, "resource", "nvidia_com_gpu", "unit", "integer"}
		w.rarely("kube_node_status_capacity", steady(gpusEach), of...)
		w.rarely("kube_node_status_allocatable", func(m, _ float64) float64 {
			return gpusEach - boolean(i == lostHost && m > lostAt) - boolean(i == 7)
		}, of...)
	}
}

const (
	gpusEach = 8
	// One GPU falls off its bus.
	lostHost, lostGPU, lostAt = 5, 3, 152.0
)

func gpuSeries(w *writer, host string, i, gpu int) {
	lost := i == lostHost && gpu == lostGPU
	namespace, taken := namespaces[(i/3)%5], i%23 != 7
	idle := taken && (i%41 == 6 || i == 2)
	of := []string{"job", "dcgm-exporter", "instance", host + ":9400", "Hostname", host, "gpu", strconv.Itoa(gpu), "modelName", "NVIDIA H100 80GB HBM3", "UUID", fmt.Sprintf("GPU-%08x-%04x", 0x1d3c7a51+i*2654435, gpu)}
	used := of
	if taken {
		used = append([]string{"namespace", namespace, "pod", fmt.Sprintf("train-%02d-%d", i/3, i%3)}, of...)
	}
	busy := func(m, n float64) float64 {
		switch {
		case !taken, idle, lost && m > lostAt, i%3 == 1 && nodesLeave.in(m-4):
			return 0
		}
		return math.Floor(min(100, max(0, 93+7*n-float64(i%7)*3)))
	}
	w.gauge("DCGM_FI_DEV_GPU_UTIL", busy, used...)
	w.gauge("DCGM_FI_DEV_GPU_TEMP", func(m, n float64) float64 { return math.Floor(33 + .38*busy(m, n) + float64((i*7+gpu)%9)) }, used...)
	w.gauge("DCGM_FI_DEV_POWER_USAGE", func(m, n float64) float64 { return 74 + 5.9*busy(m, n) + 6*n }, used...)

	xid, at := 0.0, lostAt
	switch {
	case lost:
		xid = 79
	case i == 1 && gpu == 6:
		xid, at = 94, 61
	case i == 3 && gpu == 0:
		xid, at = 63, -60
	case i%97 == 6 && gpu == 2:
		xid, at = 31, 40+float64(i%60)
	}
	w.gauge("DCGM_FI_DEV_XID_ERRORS", func(m, _ float64) float64 { return xid * boolean(m >= at) }, used...)
	if xid != 0 {
		// It counts those of the five minutes before.
		w.gauge("DCGM_EXP_XID_ERRORS_COUNT", func(m, _ float64) float64 { return boolean(m >= at && m < at+5) },
			append([]string{"xid", fmt.Sprint(xid)}, used...)...)
	}
	double, single := boolean(i == 1 && gpu == 6), boolean((i*8+gpu)%61 == 6 || i == 3 && gpu == 0)
	w.gauge("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", func(m, _ float64) float64 { return double * (boolean(m >= 61) + boolean(m >= 64)) }, used...)
	errors := 0.0
	w.gauge("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", func(m, n float64) float64 {
		errors += math.Floor(single * 4 * max(0, n-.62+.7*boolean(i == 3)*boolean(m > 100 && m < 130)))
		return errors
	}, used...)
	w.gauge("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", func(m, _ float64) float64 {
		return boolean(i == 3 && gpu == 0) + double*boolean(m >= 66) + 2*boolean(i == 7 && gpu == 1)
	}, used...)
	w.gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", steady(boolean(i == 7 && gpu == 1)), used...)
}

// traffic is what iptables rules and cAdvisor count.
func traffic(w *writer) {
	for i := range w.size.TrafficNodes {
		node := nodeName(i)
		for t, namespace := range namespaces {
			team := []string{"research", "research", "research", "language", "evaluation", "data", "robotics", "language"}[t]
			for direction, d := range map[string]float64{"internet-out": .4, "internet-in": 3.5, "cluster-out": 21, "cluster-in": 21} {
				w.counter("iptables_bytes_total", func(m, n float64) float64 {
					rate := d * 1e6 / float64(1+(i+t)%5) * max(0, 1+.6*n)
					if namespace == "data" && direction == "internet-out" && i < 4 && m > 100 && m < 135 {
						rate += 190e6 // Somebody copies a data set out.
					}
					return rate
				}, "job", "iptables-exporter", "instance", node, "namespace", namespace, "team", team, "traffic", direction)
			}
		}
	}
	for t, namespace := range append([]string{"monitoring", "kube-system", "ingress"}, namespaces...) {
		for p := range 12 {
			of := []string{"job", "kubelet", "metrics_path", "/metrics/cadvisor", "namespace", namespace, "pod", fmt.Sprintf("%s-%d", namespace, p), "interface", "eth0"}
			w.rarely("kube_pod_info", steady(1), "job", ksm, "namespace", namespace, "pod", fmt.Sprintf("%s-%d", namespace, p), "host_network", strconv.FormatBool(namespace == "kube-system" && p < 4))
			size := 1e6 * float64(4+(t*5)%11) * float64(1+p%4)
			w.counter("container_network_receive_bytes_total", around(size, .4), of...)
			w.counter("container_network_transmit_bytes_total", around(.7*size, .4), of...)
			w.counter("container_network_receive_packets_dropped_total", func(m, n float64) float64 {
				return boolean(t%4 == 0) * (max(0, .6*n) + 40*nodesJoin.heat(m)*boolean(namespace == "kube-system"))
			}, of...)
		}
	}
}
