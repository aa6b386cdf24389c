// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/promguard/promguard/internal/relabel"
)

// slower is how many times the durations of a cluster under load are taken to be those
// measured, to see what the bounds do there.
const slower = 10

// curve returns the table of what each limit costs.
func curve(f *facts, hs []*histogram) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "| A quantile moves on any data by at most | Fewer series, %s | As measured: median, one in ten, most | All %d times as slow |\n|---|---|---|---|\n",
		strings.Join(clusters, " and "), slower)
	for _, limit := range []float64{2, 3, 4, 6, none} {
		stay := map[string][]float64{}
		var measured, loaded []float64
		for _, h := range hs {
			bounds := h.search(measuredLimit, limit)
			for _, name := range h.rule.Thinning.Histograms {
				stay[name] = bounds
			}
			measured = append(measured, h.factors(h.rows, bounds)...)
			loaded = append(loaded, h.factors(h.slower(), bounds)...)
		}
		var shares []string
		for _, c := range clusters {
			byJob, err := f.dropped(relabel.ProfileRecommended, c, stay)
			if err != nil {
				return "", err
			}
			shares = append(shares, byJob[""].String())
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", factorText(limit), strings.Join(shares, ", "), spread(measured), spread(loaded))
	}
	return b.String(), nil
}

// components are the jobs of kube-prometheus and what they scrape, in the order of the
// documentation.
var components = [][2]string{
	{"apiserver", "kube-apiserver"},
	{"kubelet", "kubelet (cAdvisor)"},
	{"kube-controller-manager", "kube-controller-manager"},
	{"kube-scheduler", "kube-scheduler"},
	{"kube-state-metrics", "kube-state-metrics"},
	{"etcd", "etcd"},
	{"", "all"},
}

// shares returns the table of what profiles drop of each component.
func shares(f *facts) (string, error) {
	var columns [][]map[string]share // By profile and cluster.
	for _, profile := range []string{relabel.ProfileMinimal, relabel.ProfileRecommended} {
		var column []map[string]share
		for _, c := range clusters {
			s, err := f.dropped(profile, c, nil)
			if err != nil {
				return "", err
			}
			column = append(column, s)
		}
		columns = append(columns, column)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| Component | Series, %s | minimal drops | recommended drops |\n|---|---|---|---|\n", strings.Join(clusters, " and "))
	for _, c := range components {
		var all []string
		for _, s := range columns[0] {
			all = append(all, thousands(s[c[0]].all))
		}
		fmt.Fprintf(&b, "| %s | %s |", c[1], strings.Join(all, " and "))
		for _, column := range columns {
			var dropped []string
			for _, s := range column {
				dropped = append(dropped, s[c[0]].String())
			}
			fmt.Fprintf(&b, " %s |", strings.Join(dropped, ", "))
		}
		fmt.Fprintln(&b)
	}
	return b.String(), nil
}

func thousands(n float64) string {
	text := strconv.FormatFloat(n, 'f', 0, 64)
	if len(text) > 3 {
		text = text[:len(text)-3] + "," + text[len(text)-3:]
	}
	return text
}

// slower returns the rows with every value longer, of those that are durations.
func (h *histogram) slower() []row {
	if !strings.HasSuffix(h.rule.Thinning.Histograms[0], "_seconds") {
		return h.rows
	}
	var out []row
	for _, r := range h.rows {
		out = append(out, r.scaled(h.bounds, slower))
	}
	return out
}

// spread says how factors are distributed.
func spread(factors []float64) string {
	slices.Sort(factors)
	n := len(factors)
	return fmt.Sprintf("%s, %s, %s", factorText(factors[n/2]), factorText(factors[n*9/10]), factorText(factors[n-1]))
}

func factorText(f float64) string {
	if f == none {
		return "any factor"
	}
	return "x" + strconv.FormatFloat(f, 'g', 3, 64)
}
