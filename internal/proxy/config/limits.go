// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/querylimit"
)

// level is where a block of limits stands.
type level uint8

const (
	levelGlobal level = iota
	levelTenant
	levelRule            // of a rule
	levelFingerprintRule // of a rule that is found when the query is parsed
)

// beforeRules are limits that hold before it is known which rules match.
var beforeRules = map[string]bool{querylimit.LimitRequestBytes: true, querylimit.LimitParameters: true}

// beforeParsing are limits that hold before a query has a fingerprint.
var beforeParsing = map[string]bool{
	querylimit.LimitQueryBytes: true, querylimit.LimitQueryOperators: true, querylimit.LimitRegexSize: true,
}

// removed are limits that there were before series and samples.
var removed = []string{
	"points", "min_step", "subquery_points", "subqueries", "selectors", "vector_matching", "count_values", "topk", "expr_depth", "regex_cost",
	"federate_selectors", "read_queries", "results",
}

// limitsDecoder turns a block of limits into the changes that it makes.
type limitsDecoder struct {
	*decoder

	changes []querylimit.Override
}

func (d *limitsDecoder) change(o querylimit.Override) { d.changes = append(d.changes, o) }

// together checks values that belong together, as they are after the changes.
func (d *limitsDecoder) together(n *yaml.Node, check func(*querylimit.Options) error) {
	d.later = append(d.later, func(o querylimit.Options) {
		for _, change := range d.changes {
			change(&o)
		}
		d.check(n, check(&o))
	})
}

func decodeLimits(d *decoder, n *yaml.Node, at level) []querylimit.Override {
	l := limitsDecoder{decoder: d}
	known := keys{
		querylimit.LimitDeadline:      l.deadlines,
		querylimit.LimitSelectivity:   l.selectivity,
		querylimit.LimitUnknownPromQL: l.unknownPromQL,
		querylimit.LimitMetadataRange: l.metadataRange,
		querylimit.LimitResponseBytes: l.responses,
		querylimit.LimitRequestBytes:  l.ceiling(querylimit.MaxRequestBytes, func(o *querylimit.Options) *int { return &o.RequestBytesMax }),
		querylimit.LimitParameters:    l.ceiling(querylimit.MaxParameters, func(o *querylimit.Options) *int { return &o.ParametersMax }),
	}
	for _, c := range querylimit.Counts() {
		known[c.Name] = func(n *yaml.Node) { l.count(&c, n) }
	}
	for _, name := range removed {
		known[name] = func(n *yaml.Node) {
			d.errorf(n, "%s is no limit any more: remove it; series and samples bound what a request makes the server read and hold", name)
		}
	}
	for name := range known {
		if at >= levelRule && beforeRules[name] || at == levelFingerprintRule && beforeParsing[name] {
			known[name] = func(n *yaml.Node) {
				d.errorf(n, "%s is checked before it is known whether this rule matches: set it for everybody or for a tenant", name)
			}
		}
	}
	d.keys(n, known)
	return l.changes
}

func (d *limitsDecoder) mode(of func(*querylimit.Options) *querylimit.Mode) func(*yaml.Node) {
	return func(n *yaml.Node) {
		m, err := querylimit.ParseMode(d.text(n))
		d.check(n, err)
		d.change(func(o *querylimit.Options) { *of(o) = m })
	}
}

func (d *limitsDecoder) deadlines(n *yaml.Node) {
	known := keys{}
	for _, c := range querylimit.Classes() {
		known[c.String()] = func(n *yaml.Node) {
			value := d.duration(n, "no limit")
			d.change(func(o *querylimit.Options) { o.Deadlines[c] = value })
		}
	}
	d.keys(n, known)
}

func (d *limitsDecoder) selectivity(n *yaml.Node) {
	d.keys(n, keys{
		"mode": d.mode(func(o *querylimit.Options) *querylimit.Mode { return &o.Selectivity }),
		"equality_labels": func(n *yaml.Node) {
			var names []string
			d.list(n, "a list of label names", func(n *yaml.Node) {
				name := d.text(n)
				d.check(n, querylimit.ValidateLabel(name))
				names = append(names, name)
			})
			d.change(func(o *querylimit.Options) { o.EqualityLabels = names })
		},
	})
}

func (d *limitsDecoder) unknownPromQL(n *yaml.Node) {
	d.keys(n, keys{"mode": d.mode(func(o *querylimit.Options) *querylimit.Mode { return &o.UnknownPromQL })})
}

func (d *limitsDecoder) count(c *querylimit.Count, n *yaml.Node) {
	d.keys(n, keys{
		"mode": d.mode(func(o *querylimit.Options) *querylimit.Mode { return &c.Of(o).Mode }),
		"max": func(n *yaml.Node) {
			value, ok := 0, true
			switch {
			case c.IsTime:
				value = int(d.duration(n, "no limit"))
			case n.Value != "auto" || !c.Auto():
				value, ok = d.number(n)
			}
			if ok {
				d.check(n, c.Validate(value))
				d.change(func(o *querylimit.Options) { c.Of(o).Max = value })
			}
		},
	})
}

func (d *limitsDecoder) metadataRange(n *yaml.Node) {
	read := func(of func(*querylimit.Options) *time.Duration) func(*yaml.Node) {
		return func(n *yaml.Node) {
			value := d.duration(n, "none")
			d.change(func(o *querylimit.Options) { *of(o) = value })
		}
	}
	d.keys(n, keys{
		"mode":    d.mode(func(o *querylimit.Options) *querylimit.Mode { return &o.MetadataRange.Mode }),
		"default": read(func(o *querylimit.Options) *time.Duration { return &o.MetadataRange.Default }),
		"max":     read(func(o *querylimit.Options) *time.Duration { return &o.MetadataRange.Max }),
	})
	d.together(n, func(o *querylimit.Options) error { return o.MetadataRange.Validate() })
}

func (d *limitsDecoder) responses(n *yaml.Node) {
	known := keys{"mode": d.mode(func(o *querylimit.Options) *querylimit.Mode { return &o.Responses.Mode })}
	for _, c := range querylimit.Classes() {
		size := func(of func(*querylimit.ResponseLimit) *int64) func(*yaml.Node) {
			return func(n *yaml.Node) {
				value, ok := d.number(n)
				if ok && value < 0 {
					d.errorf(n, "value %d is negative: use 0 for none, or a number of bytes", value)
				}
				d.change(func(o *querylimit.Options) { *of(&o.Responses.Classes[c]) = int64(value) })
			}
		}
		known[c.String()] = func(n *yaml.Node) {
			d.keys(n, keys{
				"max":      size(func(l *querylimit.ResponseLimit) *int64 { return &l.Max }),
				"wire_max": size(func(l *querylimit.ResponseLimit) *int64 { return &l.WireMax }),
				"truncate": func(n *yaml.Node) {
					d.errorf(n, "truncate is no option any more: remove it; an answer that is too long is refused, and limit= of a request has a part")
				},
			})
		}
	}
	d.keys(n, known)
}

// ceiling is a number that is always enforced, because it bounds what promguard
// itself holds in memory for a request.
func (d *limitsDecoder) ceiling(most int, of func(*querylimit.Options) *int) func(*yaml.Node) {
	return func(n *yaml.Node) {
		d.keys(n, keys{"max": func(n *yaml.Node) {
			value, ok := d.number(n)
			if !ok {
				return
			}
			if value < 1 || value > most {
				d.check(n, fmt.Errorf("max is %d: use 1 to %d", value, most))
			}
			d.change(func(o *querylimit.Options) { *of(o) = value })
		}})
	}
}
