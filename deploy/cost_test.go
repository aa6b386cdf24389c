// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// The cluster here is a hundredth of one with 7,500 nodes, and so is the number of
// samples that a query may hold: Prometheus allows 50 million.
const (
	nodes      = 75
	maxSamples = 50_000_000 / 100
	// A panel is not alone on the server: it takes half of that at most.
	share = 2
)

type point struct {
	t int64
	f float64
}

func (p point) T() int64                    { return p.t }
func (point) ST() int64                     { return 0 }
func (p point) F() float64                  { return p.f }
func (point) H() *histogram.Histogram       { return nil }
func (point) FH() *histogram.FloatHistogram { return nil }
func (point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample         { return p }

// cluster holds series by their name. All gauges have the same samples, one every half
// minute, and so have all counters, and all that are nought.
type cluster struct {
	to                   time.Time
	gauge, counter, zero []chunks.Sample
	series               map[string][]storage.Series
}

// add makes a series of name and pairs of labels.
func (c *cluster) add(name string, pairs ...string) {
	samples := c.gauge
	if strings.HasSuffix(name, "_total") || strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_sum") || strings.HasSuffix(name, "_count") {
		samples = c.counter
	}
	c.addSamples(samples, name, pairs...)
}

func (c *cluster) addSamples(samples []chunks.Sample, name string, pairs ...string) {
	b := labels.NewScratchBuilder(1 + len(pairs)/2)
	b.Add(labels.MetricName, name)
	for i := 0; i < len(pairs); i += 2 {
		b.Add(pairs[i], pairs[i+1])
	}
	b.Sort()
	c.series[name] = append(c.series[name], storage.NewListSeries(b.Labels(), samples))
}

func (c *cluster) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		var found []storage.Series
	next:
		for _, s := range c.series[name(matchers)] {
			for _, m := range matchers {
				if !m.Matches(s.Labels().Get(m.Name)) {
					continue next
				}
			}
			found = append(found, s)
		}
		return &set{series: found}
	}}, nil
}

type set struct {
	series []storage.Series
	at     int
}

func (s *set) Next() bool                      { s.at++; return s.at <= len(s.series) }
func (s *set) At() storage.Series              { return s.series[s.at-1] }
func (*set) Err() error                        { return nil }
func (*set) Warnings() annotations.Annotations { return nil }

// newCluster has what exporters of a cluster have: 30 pods of their own network and 8 of
// the host's on each node, with the ten interfaces that one sees there; 20 teams whose
// traffic is counted by direction; 8 GPUs a node; a tenth of the pods are those of gangs.
// API servers do not grow by nodes: a hundredth of the series of five busy ones.
func newCluster(from, to time.Time) *cluster {
	c := &cluster{to: to, series: map[string][]storage.Series{}}
	for at := from; !at.After(to); at = at.Add(30 * time.Second) {
		c.gauge = append(c.gauge, point{at.UnixMilli(), 1})
		c.zero = append(c.zero, point{at.UnixMilli(), 0})
		c.counter = append(c.counter, point{at.UnixMilli(), at.Sub(from).Seconds()})
	}
	itoa := strconv.Itoa
	pod := func(node, namespace, name string, host bool) {
		c.add("kube_pod_info", "job", "kube-state-metrics", "namespace", namespace, "pod", name, "node", node, "host_network", strconv.FormatBool(host))
		c.add("kube_pod_status_phase", "job", "kube-state-metrics", "namespace", namespace, "pod", name, "phase", "Running")
		for i := range 2 {
			c.add("kube_pod_container_status_restarts_total", "job", "kube-state-metrics", "namespace", namespace, "pod", name, "uid", name, "container", itoa(i))
		}
		for i := range 10 {
			if i > 0 && !host {
				break
			}
			for _, metric := range []string{"container_network_receive_bytes_total", "container_network_transmit_bytes_total", "container_network_receive_packets_dropped_total"} {
				c.add(metric, "job", "kubelet", "metrics_path", "/metrics/cadvisor", "instance", node, "namespace", namespace, "pod", name, "interface", "eth"+itoa(i))
			}
		}
	}
	c.add("up", "job", "kube-state-metrics", "instance", "k")
	for n := range nodes {
		node := "n" + itoa(n)
		for p := range 30 {
			name := "p" + itoa(n) + "-" + itoa(p)
			pod(node, "ns"+itoa(p%20), name, false)
			if p%10 == 0 {
				c.add("kube_pod_owner", "job", "kube-state-metrics", "namespace", "ns"+itoa(p%20), "pod", name, "owner_kind", "Job", "owner_name", "j"+itoa(n/4), "owner_is_controller", "true")
			}
		}
		for p := range 8 {
			pod(node, "kube-system", "h"+itoa(n)+"-"+itoa(p), true)
		}
		for team := range 20 {
			for _, direction := range []string{"internet-out", "internet-in", "zone-out", "zone-in"} {
				c.add("iptables_bytes_total", "job", "iptables-exporter", "instance", node, "team", "t"+itoa(team), "namespace", "ns"+itoa(team), "traffic", direction)
			}
		}
		for g := range 8 {
			for _, field := range []string{"GPU_UTIL", "GPU_TEMP", "POWER_USAGE", "XID_ERRORS", "ECC_SBE_VOL_TOTAL", "ECC_DBE_VOL_TOTAL", "ROW_REMAP_FAILURE", "UNCORRECTABLE_REMAPPED_ROWS"} {
				samples := c.gauge
				switch errs := strings.HasSuffix(field, "TOTAL"); {
				case n == 0 && errs:
					samples = c.counter
				case errs, n == 0 && field == "GPU_UTIL": // Without one; taken, and not used.
					samples = c.zero
				}
				c.addSamples(samples, "DCGM_FI_DEV_"+field, "job", "dcgm-exporter", "Hostname", node, "gpu", itoa(g), "UUID", node+"-"+itoa(g), "namespace", "ns"+itoa(g), "pod", "p"+itoa(n)+"-"+itoa(g))
			}
		}
		for _, condition := range []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "KernelDeadlock", "ReadonlyFilesystem", "FrequentKubeletRestart", "FrequentContainerdRestart", "CorruptDockerOverlay2"} {
			for _, status := range []string{"true", "false", "unknown"} {
				c.add("kube_node_status_condition", "job", "kube-state-metrics", "node", node, "condition", condition, "status", status)
			}
		}
		c.add("kube_node_info", "job", "kube-state-metrics", "node", node, "kubelet_version", "v1", "internal_ip", node)
		c.add("up", "job", "kubelet", "metrics_path", "/metrics/cadvisor", "instance", node)
		c.add("up", "job", "node-exporter", "instance", node)
		for _, operation := range []string{"run_podsandbox", "start_container", "list_containers"} {
			for _, metric := range []string{"kubelet_runtime_operations_total", "kubelet_runtime_operations_errors_total"} {
				c.add(metric, "job", "kubelet", "metrics_path", "/metrics", "instance", node, "operation_type", operation)
			}
		}
		c.add("kube_node_created", "job", "kube-state-metrics", "node", node)
		c.addSamples(c.zero, "kube_node_spec_unschedulable", "job", "kube-state-metrics", "node", node)
		for _, key := range []string{"gpu", "pool", "cordoned", "team", "preflight"} {
			c.add("kube_node_spec_taint", "job", "kube-state-metrics", "node", node, "key", key, "value", "t"+itoa(n%20), "effect", "NoSchedule")
		}
		for _, metric := range []string{"kube_node_status_capacity", "kube_node_status_allocatable"} {
			c.add(metric, "job", "kube-state-metrics", "node", node, "resource", "nvidia_com_gpu")
			c.add(metric, "job", "kube-state-metrics", "node", node, "resource", "memory")
		}
		for j := range 6 {
			for _, metric := range []string{"scrape_samples_scraped", "scrape_samples_post_metric_relabeling", "scrape_series_added"} {
				c.add(metric, "job", "daemon"+itoa(j), "instance", node)
			}
		}
	}
	for j := range 100 {
		c.add("kube_job_spec_parallelism", "job", "kube-state-metrics", "namespace", "ns0", "job_name", "j"+itoa(j))
		c.add("kube_job_spec_completions", "job", "kube-state-metrics", "namespace", "ns0", "job_name", "j"+itoa(j))
		c.add("kube_pod_status_unschedulable", "job", "kube-state-metrics", "namespace", "ns0", "pod", "p"+itoa(j%nodes)+"-0", "uid", itoa(j))
	}
	for i := range 100 {
		a := []string{"job", "apiserver", "instance", itoa(i % 5), "resource", "r" + itoa(i%50), "verb", []string{"LIST", "GET", "WATCH", "PUT"}[i%4]}
		c.add("apiserver_request_total", append(a, "code", []string{"200", "429", "500"}[i%3], "scope", itoa(i))...)
		c.add("apiserver_longrunning_requests", append(a, "scope", itoa(i))...)
		c.add("apiserver_request_sli_duration_seconds_sum", append(a, "scope", itoa(i))...)
		c.add("apiserver_response_sizes_sum", append(a, "scope", itoa(i))...)
		c.add("apiserver_watch_events_sizes_sum", a...)
		c.add("apiserver_watch_events_sizes_count", a...)
		c.add("etcd_request_duration_seconds_count", append(a, "operation", "list", "type", itoa(i))...)
		for bound := range 24 {
			c.add("apiserver_request_sli_duration_seconds_bucket", append(a, "scope", itoa(i), "le", itoa(bound))...)
		}
	}
	c.addControlPlane()
	return c
}

// addControlPlane adds what does not grow with the nodes.
func (c *cluster) addControlPlane() {
	of := func(job, instance string, names ...string) {
		for _, name := range append(names, "up", "process_start_time_seconds", "process_resident_memory_bytes", "process_cpu_seconds_total", "go_goroutines") {
			c.add(name, "job", job, "instance", instance)
		}
	}
	for i := range 5 {
		instance := strconv.Itoa(i)
		of("apiserver", instance)
		a := []string{"job", "apiserver", "instance", instance}
		c.add("apiserver_request_total", append(a, "verb", "POST", "resource", "pods", "subresource", "eviction", "code", "429")...)
		c.add("apiserver_current_inflight_requests", append(a, "request_kind", "mutating")...)
		c.add("apiserver_resource_objects", append(a, "group", "", "resource", "pods")...)
		flow := slices.Concat(a, []string{"flow_schema", "service-accounts", "priority_level", "workload-low"})
		c.add("apiserver_flowcontrol_current_inqueue_requests", flow...)
		c.add("apiserver_flowcontrol_rejected_requests_total", append(flow, "reason", "queue-full")...)

		of("etcd", instance, "etcd_server_has_leader", "etcd_server_leader_changes_seen_total", "etcd_server_quota_backend_bytes",
			"etcd_mvcc_db_total_size_in_bytes", "etcd_mvcc_db_total_size_in_use_in_bytes", "etcd_server_slow_apply_total",
			"etcd_server_proposals_pending", "etcd_server_proposals_failed_total",
			"etcd_network_client_grpc_sent_bytes_total", "etcd_network_client_grpc_received_bytes_total")
		for _, le := range []string{"0.1", "+Inf"} {
			c.add("etcd_disk_wal_fsync_duration_seconds_bucket", "job", "etcd", "instance", instance, "le", le)
			c.add("etcd_disk_backend_commit_duration_seconds_bucket", "job", "etcd", "instance", instance, "le", le)
			c.add("etcd_network_peer_round_trip_time_seconds_bucket", "job", "etcd", "instance", instance, "To", "other", "le", le)
		}
	}
	c.add("DCGM_EXP_XID_ERRORS_COUNT", "job", "dcgm-exporter", "Hostname", "n0", "gpu", "0", "UUID", "n0-0", "xid", "79")
	scheduler := []string{"job", "kube-scheduler", "instance", "0"}
	c.add("scheduler_pending_pods", append(scheduler, "queue", "active")...)
	c.add("scheduler_schedule_attempts_total", append(scheduler, "result", "scheduled")...)
	c.add("scheduler_unschedulable_pods", append(scheduler, "plugin", "NodeAffinity")...)
	c.add("scheduler_preemption_attempts_total", scheduler...)
	for _, name := range []string{"kube_deployment_spec_replicas", "kube_deployment_status_replicas_available"} {
		c.add(name, "job", "kube-state-metrics", "namespace", "ns0", "deployment", "balloon-cpu")
	}
}

func engine() *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{MaxSamples: maxSamples / share, Timeout: time.Hour})
}

// record adds the series that the recording rules give, in their order.
func (c *cluster) record(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(rules)
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct {
				Record, Expr string
				Labels       map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			q, err := engine().NewInstantQuery(context.Background(), c, nil, r.Expr, c.to)
			require.NoError(t, err, r.Expr)
			result := q.Exec(context.Background())
			require.NoError(t, result.Err, "%s", r.Expr)
			vector, err := result.Vector()
			require.NoError(t, err)
			for _, s := range vector {
				if r.Record == "" {
					continue
				}
				var pairs []string
				s.Metric.Range(func(l labels.Label) { pairs = append(pairs, l.Name, l.Value) })
				for name, value := range r.Labels {
					pairs = append(pairs, name, value)
				}
				c.add(r.Record, pairs...)
			}
			q.Close()
		}
	}
}

func panels(t *testing.T, rateInterval string) []Panel {
	t.Helper()
	all, err := Panels(dashboards, strings.NewReplacer("$__rate_interval", rateInterval,
		"$cluster", "", "$direction", "internet-out", "$team", "t0", "$namespace", "ns0", "$node", "n0", "$instance", ".*", "$pod", ".*"))
	require.NoError(t, err)
	return all
}

// ask evaluates a query over a time range that ends with the data, and returns the
// labels of the series.
func (c *cluster) ask(q Panel, back, step time.Duration) ([]labels.Labels, error) {
	evaluate := func() (promql.Query, error) {
		if q.Instant {
			return engine().NewInstantQuery(context.Background(), c, nil, q.Expr, c.to)
		}
		return engine().NewRangeQuery(context.Background(), c, nil, q.Expr, c.to.Add(-back), c.to, step)
	}
	query, err := evaluate()
	if err != nil {
		return nil, err
	}
	defer query.Close()
	result := query.Exec(context.Background())
	var series []labels.Labels
	switch v := result.Value.(type) {
	case promql.Matrix:
		for _, s := range v {
			series = append(series, s.Metric)
		}
	case promql.Vector:
		for _, s := range v {
			series = append(series, s.Metric)
		}
	}
	return series, result.Err
}

// ofTheBinaries are the dashboards that show what is asked of the binaries in test/.
var ofTheBinaries = regexp.MustCompile(`^promguard-(proxy|refusals|queries|server|drop-rules)\.json`)

// What Grafana asks for with the range of the dashboards, and over a week. A panel that
// reads nothing would cost nothing.
func TestEveryPanelIsAnsweredAndAffordableOnThousandsOfNodes(t *testing.T) {
	to := time.Unix(1_800_000_000, 0)
	for _, tc := range []struct {
		back, step   time.Duration
		rateInterval string
	}{
		{3 * time.Hour, 30 * time.Second, "2m"},
		{7 * 24 * time.Hour, 10 * time.Minute, "10m30s"},
	} {
		t.Run(tc.back.String(), func(t *testing.T) {
			t.Parallel()
			c := newCluster(to.Add(-tc.back-24*time.Hour), to)
			c.record(t)
			for _, q := range panels(t, tc.rateInterval) {
				series, err := c.ask(q, tc.back, tc.step)
				require.NoError(t, err, "%s: %s", q.Place, q.Expr)
				require.NoError(t, q.CheckLegends(series), q.Place)
				require.True(t, len(series) > 0 || ofTheBinaries.MatchString(q.Place), "%s: nothing is read by %s", q.Place, q.Expr)
			}
			// What the rules record is refused where a panel reads it itself.
			for _, expr := range []string{
				`topk(20, sum by (namespace) (rate(container_network_receive_bytes_total[2m])))`,
				`sum by (traffic) (rate(iptables_bytes_total[2m]))`,
			} {
				_, err := c.ask(Panel{Expr: expr}, tc.back, tc.step)
				require.ErrorAs(t, err, new(promql.ErrTooManySamples), expr)
			}
		})
	}
}
