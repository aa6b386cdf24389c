// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/didyoumean"
	"github.com/promguard/promguard/internal/querylimit"
)

// decoder reads YAML nodes, collects what is wrong with them and goes on, so that
// an operator sees every mistake at once. The YAML library's own decoder stops at
// the first value that it cannot convert and loses the line of those that are
// converted but not allowed.
type decoder struct {
	errs []lineError
	// later are checks of values that belong together with some that may stand
	// further down. They get everybody's limits.
	later []func(global querylimit.Options)
}

type lineError struct {
	line int
	err  error
}

func (d *decoder) sorted() Errors {
	slices.SortStableFunc(d.errs, func(a, b lineError) int { return cmp.Compare(a.line, b.line) })
	out := make(Errors, len(d.errs))
	for i, e := range d.errs {
		out[i] = fmt.Errorf("line %d: %w", e.line, e.err)
	}
	return out
}

// check notes err, if there is one, at the line of n.
func (d *decoder) check(n *yaml.Node, err error) {
	if err != nil {
		d.errs = append(d.errs, lineError{n.Line, err})
	}
}

func (d *decoder) errorf(n *yaml.Node, format string, args ...any) {
	d.check(n, fmt.Errorf(format, args...))
}

// keys says how the value of each key of a mapping is read.
type keys map[string]func(*yaml.Node)

// keys reads a mapping. A key without a value leaves everything as it is.
func (d *decoder) keys(n *yaml.Node, known keys) {
	d.readKeys(n, known, func(*yaml.Node) {})
}

// valuedKeys reads a mapping in which every key needs a value.
func (d *decoder) valuedKeys(n *yaml.Node, known keys) {
	d.readKeys(n, known, func(key *yaml.Node) {
		d.errorf(key, "%s has no value: give it one, or leave it out", key.Value)
	})
}

func (d *decoder) readKeys(n *yaml.Node, known keys, null func(key *yaml.Node)) {
	d.pairs(n, "keys and values", func(key, value *yaml.Node) {
		read, ok := known[key.Value]
		switch {
		case !ok:
			d.errorf(key, "unknown key %q%s", key.Value, didyoumean.Hint(key.Value, slices.Sorted(maps.Keys(known))))
		case value.ShortTag() == "!!null":
			null(key)
		default:
			read(value)
		}
	})
}

// pairs calls read for each key of a mapping, and notes those that occur twice.
func (d *decoder) pairs(n *yaml.Node, want string, read func(key, value *yaml.Node)) {
	n = target(n)
	if n.Kind != yaml.MappingNode {
		d.wrongType(n, want)
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], target(n.Content[i+1])
		if key.Kind != yaml.ScalarNode {
			d.wrongType(key, "a key")
			continue
		}
		if line, ok := lines[key.Value]; ok {
			d.errorf(key, "mapping key %q already defined at line %d", key.Value, line)
			continue
		}
		lines[key.Value] = key.Line
		read(key, value)
	}
}

// list calls read for each entry of a sequence.
func (d *decoder) list(n *yaml.Node, want string, read func(*yaml.Node)) {
	n = target(n)
	if n.Kind != yaml.SequenceNode {
		d.wrongType(n, want)
		return
	}
	for _, entry := range n.Content {
		read(target(entry))
	}
}

// target returns what an alias stands for.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func (d *decoder) wrongType(n *yaml.Node, want string) {
	value := ""
	if n.Kind == yaml.ScalarNode {
		value = fmt.Sprintf("`%s` ", n.Value)
	}
	d.errorf(n, "value %sis of type %s: use %s", value, typeName(n), want)
}

func typeName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "map"
	case yaml.SequenceNode:
		return "seq"
	default:
		return strings.TrimLeft(n.ShortTag(), "!")
	}
}

// text reads a string; numbers and the like are taken as they are written.
func (d *decoder) text(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		d.wrongType(n, "text")
		return ""
	}
	return n.Value
}

// number reads an integer; ok is false if it is none.
func (d *decoder) number(n *yaml.Node) (value int, ok bool) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int" {
		if v, err := strconv.ParseInt(n.Value, 0, 0); err == nil {
			return int(v), true
		}
	}
	d.wrongType(n, "an integer")
	return 0, false
}

// atLeast reads an integer that is not smaller than least.
func (d *decoder) atLeast(n *yaml.Node, least int) (value int, ok bool) {
	value, ok = d.number(n)
	if ok && value < least {
		d.errorf(n, "value %d is too small: use at least %d", value, least)
		return 0, false
	}
	return value, ok
}

// fraction reads a number from 0 to 1.
func (d *decoder) fraction(n *yaml.Node) float64 {
	if n.Kind == yaml.ScalarNode {
		if v, err := strconv.ParseFloat(n.Value, 64); err == nil && v >= 0 && v <= 1 {
			return v
		}
	}
	d.errorf(n, "value %q is not a fraction: use 0 to 1", n.Value)
	return 0
}

func (d *decoder) boolean(n *yaml.Node) bool {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" {
		if v, err := strconv.ParseBool(n.Value); err == nil {
			return v
		}
	}
	d.wrongType(n, "true or false")
	return false
}

// duration reads what Prometheus writes as a duration.
func (d *decoder) duration(n *yaml.Node, zero string) time.Duration {
	if n.Kind == yaml.ScalarNode {
		if v, err := model.ParseDuration(n.Value); err == nil {
			return time.Duration(v)
		}
	}
	d.errorf(n, "value %q is not a duration: use one such as 30s or 2m, or 0s for %s", n.Value, zero)
	return 0
}
