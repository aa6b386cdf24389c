// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package grammar makes up requests: selectors, modifiers, ranges, functions
// around functions, endpoints and encodings. A search breeds those that take the
// most memory.
package grammar

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/promguard/promguard/bench/oomstorm/internal/family"
)

// Genes are a request that was made up. Numbers pick from the lists below.
type Genes struct {
	Selector, Modifier, Range, Endpoint, Points, Encoding int
	Wraps                                                 []int
}

var (
	selectors = []string{"{{.Few}}", "{{.Some}}", "{{.Buckets}}", "{{.All}}"}
	modifiers = []string{"", "", ` @ {{ago "10s"}}`, " offset 1m", " offset -1m", " @ end()"}
	// ranges turn a selector, and its modifier behind the range, into a vector.
	ranges = []string{
		"%s%s", "%s%s", "%s%s", "rate(%s[5m]%s)", "quantile_over_time(0.9, %s[10m]%s)", "last_over_time(%s[10m]%s)",
		"stddev_over_time(%s[10m]%s)", "predict_linear(%s[10m]%s, 60)", "present_over_time(%s[1h]%s)",
	}
	// wraps go around a vector. One that has it twice doubles the text.
	wraps = []string{
		`label_replace(%[1]s, "a", "$1$1$1$1$1$1$1$1$1$1", "a", "(.*)")`,
		`label_replace(%[1]s, "a", "0123456789", "job", ".*")`,
		`label_replace(%[1]s, "b", "{{repeat 2000 "x"}}", "job", ".*")`,
		`label_replace(%[1]s, "instance", "$1$1$1$1", "instance", "(.*)")`,
		`label_join(%[1]s, "a", "", "a", "a", "instance")`,
		`label_join(%[1]s, "c", "-", "instance"{{repeat 200 ",\"resource\""}})`,
		`count_values("v", %[1]s)`,
		`count_values without (le) ("v", %[1]s)`,
		`(%[1]s + time())`, `(%[1]s * %[1]s)`, `(%[1]s or %[1]s + 1)`, `(%[1]s and %[1]s)`, `(%[1]s unless vector(1))`, `(%[1]s > bool 0)`,
		`(%[1]s * on (instance, resource, verb, le) group_left (a) %[1]s)`,
		`(%[1]s * on (instance) group_left () sum by (instance) (%[1]s))`,
		`sort(%[1]s)`, `topk(1e9, %[1]s)`, `bottomk by (verb) (1e6, %[1]s)`, `quantile by (le) (0.5, %[1]s)`, `sum without (nothing) (%[1]s)`,
		`sum by (le) (%[1]s)`, `group by (instance, resource, verb, le) (%[1]s)`, `stddev(%[1]s)`,
		`abs(%[1]s)`, `-(%[1]s)`, `clamp(%[1]s, 0, 1e9)`, `round(%[1]s, 0.1)`, `timestamp(%[1]s)`, `hour(%[1]s)`,
		`histogram_quantile(0.9, %[1]s)`, `absent(%[1]s)`, `vector(scalar(%[1]s))`,
		`max_over_time((%[1]s)[10m:1s])`, `quantile_over_time(0.5, (%[1]s)[5m:10s])`, `last_over_time((%[1]s)[1h:10s])`, `deriv((%[1]s)[10m:5s])`,
		`max_over_time((%[1]s)[10m:1s] @ {{ago "10s"}})`,
	}
	points    = []string{"10s", "60s", "600s", "3000s", "11000s"}
	encodings = []map[string]string{{}, {"Accept-Encoding": "gzip"}, {"Accept-Encoding": "deflate"}}
	// matches are lists of selectors that an endpoint takes.
	matches = []string{"%[1]s", "%[1]s\n{{.All}}", "{{range $i, $_ := seq 300}}{le!=\"\",x!=\"{{$i}}\"}\n{{end}}"}
)

const (
	maxWraps = 8
	maxText  = 64 << 10
)

// endpoints make a family of an expression and of the selector within it.
var endpoints = []func(g Genes, expr, selector string) family.Family{
	instant, instant, instant, ranged, ranged, ranged, ranged, ranged,
	func(_ Genes, expr, _ string) family.Family {
		return family.Family{Path: "/api/v1/query", Post: true, Params: map[string]string{"query": "(" + expr + ")[10m:1s]"}}
	},
	func(g Genes, expr, _ string) family.Family {
		path := []string{"/api/v1/format_query", "/api/v1/parse_query"}[g.Points%2]
		return family.Family{Path: path, Post: true, Params: map[string]string{"query": fmt.Sprintf(`{{repeat %d "("}}%s{{repeat %d ")"}}`, g.Points*2000, expr, g.Points*2000)}}
	},
	func(_ Genes, expr, _ string) family.Family {
		return family.Family{Path: "/api/v1/query_exemplars", Post: true, Params: map[string]string{"query": expr, "start": `{{ago "3h"}}`, "end": `{{ago "0s"}}`}}
	},
	func(g Genes, _, selector string) family.Family {
		path := []string{"/api/v1/series", "/federate", "/api/v1/labels", "/api/v1/label/instance/values"}[g.Points%4]
		return family.Family{Path: path, Post: strings.HasSuffix(path, "s") && !strings.HasSuffix(path, "values"), Params: map[string]string{"match[]": fmt.Sprintf(matches[g.Modifier%len(matches)], selector)}}
	},
	func(g Genes, _, _ string) family.Family {
		read := &family.Read{Label: []string{"le", "job"}[g.Selector%2], Queries: []int{1, 10, 900}[g.Modifier%3], Chunks: g.Range%2 == 0}
		return family.Family{Path: "/api/v1/read", Read: read}
	},
}

func instant(_ Genes, expr, _ string) family.Family {
	return family.Family{Path: "/api/v1/query", Post: true, Params: map[string]string{"query": expr}}
}

func ranged(g Genes, expr, _ string) family.Family {
	return family.Family{Path: "/api/v1/query_range", Post: true, Params: map[string]string{
		"query": expr, "start": fmt.Sprintf("{{ago %q}}", points[g.Points]), "end": `{{ago "0s"}}`, "step": "1",
	}}
}

// Family is the request; false if its text would be too long.
func (g Genes) Family(name string) (family.Family, bool) {
	selector := selectors[g.Selector]
	expr := fmt.Sprintf(ranges[g.Range], selector, modifiers[g.Modifier])
	for _, w := range g.Wraps {
		if expr = fmt.Sprintf(wraps[w], expr); len(expr) > maxText {
			return family.Family{}, false
		}
	}
	f := endpoints[g.Endpoint](g, expr, selector)
	f.Name, f.Header = name, encodings[g.Encoding]
	return f, true
}

// Random makes genes up.
func Random(r *rand.Rand) Genes {
	g := Genes{
		Selector: r.IntN(len(selectors)), Modifier: r.IntN(len(modifiers)), Range: r.IntN(len(ranges)),
		Endpoint: r.IntN(len(endpoints)), Points: r.IntN(len(points)), Encoding: r.IntN(len(encodings)),
	}
	for range r.IntN(4) {
		g.Wraps = append(g.Wraps, r.IntN(len(wraps)))
	}
	return g
}

// Mutate changes one or two genes.
func (g Genes) Mutate(r *rand.Rand) Genes {
	other := Random(r)
	g.Wraps = slices.Clone(g.Wraps)
	for range 1 + r.IntN(2) {
		switch r.IntN(9) {
		case 0:
			g.Selector = other.Selector
		case 1:
			g.Modifier = other.Modifier
		case 2:
			g.Range = other.Range
		case 3:
			g.Endpoint = other.Endpoint
		case 4:
			g.Points = other.Points
		case 5:
			g.Encoding = other.Encoding
		case 6:
			if len(g.Wraps) > 0 {
				i := r.IntN(len(g.Wraps))
				g.Wraps = slices.Delete(g.Wraps, i, i+1)
			}
		default:
			if len(g.Wraps) < maxWraps {
				g.Wraps = slices.Insert(g.Wraps, r.IntN(len(g.Wraps)+1), r.IntN(len(wraps)))
			}
		}
	}
	return g
}

// Found is a request and what it takes.
type Found struct {
	Genes Genes
	Bytes int64
}

// Population is the best that were found.
type Population struct{ Best []Found }

const (
	population = 24
	// fresh is the share of requests that descend from none.
	fresh = 0.3
)

// Next is a request to try.
func (p *Population) Next(r *rand.Rand) Genes {
	if len(p.Best) == 0 || r.Float64() < fresh {
		return Random(r)
	}
	return p.Best[r.IntN(len(p.Best))].Genes.Mutate(r)
}

// Add keeps what was found if it is among the best of its kind: of requests whose
// endpoint and outermost function are the same, one.
func (p *Population) Add(f Found) {
	same := slices.IndexFunc(p.Best, func(o Found) bool { return o.Genes.kind() == f.Genes.kind() })
	switch {
	case same < 0:
		p.Best = append(p.Best, f)
	case p.Best[same].Bytes < f.Bytes:
		p.Best[same] = f
	}
	slices.SortStableFunc(p.Best, func(a, b Found) int { return cmp.Compare(b.Bytes, a.Bytes) })
	p.Best = p.Best[:min(len(p.Best), population)]
}

func (g Genes) kind() string {
	f, _ := g.Family("")
	outer := -g.Range
	if len(g.Wraps) > 0 {
		outer = g.Wraps[len(g.Wraps)-1] + 1
	}
	return fmt.Sprint(f.Path, outer)
}
