// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/rules/source"
)

// The test here evaluates random expressions on random data, whole and in shards.

const shards = 3

// drawn draws an expression that is a vector.
func drawn(r *rand.Rand, depth int) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	names := func() string {
		return pick("", "instance", "job", "a", "instance, job", "instance, a", "job, a", "instance, job, a, le")
	}
	if depth == 0 {
		return pick("m", "n", "d", "m_bucket", `m{a="x"}`, `s{job="single"}`, `t{job="single"}`, "r", "vector(1)", "max_over_time(m[5m])", `{__name__=~"m|n"}`)
	}
	in := func() string { return drawn(r, depth-1) }
	matching := func() string { return fmt.Sprintf("%s (%s)", pick("on", "ignoring"), names()) }
	switch r.IntN(14) {
	case 0, 1, 2:
		return fmt.Sprintf("%s %s (%s) (%s)", pick("sum", "count", "max", "group"), pick("by", "by", "without"), names(), in())
	case 3:
		// Of rows with the same value any is taken, so they have different ones.
		return fmt.Sprintf("%s by (%s) (%d, %s)", pick("topk", "bottomk"), names(), 1+r.IntN(2), pick("d", "d * 2", "sum by (instance, a) (d)"))
	case 4:
		return fmt.Sprintf("count_values by (%s) (%q, %s)", names(), pick("a", "instance", "v"), in())
	case 5:
		return fmt.Sprintf("(%s) %s %s (%s)", in(), pick("and", "or", "unless"), pick("", matching()), in())
	case 6:
		return fmt.Sprintf("(%s) %s %s (%s)", in(), pick("+", ">", "== bool"), matching(), in())
	case 7:
		return fmt.Sprintf("(%s) %s %s %s(%s) (%s)", in(), pick("+", "<"), matching(), pick("group_left", "group_right"), pick("", "", "a", "instance"), in())
	case 8:
		return fmt.Sprintf("(%s) %s %s", in(), pick("> ", "+ ", "== bool "), pick("2", "time()", "scalar("+in()+")"))
	case 9:
		return fmt.Sprintf("label_replace(%s, %q, %q, %q, %q)", in(), pick("instance", "a", "le"), pick("", "c", "$1"), pick("a", "instance"), pick("(.*)", "x|i1"))
	case 10:
		return fmt.Sprintf("absent(%s)", in())
	case 11:
		return fmt.Sprintf("histogram_quantile(0.5, %s)", in())
	case 12:
		return fmt.Sprintf("(%s) + %s fill(%d) (%s)", in(), matching(), r.IntN(2), in())
	}
	return fmt.Sprintf("info(%s)", in())
}

// sample is one series with its value.
type sample struct {
	labels labels.Labels
	value  float64
}

// scrape draws the series of a few targets.
func scrape(r *rand.Rand) []sample {
	var out []sample
	add := func(pairs ...string) {
		out = append(out, sample{labels.FromStrings(pairs...), float64(r.IntN(4))})
	}
	for i := range 4 {
		instance, job := fmt.Sprintf("i%d", i), fmt.Sprintf("j%d", i%2)
		for _, a := range []string{"x", "y"} {
			add("__name__", "d", "job", job, "instance", instance, "a", a)
			out[len(out)-1].value = float64(len(out))
			for _, name := range []string{"m", "n"} {
				if r.IntN(4) > 0 {
					add("__name__", name, "job", job, "instance", instance, "a", a)
				}
			}
		}
		for _, le := range []string{"1", "2", "+Inf"} {
			add("__name__", "m_bucket", "job", job, "instance", instance, "le", le)
		}
		add("__name__", "target_info", "job", job, "instance", instance, "version", strconv.Itoa(r.IntN(2)))
	}
	for _, a := range []string{"x", "y"} {
		add("__name__", "s", "job", "single", "instance", "k", "a", a)
		add("__name__", "t", "job", "single", "instance", "k", "a", a)
	}
	return out
}

// shardOf is where a target is.
func shardOf(instance string, seed uint64) int {
	h := fnv.New64a()
	fmt.Fprint(h, instance, seed)
	return int(h.Sum64() % shards)
}

var at = time.Unix(1_700_000_000, 0)

// seriesSet has its series in a list.
type seriesSet struct {
	left []storage.Series
	now  storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.now, s.left = s.left[0], s.left[1:]
	return true
}

func (s *seriesSet) At() storage.Series              { return s.now }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }

// evaluate returns the value of each row, by its labels.
func evaluate(t *testing.T, engine *promql.Engine, data []sample, text string) (map[string]float64, error) {
	q := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			var found []storage.Series
			for _, s := range data {
				if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
					found = append(found, promql.NewStorageSeries(promql.Series{Metric: s.labels, Floats: []promql.FPoint{{T: at.UnixMilli(), F: s.value}}}))
				}
			}
			return &seriesSet{left: found}
		},
	}}
	query, err := engine.NewInstantQuery(t.Context(), q, nil, text, at)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	v, err := query.Exec(t.Context()).Vector()
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, s := range v {
		out[s.Metric.String()] = s.F
	}
	return out, nil
}

// valid reports whether the text is PromQL: a label may be in on or group_left only.
func valid(text string) bool {
	_, err := source.NewParser().ParseExpr(text)
	return err == nil
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// recordInto adds what a rule records.
func recordInto(t *testing.T, engine *promql.Engine, data []sample, text string) ([]sample, error) {
	rows, err := evaluate(t, engine, data, fmt.Sprintf(`label_replace(%s, "__name__", "r", "", "")`, text))
	for series, v := range rows {
		lset, err := parser.NewParser(parser.Options{}).ParseMetric(series)
		require.NoError(t, err)
		data = append(data, sample{lset, v})
	}
	return data, err
}

func TestShardsTogetherHaveTheRowsOfTheWhole(t *testing.T) {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Hour, EnableDelayedNameRemoval: false, Parser: source.NewParser()})
	const seed = 1 // Many others were tried.
	r := rand.New(rand.NewPCG(seed, 0))
	judged := map[bool]int{}
	differ := 0
	for range 3000 {
		recorded, text := drawn(r, 1+r.IntN(2)), drawn(r, 1+r.IntN(3))
		if !valid(recorded) || !valid(text) {
			continue
		}
		exprs := []source.Expression{record(t, "r", recorded), alert(t, "A", text)}
		results := Check(exprs, []string{"single"})
		mayRecord, may := results[0].Why == "", results[1].Why == ""

		data, err := recordInto(t, engine, scrape(r), recorded)
		if err != nil {
			continue // As two rows have the same labels, or too many match.
		}
		whole, err := evaluate(t, engine, data, text)
		if err != nil {
			continue
		}
		judged[may]++
		together := map[string]float64{}
		place := r.Uint64()
		for i := range shards {
			var own []sample
			for _, s := range data {
				if s.labels.Get("__name__") != "r" && shardOf(s.labels.Get("instance"), place) == i {
					own = append(own, s)
				}
			}
			if mayRecord {
				own, err = recordInto(t, engine, own, recorded)
				require.NoError(t, err, "%s with r = %s, seed %d", text, recorded, seed)
			}
			part, err := evaluate(t, engine, own, text)
			if may {
				require.NoError(t, err, "%s with r = %s, seed %d", text, recorded, seed)
			}
			for row, v := range part {
				if had, ok := together[row]; ok && may {
					require.True(t, same(had, v), "%s has %s twice, with r = %s, seed %d", text, row, recorded, seed)
				}
				together[row] = v
			}
		}
		if may {
			require.Len(t, together, len(whole), "%s with r = %s, seed %d: %v, not %v", text, recorded, seed, together, whole)
		}
		for row, v := range whole {
			got, ok := together[row]
			if !ok || !same(got, v) {
				require.False(t, may, "%s with r = %s, seed %d: %s is %v, not %v", text, recorded, seed, row, got, v)
				differ++
				break
			}
		}
	}
	t.Logf("%d may run in shards, %d may not, of which %d differ on the data", judged[true], judged[false], differ)
	require.Greater(t, judged[true], 100)
	require.Greater(t, differ, 100)
}
