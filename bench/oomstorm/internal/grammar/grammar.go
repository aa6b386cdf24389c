// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package grammar makes up requests: selectors, modifiers, ranges, functions
// around functions, endpoints and encodings. A search breeds those that take the
// most memory.
package grammar

import (
	"cmp"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/bench/oomstorm/internal/family"
)

// Genes are a request that was made up. Numbers pick from the grammar.
type Genes struct {
	Selector, Modifier, Range, Request, Points int
	Wraps                                      []int
}

//go:embed grammar.yaml
var text []byte

// choices are what genes pick from.
type choices struct {
	Selectors, Modifiers, Ranges, Wraps, Points []string
	Requests                                    []family.Family
}

var grammar = sync.OnceValue(func() (g choices) {
	if err := yaml.Unmarshal(text, &g); err != nil {
		panic(err) // A test reads it.
	}
	return g
})

const (
	maxWraps = 8
	maxText  = 64 << 10
)

// Family is the request; false if its text would be too long.
func (g Genes) Family(name string) (f family.Family, ok bool) {
	l := grammar()
	expr := strings.NewReplacer("$selector", l.Selectors[g.Selector], "$modifier", l.Modifiers[g.Modifier]).Replace(l.Ranges[g.Range])
	for _, w := range g.Wraps {
		if expr = strings.ReplaceAll(l.Wraps[w], "$expr", expr); len(expr) > maxText {
			return f, false
		}
	}
	f = l.Requests[g.Request]
	f.Name = name
	params := map[string]string{}
	for k, v := range f.Params {
		params[k] = strings.NewReplacer("$expr", expr, "$selector", l.Selectors[g.Selector], "$points", l.Points[g.Points]).Replace(v)
	}
	f.Params = params
	return f, true
}

// Random makes genes up.
func Random(r *rand.Rand) Genes {
	l := grammar()
	g := Genes{
		Selector: r.IntN(len(l.Selectors)), Modifier: r.IntN(len(l.Modifiers)), Range: r.IntN(len(l.Ranges)),
		Request: r.IntN(len(l.Requests)), Points: r.IntN(len(l.Points)),
	}
	for range r.IntN(4) {
		g.Wraps = append(g.Wraps, r.IntN(len(l.Wraps)))
	}
	return g
}

// Mutate changes one or two genes.
func (g Genes) Mutate(r *rand.Rand) Genes {
	other := Random(r)
	g.Wraps = slices.Clone(g.Wraps)
	for range 1 + r.IntN(2) {
		switch r.IntN(8) {
		case 0:
			g.Selector = other.Selector
		case 1:
			g.Modifier = other.Modifier
		case 2:
			g.Range = other.Range
		case 3:
			g.Request = other.Request
		case 4:
			g.Points = other.Points
		case 5:
			if len(g.Wraps) > 0 {
				i := r.IntN(len(g.Wraps))
				g.Wraps = slices.Delete(g.Wraps, i, i+1)
			}
		default:
			if len(g.Wraps) < maxWraps {
				g.Wraps = slices.Insert(g.Wraps, r.IntN(len(g.Wraps)+1), r.IntN(len(grammar().Wraps)))
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

// Add keeps what was found if it is the best of its kind, and that among the best.
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

// kind is the endpoint, and for one that evaluates the outermost function.
func (g Genes) kind() string {
	f, _ := g.Family("")
	if !strings.HasPrefix(f.Path, "/api/v1/query") {
		return f.Path
	}
	outer := -g.Range
	if len(g.Wraps) > 0 {
		outer = g.Wraps[len(g.Wraps)-1] + 1
	}
	return fmt.Sprint(f.Path, outer)
}
