// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package evaluate evaluates expressions on the same data with and without drop
// rules, and compares the results. It is the check of the proofs in package
// check: what they call invisible must come out equal.
//
// The data are single scrapes. A history is made from each: counters grow in
// proportion to their value, gauges stay.
package evaluate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql/parser"
)

// Series is one series of a scrape.
type Series struct {
	Labels labels.Labels
	Value  float64
	// Counter says that the value only grows.
	Counter bool
}

// maxExposition is beyond what Prometheus would scrape with its defaults, in
// bytes.
const maxExposition = 1 << 30

// ReadExpositions reads text expositions. Each argument is a path, and after it
// the labels of the target, as in apiserver.prom{job="apiserver"}.
func ReadExpositions(args []string) ([]Series, error) {
	var all []Series
	for i, arg := range args {
		path, target, err := splitTarget(arg)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", arg, err)
		}
		if target.Get(model.InstanceLabel) == "" {
			target = labels.NewBuilder(target).Set(model.InstanceLabel, fmt.Sprintf("192.0.2.%d:9100", i+1)).Labels()
		}
		series, err := readExposition(path, target)
		if err != nil {
			if inner, ok := errors.AsType[*fs.PathError](err); ok {
				err = inner.Err
			}
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, series...)
	}
	return all, nil
}

func splitTarget(arg string) (string, labels.Labels, error) {
	i := strings.IndexByte(arg, '{')
	if i < 0 {
		return arg, labels.EmptyLabels(), nil
	}
	target, err := parser.NewParser(parser.Options{}).ParseMetric(arg[i:])
	if err != nil {
		return "", labels.EmptyLabels(), fmt.Errorf("the target's labels do not parse: %w", err)
	}
	return arg[:i], target, nil
}

func readExposition(path string, target labels.Labels) ([]Series, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxExposition {
		return nil, fmt.Errorf("larger than %d MiB", maxExposition>>20)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseExposition(text, target)
}

// ParseExposition reads a text exposition as Prometheus 3 scrapes it, and gives
// each series the labels of its target; a label that the exposition has already
// stays as it is.
func ParseExposition(text []byte, target labels.Labels) ([]Series, error) {
	contentType := "text/plain"
	if strings.HasSuffix(strings.TrimSpace(string(text[max(0, len(text)-16):])), "# EOF") {
		contentType = "application/openmetrics-text"
	}
	p, err := textparse.New(text, contentType, nil, textparse.ParserOptions{})
	if err != nil {
		return nil, err
	}
	var out []Series
	types := map[string]model.MetricType{}
	for {
		entry, err := p.Next()
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		}
		switch entry {
		case textparse.EntryType:
			name, kind := p.Type()
			types[string(name)] = kind
		case textparse.EntrySeries:
			var lset labels.Labels
			p.Labels(&lset)
			_, _, value := p.Series()
			b := labels.NewBuilder(lset)
			target.Range(func(l labels.Label) {
				if lset.Get(l.Name) == "" {
					b.Set(l.Name, l.Value)
				}
			})
			out = append(out, Series{Labels: b.Labels(), Value: value, Counter: isCounter(lset, types)})
		}
	}
}

func isCounter(lset labels.Labels, types map[string]model.MetricType) bool {
	name := lset.Get(labels.MetricName)
	for _, suffix := range []string{"", "_total", "_bucket", "_sum", "_count"} {
		base, ok := strings.CutSuffix(name, suffix)
		if !ok {
			continue
		}
		switch types[base] {
		case model.MetricTypeCounter, model.MetricTypeHistogram:
			return true
		case model.MetricTypeSummary:
			return suffix != ""
		case model.MetricTypeGauge, model.MetricTypeInfo, model.MetricTypeStateset:
			return false
		}
	}
	return strings.HasSuffix(name, "_total") || strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_count") || strings.HasSuffix(name, "_sum")
}

// Layouts returns the finite bounds that histograms have in the data, by name
// without _bucket; each set of bounds once.
func Layouts(series []Series) map[string][][]float64 {
	type histogram struct {
		name   string
		labels uint64
	}
	bounds := map[histogram][]float64{}
	for _, s := range series {
		name, ok := strings.CutSuffix(s.Labels.Get(labels.MetricName), "_bucket")
		le, err := strconv.ParseFloat(s.Labels.Get(labels.BucketLabel), 64)
		if !ok || err != nil || math.IsInf(le, 0) || math.IsNaN(le) {
			continue
		}
		others := labels.NewBuilder(s.Labels).Del(labels.BucketLabel).Labels()
		h := histogram{name, others.Hash()}
		bounds[h] = append(bounds[h], le)
	}
	distinct := map[string]map[string][]float64{}
	for h, b := range bounds {
		slices.Sort(b)
		b = slices.Compact(b)
		if distinct[h.name] == nil {
			distinct[h.name] = map[string][]float64{}
		}
		distinct[h.name][fmt.Sprint(b)] = b
	}
	out := map[string][][]float64{}
	for name, layouts := range distinct {
		for _, key := range slices.Sorted(maps.Keys(layouts)) {
			out[name] = append(out[name], layouts[key])
		}
	}
	return out
}
