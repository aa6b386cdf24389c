// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package evaluate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/source"
)

// Data is the same scrape with and without the series that a profile drops.
type Data struct {
	// Progress, if it is set, is told how many of the expressions are compared.
	Progress func(done, of int)

	full, thinned *head
	engine        *promql.Engine

	// Series and Dropped count series; PerRule counts those dropped, by the
	// number of the first rule that drops them.
	Series, Dropped int
	PerRule         []int
	// Unguarded are the rules that drop something though what they require is
	// not in the data.
	Unguarded []relabel.Rule
}

// row is one series of a result.
type row struct {
	labels labels.Labels
	value  float64
}

// Load puts the series into two heads and evaluates the recording rules among the
// expressions on both. Close gives them back.
func Load(p relabel.Profile, series []Series, exprs []source.Expression) (*Data, error) {
	dropper, err := relabel.Compile(p)
	if err != nil {
		return nil, err
	}
	d := &Data{
		engine: promql.NewEngine(promql.EngineOpts{
			MaxSamples:               50_000_000,
			Timeout:                  time.Minute,
			EnableAtModifier:         true,
			EnableNegativeOffset:     true,
			NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
			Parser:                   source.NewParser(),
		}),
		Series:  len(series),
		PerRule: make([]int, len(p.Rules)),
	}
	var kept []Series
	for _, s := range series {
		if rule, drop := dropper.Drop(s.Labels); drop {
			d.Dropped++
			d.PerRule[rule]++
			continue
		}
		kept = append(kept, s)
	}
	if d.full, err = newHead(); err != nil {
		return nil, err
	}
	if d.thinned, err = newHead(); err != nil {
		return nil, errors.Join(err, d.full.Close())
	}
	if err := d.fill(series, kept, exprs); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if err := d.guards(p); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close frees the data.
func (d *Data) Close() error { return errors.Join(d.full.Close(), d.thinned.Close()) }

// recordingRule is a recording rule as it is evaluated.
type recordingRule struct {
	source.Expression
	query string
}

// fill appends both histories at once, and after each scrape what is recorded
// from it.
func (d *Data) fill(series, kept []Series, exprs []source.Expression) error {
	var rules []recordingRule
	for _, r := range recordingOrder(exprs) {
		if query, ok := source.Evaluable(r.Queries[0]); ok {
			rules = append(rules, recordingRule{r, query})
		}
	}
	var (
		wg            sync.WaitGroup
		full, thinned error
	)
	wg.Go(func() { full = d.fillHead(d.full, series, rules) })
	wg.Go(func() { thinned = d.fillHead(d.thinned, kept, rules) })
	wg.Wait()
	return errors.Join(full, thinned)
}

func (d *Data) fillHead(h *head, series []Series, rules []recordingRule) error {
	for _, age := range ages {
		if err := h.scrape(series, age); err != nil {
			return err
		}
		t := now - age.Milliseconds()
		for _, r := range rules {
			rows, err := d.evaluate(h, r.query, t)
			if err != nil {
				// Prometheus would log it and go on.
				continue
			}
			if err := h.record(rows, r.Record, r.Labels, t); err != nil {
				return fmt.Errorf("%s: %w", r.Place, err)
			}
		}
	}
	return nil
}

// recordingOrder returns the recording rules so that those that read what others
// record come after them.
func recordingOrder(exprs []source.Expression) []source.Expression {
	byName := map[string][]int{}
	for i, e := range exprs {
		if e.Record != "" {
			byName[e.Record] = append(byName[e.Record], i)
		}
	}
	var (
		out     []source.Expression
		visited = map[int]bool{}
		visit   func(int)
	)
	visit = func(i int) {
		if visited[i] {
			return
		}
		visited[i] = true
		for _, matchers := range parser.ExtractSelectors(exprs[i].Queries[0]) {
			for _, m := range matchers {
				if m.Name == labels.MetricName && m.Type == labels.MatchEqual {
					for _, dependency := range byName[m.Value] {
						visit(dependency)
					}
				}
			}
		}
		out = append(out, exprs[i])
	}
	for i, e := range exprs {
		if e.Record != "" {
			visit(i)
		}
	}
	return out
}

// evaluate returns the rows of an instant query by their labels.
func (d *Data) evaluate(h *head, query string, t int64) (map[string]row, error) {
	q, err := d.engine.NewInstantQuery(context.Background(), h, nil, query, time.UnixMilli(t))
	if err != nil {
		return nil, err
	}
	defer q.Close()
	res := q.Exec(context.Background())
	if res.Err != nil {
		return nil, res.Err
	}
	rows := map[string]row{}
	switch v := res.Value.(type) {
	case promql.Vector:
		for _, s := range v {
			rows[string(s.Metric.Bytes(nil))] = row{s.Metric.Copy(), s.F}
		}
	case promql.Scalar:
		rows[""] = row{labels.EmptyLabels(), v.V}
	case promql.Matrix:
		// A range vector by itself: what Grafana shows of it is its last sample.
		for _, s := range v {
			if n := len(s.Floats); n > 0 {
				rows[string(s.Metric.Bytes(nil))] = row{s.Metric.Copy(), s.Floats[n-1].F}
			}
		}
	}
	return rows, nil
}

// guards finds the rules whose requirement the data do not meet.
func (d *Data) guards(p relabel.Profile) error {
	for i, r := range p.Rules {
		if r.Requires == "" || d.PerRule[i] == 0 {
			continue
		}
		rows, err := d.evaluate(d.full, r.Requires, now)
		if err != nil {
			return fmt.Errorf("rule %s: %w", r.ID, err)
		}
		if len(rows) == 0 {
			d.Unguarded = append(d.Unguarded, r)
		}
	}
	return nil
}
