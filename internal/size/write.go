// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package size

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/cli"
)

// Write writes the plan as text, json, or patch for kustomize.
func (p *Plan) Write(w io.Writer, output string) error {
	switch output {
	case cli.JSON:
		return cli.WriteJSON(w, p)
	case "patch":
		_, err := fmt.Fprintf(w, patch, p.Shards, p.Replicas, p.retention(), p.MemoryGiB, p.MemoryGiB, p.DiskGiB)
		if err == nil && p.Shards > 1 {
			_, err = fmt.Fprintf(w, shardsPatch, p.endpoints(), p.CompactorGiB)
		}
		return err
	}
	return p.writeText(w)
}

func (p *Plan) retention() string {
	return model.Duration(time.Duration(p.RetentionSeconds) * time.Second).String()
}

// patch is for kustomize, of the operator's object of kube-prometheus. Lists of it would
// replace those of the object, so flags are not in it.
const patch = `apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata:
  name: k8s
  namespace: monitoring
spec:
  shards: %d
  replicas: %d
  retention: %s
  resources:
    requests:
      memory: %.0fGi
    limits:
      memory: %.0fGi
  storage:
    volumeClaimTemplate:
      spec:
        resources:
          requests:
            storage: %.0fGi
`

// shardsPatch is of what else depends on the number of shards and their size.
const shardsPatch = `---
apiVersion: v1
kind: ConfigMap
metadata:
  name: thanos-endpoints
  namespace: monitoring
data:
  endpoints.yml: |
    endpoints:
%s---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: thanos-compact
  namespace: monitoring
spec:
  volumeClaimTemplates:
    - metadata:
        name: data
      spec:
        accessModes: [ReadWriteOnce]
        resources:
          requests:
            storage: %.0fGi
`

// endpoints lists what Thanos Query asks, as deploy/kubernetes/sharded does: the pods of
// all shards, and two of the store gateway and of the Ruler.
func (p *Plan) endpoints() string {
	var b strings.Builder
	pods := func(set, service string, n int) {
		for i := range n {
			fmt.Fprintf(&b, "      - {address: %s-%d.%s:10901, strict: true}\n", set, i, service)
		}
	}
	for shard := range p.Shards {
		set := "prometheus-k8s"
		if shard > 0 { // As the operator names them.
			set = fmt.Sprintf("%s-shard-%d", set, shard)
		}
		pods(set, "prometheus-operated", p.Replicas)
	}
	pods("thanos-store", "thanos-store", 2)
	pods("thanos-ruler-k8s", "thanos-ruler-operated", 2)
	return b.String()
}

func (p *Plan) writeText(w io.Writer) error {
	fmt.Fprintf(w, "Of %s:\n\n", p.Source)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "TARGETS\tSERIES\tDROPPED\tSAMPLES/S\t  JOB")
	row := func(targets, series, dropped, samples float64, job string) {
		fmt.Fprintf(t, "%.0f\t%.0f\t%.0f\t%.0f\t  %s\n", targets, series, dropped, samples, job)
	}
	targets := 0.0
	for _, part := range p.Parts {
		row(part.Targets, part.Series, part.Dropped, part.Series/part.Interval, part.Job)
		targets += part.Targets
	}
	row(targets, p.Series, p.Dropped, p.SamplesPerSecond, "all")
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	line("series in memory", "%.0f", p.HeadSeries)
	line("shards x replicas", "%d x %d", p.Shards, p.Replicas)
	line("memory limit of each", "%.0f GiB, for %.1f GiB of heap", p.MemoryGiB, p.HeapGiB)
	line("disk of each", "%.0f GiB, for %s", p.DiskGiB, p.retention())
	if p.Shards > 1 {
		line("bucket", "%.0f GiB, %.1f more each day", p.BucketGiB, p.BucketGiBPerDay)
		line("disk of the compactor", "%.0f GiB", p.CompactorGiB)
	}
	line("--guard.max-head-series", "%.0f", p.MaxHeadSeries)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if p.Shards > 1 {
		fmt.Fprintf(w, "The largest shard may have %.0f %% more than the mean, as addresses share targets by chance.\n", 100*p.Unevenness)
	}
	for _, job := range slices.Sorted(maps.Keys(p.Split)) {
		fmt.Fprintf(w, "Split each target of %s into %.0f: one alone takes more than a fiftieth of a shard.\n", job, p.Split[job])
	}
	for _, n := range p.Notes {
		fmt.Fprintln(w, n)
	}
	return nil
}
