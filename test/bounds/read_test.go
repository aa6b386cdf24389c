// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promguard/promguard/internal/relabel"
)

// clusters are the versions of those whose scrapes the facts are of.
var clusters = []string{"1.33", "1.35"}

// facts are what testdata has.
type facts struct {
	families []family
	// rows are by the histogram's name.
	rows map[string][]drawnRow
}

// family is how many series of a metric a job has, in each cluster.
type family struct {
	job, name string
	series    []int
}

// drawnRow is a row whose counts are by bound still, and not cumulative.
type drawnRow struct {
	row
	in map[float64]float64
}

func readFacts(dir string) (*facts, error) {
	f := &facts{rows: map[string][]drawnRow{}}
	if err := eachLine(filepath.Join(dir, "families.txt"), f.addFamily); err != nil {
		return nil, err
	}
	return f, eachLine(filepath.Join(dir, "rows.txt"), f.addRow)
}

// eachLine hands on the fields of each line that is no comment.
func eachLine(path string, add func(fields []string) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	s := bufio.NewScanner(file)
	for s.Scan() {
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		if err := add(strings.Fields(s.Text())); err != nil {
			return fmt.Errorf("%s: %q: %w", path, s.Text(), err)
		}
	}
	return s.Err()
}

// addFamily reads a line such as "apiserver up 1 1".
func (f *facts) addFamily(fields []string) error {
	if len(fields) != 2+len(clusters) {
		return fmt.Errorf("%d fields", len(fields))
	}
	fam := family{job: fields[0], name: fields[1]}
	for _, text := range fields[2:] {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		fam.series = append(fam.series, n)
	}
	f.families = append(f.families, fam)
	return nil
}

// addRow reads a line such as "1.35 a_seconds 2 0.5,0.99 0.1:3 +Inf:1": twice such a
// row, with three values up to 0.1 and one above all bounds.
func (f *facts) addRow(fields []string) error {
	if len(fields) < 5 {
		return fmt.Errorf("%d fields", len(fields))
	}
	r := drawnRow{row: row{cluster: fields[0]}, in: map[float64]float64{}}
	var err error
	if r.times, err = strconv.Atoi(fields[2]); err != nil {
		return err
	}
	for text := range strings.SplitSeq(fields[3], ",") {
		q, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return err
		}
		r.quantiles = append(r.quantiles, q)
	}
	for _, text := range fields[4:] {
		bound, count, _ := strings.Cut(text, ":")
		b, err := strconv.ParseFloat(bound, 64)
		if err != nil {
			return err
		}
		if r.in[b], err = strconv.ParseFloat(count, 64); err != nil {
			return err
		}
	}
	f.rows[fields[1]] = append(f.rows[fields[1]], r)
	return nil
}

// cumulative returns the row by the bounds.
func (r drawnRow) cumulative(bounds []float64) row {
	out, sum := r.row, 0.0
	for _, b := range append(slices.Clone(bounds), none) {
		sum += r.in[b]
		out.counts = append(out.counts, sum)
	}
	return out
}

// read are bounds that stay whatever is measured, by histogram.
var read = map[string][]float64{
	// Published rules read counts at 0.1, 1, 5 and 30, and Gardener has an alert on
	// quantiles above 3.
	"apiserver_request_duration_seconds": {0.1, 1, 3, 5, 30},
	// Error budgets read 1, 5 and 30.
	"apiserver_request_sli_duration_seconds": {1, 5, 30},
	// Versions before 1.24 have only these above 0.5.
	"etcd_request_duration_seconds": {1, 4, 15},
	// Alerts have thresholds here.
	"apiserver_flowcontrol_request_wait_duration_seconds":  {0.5, 1, 5},
	"scheduler_framework_extension_point_duration_seconds": {0.1024},
}

// histograms returns what recommended thins, with the rows that are drawn of it.
func (f *facts) histograms() ([]*histogram, error) {
	p, err := relabel.ProfileByName(relabel.ProfileRecommended)
	if err != nil {
		return nil, err
	}
	var out []*histogram
	for _, r := range p.Rules {
		if r.Thinning == nil {
			continue
		}
		h := &histogram{rule: r, bounds: r.Thinning.Bounds}
		for _, name := range r.Thinning.Histograms {
			h.must = append(h.must, read[name]...)
			for _, drawn := range f.rows[name] {
				h.rows = append(h.rows, drawn.cumulative(h.bounds))
			}
		}
		out = append(out, h)
	}
	return out, nil
}

// share is how many of how many series go.
type share struct{ dropped, all float64 }

func (s share) String() string { return fmt.Sprintf("%.1f %%", 100*s.dropped/s.all) }

// dropped returns what a profile drops of a cluster, by job and, as job "", of all. Of
// thinned histograms that are in stay, those bounds stay, of others what the profile
// leaves. Only rules that read nothing but the name, the job and le can be counted.
func (f *facts) dropped(profile, cluster string, stay map[string][]float64) (map[string]share, error) {
	p, err := relabel.ProfileByName(profile)
	if err != nil {
		return nil, err
	}
	gone := map[string]float64{}
	for _, r := range p.Rules {
		if r.Thinning == nil {
			continue
		}
		for _, h := range r.Thinning.Histograms {
			n := len(r.Thinning.Drop)
			if bounds := stay[h]; bounds != nil {
				n = len(r.Thinning.Bounds) - len(bounds)
			}
			gone[h+"_bucket"] = float64(n) / float64(len(r.Thinning.Bounds)+1)
		}
	}
	p.Rules = slices.DeleteFunc(p.Rules, func(r relabel.Rule) bool { return r.Thinning != nil })
	d, err := relabel.Compile(p)
	if err != nil {
		return nil, err
	}
	out := map[string]share{}
	for _, fam := range f.families {
		n := float64(fam.series[slices.Index(clusters, cluster)])
		s := share{all: n, dropped: n * gone[fam.name]}
		if _, drop := d.Drop(labels.FromStrings(labels.MetricName, fam.name, "job", fam.job)); drop {
			s.dropped = n
		}
		for _, job := range []string{fam.job, ""} {
			out[job] = share{out[job].dropped + s.dropped, out[job].all + s.all}
		}
	}
	return out, nil
}
