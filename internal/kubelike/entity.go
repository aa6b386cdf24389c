// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package kubelike

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// node is a machine of the cluster.
type node struct {
	name string
	ip   string
}

// pod is a place on a node where pods of one workload follow one another.
type pod struct {
	node       *node
	namespace  string
	app        string
	hash       uint64
	containers int
	life       time.Duration // how long each pod lives; 0: for ever
	phase      time.Duration // age of the first pod when the cluster starts
}

var namespaces = []string{
	"argocd", "billing", "cert-manager", "checkout", "data-platform", "edge", "fraud", "identity", "ingress-nginx",
	"inventory", "kube-system", "logistics", "mailer", "ml-serving", "monitoring", "orders", "payments", "search",
}

var apps = []string{"api", "cache", "consumer", "controller", "frontend", "gateway", "indexer", "ledger", "scheduler", "worker"}

func newNode(i int) *node {
	return &node{name: fmt.Sprintf("node-%04d", i), ip: fmt.Sprintf("10.%d.%d.%d", i>>16&0xff, i>>8&0xff, i&0xff)}
}

// newPod places the i-th pod of the cluster on a node. The first two pods of a
// node belong to DaemonSets and are never replaced; of the others, each place's
// pods live equally long, and places differ by up to a factor of three.
func newPod(n *node, i, onNode int, seed uint64, mean time.Duration) *pod {
	h := mix(seed, hashString("pod")+uint64(i))
	p := &pod{node: n, hash: h, containers: 1 + int(h%4/3)}
	if onNode < 2 {
		p.namespace, p.app = "kube-system", []string{"kube-proxy", "cilium"}[onNode]
		return p
	}
	p.namespace = namespaces[mix(h, 1)%uint64(len(namespaces))]
	p.app = apps[mix(h, 2)%uint64(len(apps))]
	if mean > 0 {
		// ln 3 is the mean of 1/x for x from 0.5 to 1.5: it keeps the rate.
		p.life = max(time.Millisecond, time.Duration(float64(mean)*math.Log(3)*(0.5+unit(mix(h, 3)))))
		p.phase = time.Duration(float64(p.life) * unit(mix(h, 4)))
	}
	return p
}

// generation counts the pods that were here before the one at a time.
func (p *pod) generation(at time.Duration) int {
	if p == nil || p.life == 0 {
		return 0
	}
	return int((at + p.phase) / p.life)
}

// born is when a generation began, since the cluster's start; negative where
// it is older than the cluster's model.
func (p *pod) born(generation int, hash uint64) time.Duration {
	if p == nil || p.life == 0 {
		return -time.Duration(unit(hash) * float64(30*24*time.Hour)).Truncate(time.Second)
	}
	return time.Duration(generation)*p.life - p.phase
}

// identity is what tells the series of an entity from those of the others: the
// labels that all of them carry, and those that only some families carry.
type identity struct {
	base  []labels.Label
	facts map[string]string
}

// podIdentity is the identity of a pod, or of the container-th one in it, as
// kube-state-metrics sees it.
func (p *pod) podIdentity(generation, container int) identity {
	h := mix(p.hash, uint64(generation))
	ip := fmt.Sprintf("10.%d.%d.%d", 128+h>>8&0x3f, h>>16&0xff, h>>24&0xff)
	owner := p.app + "-" + letters(p.hash, 10)
	id := identity{
		base: []labels.Label{{Name: "namespace", Value: p.namespace}, {Name: "pod", Value: p.name(generation)}, {Name: "uid", Value: p.uid(generation)}},
		facts: map[string]string{
			"node": p.node.name, "host_ip": p.node.ip, "pod_ip": ip, "ip": ip, "created_by_name": owner, "owner_name": owner,
		},
	}
	if container < 0 {
		return id
	}
	id.base = append(id.base, labels.Label{Name: "container", Value: p.container(container)})
	id.facts["image"] = p.image(container)
	id.facts["image_id"] = "sha256:" + hexadecimal(mix(p.hash, uint64(container)), 64)
	id.facts["container_id"] = "containerd://" + p.containerID(generation, container)
	return id
}

// cgroupIdentity is the identity of a pod's cgroup (container -2), sandbox (-1)
// or container, as cAdvisor sees it.
func (p *pod) cgroupIdentity(generation, container int) identity {
	path := "/kubepods/burstable/pod" + p.uid(generation)
	var name, image, containerName string
	if container >= -1 {
		name = p.containerID(generation, container)
		path += "/" + name
		image = "registry.k8s.io/pause:3.10.1"
	}
	if container >= 0 {
		image, containerName = p.image(container), p.container(container)
	}
	return cgroup(containerName, path, image, name, p.namespace, p.name(generation))
}

func cgroup(container, id, image, name, namespace, pod string) identity {
	return identity{base: []labels.Label{
		{Name: "container", Value: container},
		{Name: "id", Value: id},
		{Name: "image", Value: image},
		{Name: "name", Value: name},
		{Name: "namespace", Value: namespace},
		{Name: "pod", Value: pod},
	}}
}

func (p *pod) name(generation int) string {
	if p.life == 0 {
		return p.app + "-" + letters(p.hash, 5)
	}
	return p.app + "-" + letters(p.hash, 10) + "-" + letters(mix(p.hash, uint64(generation)), 5)
}

func (p *pod) uid(generation int) string {
	x := hexadecimal(mix(p.hash, uint64(generation)+1<<32), 32)
	return x[:8] + "-" + x[8:12] + "-4" + x[13:16] + "-a" + x[17:20] + "-" + x[20:]
}

func (p *pod) container(i int) string {
	if i == 0 {
		return p.app
	}
	return "istio-proxy"
}

func (p *pod) image(container int) string {
	if container > 0 {
		return "docker.io/istio/proxyv2:1.27.3"
	}
	return fmt.Sprintf("registry.example.com/%s/%s:v1.%d.%d", p.namespace, p.app, p.hash>>8&0x3f, p.hash>>16&0xf)
}

func (p *pod) containerID(generation, container int) string {
	return hexadecimal(mix(p.hash, uint64(generation)<<8+uint64(container+2)), 64)
}

// letters are n characters of the alphabet that Kubernetes makes names from.
func letters(h uint64, n int) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[mix(h, uint64(i))%uint64(len(alphabet))]
	}
	return string(b)
}

// hexadecimal is a string of n hexadecimal digits.
func hexadecimal(h uint64, n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%016x", mix(h, uint64(i)))
	}
	return b.String()[:n]
}
