// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package kubelike

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

const (
	podsPerNode = 30
	// controlPlaneShare is the most that API servers and etcd may take of a
	// cluster's series.
	controlPlaneShare = 0.3
	maxAPIServers     = 3
)

// Config sizes and seeds a Cluster.
type Config struct {
	// Series is how many series exist at any time, 1 or more. It is met
	// exactly.
	Series int
	// Churn is the share of the replaceable pods that is replaced per hour; 0
	// and more. 0 replaces none; 2 replaces each about every half hour.
	Churn float64
	// Seed picks the names, rates and times; the same Config always gives the
	// same cluster.
	Seed uint64
	// Start is the time that the model's times count from.
	Start time.Time
}

// Cluster is a modelled cluster. It does not change and may be used
// concurrently.
type Cluster struct {
	cfg     Config
	targets []*Target
}

// Target is one scrape target.
type Target struct {
	// Pool is the name of the scrape pool that the target belongs to.
	Pool string
	// Labels are the target's labels, job and instance among them.
	Labels labels.Labels
	// HonorLabels is the pool's honor_labels: where a series and the target
	// have the same label, the series' is kept.
	HonorLabels bool

	cluster  *Cluster
	families []family
	groups   []*Group
}

// New models a cluster. It returns an error if cfg is out of range.
func New(cfg Config) (*Cluster, error) {
	if cfg.Series < 1 {
		return nil, fmt.Errorf("a cluster needs at least 1 series, got %d", cfg.Series)
	}
	if !(cfg.Churn >= 0 && cfg.Churn <= 3600) {
		return nil, fmt.Errorf("churn must be from 0 to 3600 per hour, got %v", cfg.Churn)
	}
	if cfg.Start.IsZero() {
		return nil, errors.New("a cluster needs a start time")
	}
	b := &builder{c: &Cluster{cfg: cfg}, left: cfg.Series, layouts: newLayouts()}
	b.controlPlane()
	b.ksm = b.target("kube-state-metrics", ksmFamilies, true, "namespace", "monitoring", "service", "kube-state-metrics", "endpoint", "http-main", "instance", "10.200.0.3:8443")
	b.nodes()
	b.configMaps()
	return b.c, nil
}

// Targets are the cluster's scrape targets. They must not be changed.
func (c *Cluster) Targets() []*Target { return c.targets }

// layouts are the lists of series per kind of entity.
type layouts struct {
	etcd, nodeExporter, kubelet               *layout
	node, pod, container, configMap           *layout
	root, slice, podCgroup, sandbox, workload *layout
}

func newLayouts() layouts {
	return layouts{
		etcd:         newLayout(etcdFamilies, scopeTarget),
		nodeExporter: newLayout(nodeExporterFamilies, scopeTarget),
		kubelet:      newLayout(kubeletFamilies, scopeTarget),
		node:         newLayout(ksmFamilies, scopeNode),
		pod:          newLayout(ksmFamilies, scopePod),
		container:    newLayout(ksmFamilies, scopeContainer),
		configMap:    newLayout(ksmFamilies, scopeConfigMap),
		root:         newLayout(cadvisorFamilies, scopeRoot),
		slice:        newLayout(cadvisorFamilies, scopeSlice),
		podCgroup:    newLayout(cadvisorFamilies, scopePodCgroup),
		sandbox:      newLayout(cadvisorFamilies, scopeSandbox),
		workload:     newLayout(cadvisorFamilies, scopeWorkload),
	}
}

// builder spends a number of series on the parts of a cluster, in the order in
// which they are asked for.
type builder struct {
	c       *Cluster
	left    int
	layouts layouts
	ksm     *Target
	pods    int
}

// target adds a target with the given labels, in pairs, besides job.
func (b *builder) target(pool string, families []family, honor bool, pairs ...string) *Target {
	job := pool
	if pool == "cadvisor" {
		job = "kubelet" // Two paths of one process.
	}
	t := &Target{
		Pool: pool, Labels: labels.FromStrings(append(pairs, "job", job)...), HonorLabels: honor,
		cluster: b.c, families: families,
	}
	b.c.targets = append(b.c.targets, t)
	return t
}

// add adds an entity to a target.
func (b *builder) add(t *Target, l *layout, p *pod, identify func(generation int) identity) {
	g := &Group{target: t, layout: l, pod: p, identify: identify, hash: mix(b.c.cfg.Seed, mix(hashString(t.Pool+t.Labels.Get("instance")), uint64(len(t.groups))))}
	t.groups = append(t.groups, g)
	b.left -= g.Len()
}

// fixed is an identity that never changes.
func fixed(pairs ...string) func(int) identity {
	id := identity{facts: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		id.base = append(id.base, labels.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return func(int) identity { return id }
}

// controlPlane adds etcd and as many API servers, knowing as many resources, as
// their share allows.
func (b *builder) controlPlane() {
	budget := int(float64(b.left)*controlPlaneShare) - len(b.layouts.etcd.templates)
	var families []family
	var l *layout
	for known := 1; known <= len(resources); known++ {
		f := apiserverFamilies(known)
		next := newLayout(f, scopeTarget)
		if len(next.templates) > budget {
			break
		}
		families, l = f, next
	}
	if l == nil {
		return
	}
	for i := range min(maxAPIServers, budget/len(l.templates)) {
		t := b.target("apiserver", families, false, "namespace", "default", "service", "kubernetes", "endpoint", "https", "instance", fmt.Sprintf("10.200.1.%d:6443", i))
		b.add(t, l, nil, fixed())
	}
	t := b.target("etcd", etcdFamilies, false, "namespace", "kube-system", "service", "etcd", "endpoint", "http-metrics", "instance", "10.200.1.0:2381")
	b.add(t, b.layouts.etcd, nil, fixed())
}

// nodes adds nodes and their pods until the next one would be one too many.
func (b *builder) nodes() {
	ls := &b.layouts
	size := len(ls.nodeExporter.templates) + len(ls.kubelet.templates) + len(ls.node.templates) + len(ls.root.templates) + len(cgroupSlices)*len(ls.slice.templates)
	for i := 0; b.left >= size; i++ {
		n := newNode(i)
		b.add(b.target("node-exporter", nodeExporterFamilies, false, "namespace", "monitoring", "service", "node-exporter", "endpoint", "https", "instance", n.name), ls.nodeExporter, nil, fixed())
		kubelet := []string{"namespace", "kube-system", "service", "kubelet", "endpoint", "https-metrics", "node", n.name, "instance", n.ip + ":10250"}
		id := fixed()(0)
		id.facts["node"] = n.name
		b.add(b.target("kubelet", kubeletFamilies, true, append(kubelet, "metrics_path", "/metrics")...), ls.kubelet, nil, func(int) identity { return id })
		b.add(b.ksm, ls.node, nil, fixed("node", n.name))
		cadvisor := b.target("cadvisor", cadvisorFamilies, true, append(kubelet, "metrics_path", "/metrics/cadvisor")...)
		b.addCgroups(cadvisor)
		for j := range podsPerNode {
			if !b.addPod(cadvisor, n, j) {
				return
			}
		}
	}
}

// cgroupSlices are the cgroups between the root and the pods, and beside them.
var cgroupSlices = []string{"/kubepods", "/kubepods/besteffort", "/kubepods/burstable", "/system.slice", "/system.slice/containerd.service", "/system.slice/kubelet.service"}

func (b *builder) addCgroups(cadvisor *Target) {
	root := cgroup("", "/", "", "", "", "")
	b.add(cadvisor, b.layouts.root, nil, func(int) identity { return root })
	for _, path := range cgroupSlices {
		id := cgroup("", path, "", "", "", "")
		b.add(cadvisor, b.layouts.slice, nil, func(int) identity { return id })
	}
}

// addPod adds a pod unless it would take more series than are left.
func (b *builder) addPod(cadvisor *Target, n *node, onNode int) bool {
	var mean time.Duration
	if b.c.cfg.Churn > 0 {
		mean = time.Duration(float64(time.Hour) / b.c.cfg.Churn)
	}
	p := newPod(n, b.pods, onNode, b.c.cfg.Seed, mean)
	ls := &b.layouts
	size := len(ls.pod.templates) + len(ls.podCgroup.templates) + len(ls.sandbox.templates) + p.containers*(len(ls.container.templates)+len(ls.workload.templates))
	if b.left < size {
		return false
	}
	b.pods++
	b.add(b.ksm, ls.pod, p, func(g int) identity { return p.podIdentity(g, -1) })
	b.add(cadvisor, ls.podCgroup, p, func(g int) identity { return p.cgroupIdentity(g, -2) })
	b.add(cadvisor, ls.sandbox, p, func(g int) identity { return p.cgroupIdentity(g, -1) })
	for i := range p.containers {
		b.add(b.ksm, ls.container, p, func(g int) identity { return p.podIdentity(g, i) })
		b.add(cadvisor, ls.workload, p, func(g int) identity { return p.cgroupIdentity(g, i) })
	}
	return true
}

// configMaps spends what is left, so that the cluster has exactly the series
// that were asked for.
func (b *builder) configMaps() {
	for i := 0; b.left > 0; i++ {
		b.add(b.ksm, b.layouts.configMap, nil, fixed("namespace", namespaces[i%len(namespaces)], "configmap", fmt.Sprintf("settings-%d", i)))
	}
}
