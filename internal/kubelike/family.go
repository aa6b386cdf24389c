// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package kubelike

import (
	"math"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// scope says which entities of a target expose a family. A family may be
// exposed by several.
type scope uint

const (
	scopeTarget    scope = 1 << iota // once per target
	scopeNode                        // kube-state-metrics: once per node
	scopePod                         // kube-state-metrics: once per pod
	scopeContainer                   // kube-state-metrics: once per container
	scopeConfigMap                   // kube-state-metrics: once per ConfigMap
	scopeRoot                        // cAdvisor: the root cgroup
	scopeSlice                       // cAdvisor: cgroups above the pods
	scopePodCgroup                   // cAdvisor: a pod's cgroup
	scopeSandbox                     // cAdvisor: the container that holds a pod's network
	scopeWorkload                    // cAdvisor: a container that runs something

	scopeAnyCgroup   = scopeRoot | scopeSlice | scopePodCgroup | scopeSandbox | scopeWorkload
	scopeAnyLeaf     = scopeSandbox | scopeWorkload
	scopeNetworked   = scopeRoot | scopeSandbox
	scopeWithStorage = scopeRoot | scopeWorkload
)

// shape says how the values of a family move.
type shape uint8

const (
	events    shape = iota // counter of whole things
	seconds                // counter of seconds, to the millisecond
	octets                 // counter of bytes
	level                  // gauge around a level, whole
	always                 // gauge that is 1
	never                  // gauge or counter that is 0
	birth                  // gauge: when the entity came to be, Unix seconds
	now                    // gauge: the time of the scrape, Unix seconds
	oneOf                  // gauge: 1 on the rows that family.on names, else 0
	durations              // histogram
)

// dim is a set of label names and the rows of values they take together.
type dim struct {
	names []string
	rows  [][]string
}

// family is one metric family. The number of its series per entity is the
// product of the dims' rows, times the buckets, sum and count of a histogram.
type family struct {
	name  string
	help  string
	shape shape
	in    scope
	dims  []dim
	les   []float64 // upper bounds of a histogram's buckets, without +Inf
	on    []string  // oneOf: label values joined by "/"
	facts []string  // labels besides the entity's own that its identity has values for
}

// kind is the word for the family's type in a text exposition.
func (f *family) kind() string {
	switch f.shape {
	case durations:
		return "histogram"
	case events, seconds, octets:
		return "counter"
	}
	if strings.HasSuffix(f.name, "_total") {
		return "counter"
	}
	return "gauge"
}

// of is a dim of one label.
func of(name string, values ...string) dim {
	d := dim{names: []string{name}}
	for _, v := range values {
		d.rows = append(d.rows, []string{v})
	}
	return d
}

// rows is a dim of several labels, named and valued as "a,b": "1,2", "3,4".
func rows(names string, values ...string) dim {
	d := dim{names: strings.Split(names, ",")}
	for _, v := range values {
		d.rows = append(d.rows, strings.Split(v, ","))
	}
	return d
}

// part tells the series of a histogram apart.
type part uint8

const (
	whole part = iota
	bucket
	sum
	count
)

// template is one series of an entity, without the entity's own labels.
type template struct {
	family *family
	name   string // with _bucket, _sum or _count
	labels []labels.Label
	part   part
	le     float64
	leText string // as a client library prints it
	id     uint64 // the same for all the series of one histogram
	on     bool
}

// layout is the list of series that every entity of a scope exposes.
type layout struct {
	templates []template
	spans     map[*family][2]int
}

// newLayout lists the series of the families that are exposed in a scope.
func newLayout(families []family, in scope) *layout {
	l := &layout{spans: map[*family][2]int{}}
	for i := range families {
		f := &families[i]
		if f.in&in == 0 {
			continue
		}
		from := len(l.templates)
		l.add(f, nil, f.dims)
		l.spans[f] = [2]int{from, len(l.templates)}
	}
	return l
}

func (l *layout) add(f *family, ls []labels.Label, dims []dim) {
	if len(dims) > 0 {
		for _, row := range dims[0].rows {
			next := append([]labels.Label{}, ls...)
			for i, name := range dims[0].names {
				next = append(next, labels.Label{Name: name, Value: row[i]})
			}
			l.add(f, next, dims[1:])
		}
		return
	}
	t := template{family: f, name: f.name, labels: ls, id: mix(hashString(f.name), uint64(len(l.templates)))}
	if f.shape != durations {
		t.on = f.isOn(ls)
		l.templates = append(l.templates, t)
		return
	}
	for _, le := range append(slices.Clip(f.les), math.Inf(1)) {
		b := t
		b.name, b.part, b.le, b.leText = f.name+"_bucket", bucket, le, formatFloat(le)
		l.templates = append(l.templates, b)
	}
	s, c := t, t
	s.name, s.part = f.name+"_sum", sum
	c.name, c.part = f.name+"_count", count
	l.templates = append(l.templates, s, c)
}

func (f *family) isOn(ls []labels.Label) bool {
	values := make([]string, 0, len(ls))
	for _, l := range ls {
		values = append(values, l.Value)
	}
	joined := strings.Join(values, "/")
	return slices.Contains(f.on, joined)
}
