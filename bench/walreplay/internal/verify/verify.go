// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package verify compares what queries can see of two servers: every sample of
// every series, the exemplars, which series there are in parts of the time,
// labels, and what the heads say of themselves.
package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Head is a server to compare.
type Head struct {
	Name string
	URL  string // without a slash at its end
	Dir  string // its data directory
}

// Summary is what two heads have in common.
type Summary struct {
	Series      int `json:"series"`  // with samples
	Samples     int `json:"samples"` // floats and histograms
	Histograms  int `json:"histograms"`
	Exemplars   int `json:"exemplars"`
	LabelNames  int `json:"label_names"`
	LabelValues int `json:"label_values"` // of all names
	// Fingerprint is a hash of all series and samples, which does not depend on
	// how they lie in chunks.
	Fingerprint string `json:"fingerprint"`
	// Chunks are the heads' numbers of chunks. They may differ: no query sees
	// them.
	Chunks [2]int64 `json:"chunks"`

	maxTime int64
}

// Compare returns a *Difference if the heads are not the same, and another error
// if they cannot be compared.
func Compare(ctx context.Context, a, b Head) (Summary, error) {
	defer client.CloseIdleConnections()
	s, status, err := compareSamples(ctx, a, b)
	if err != nil {
		return Summary{}, err
	}
	if err := compareRanges(ctx, a, b, status); err != nil {
		return Summary{}, err
	}
	if s.LabelNames, s.LabelValues, err = compareLabels(ctx, a, b, status); err != nil {
		return Summary{}, err
	}
	return s, nil
}

// CompareSamples is Compare of all series with their samples, of exemplars, and of what
// the heads say of themselves. It takes minutes where the lists of labels take an hour.
func CompareSamples(ctx context.Context, a, b Head) (Summary, error) {
	defer client.CloseIdleConnections()
	s, _, err := compareSamples(ctx, a, b)
	return s, err
}

func compareSamples(ctx context.Context, a, b Head) (s Summary, of headStats, err error) {
	c := &comparison{names: [2]string{a.Name, b.Name}, ctx: ctx, fingerprint: newFingerprint()}
	if err := compareStreams(ctx, c, a, b); err != nil {
		return s, of, err
	}
	s = Summary{Series: c.series, Samples: c.floats + c.histograms, Histograms: c.histograms, Fingerprint: c.fingerprint.String()}
	status, err := compareStatus(ctx, a, b)
	if err != nil {
		return s, of, err
	}
	s.maxTime = status[0].MaxTime
	s.Chunks = [2]int64{status[0].ChunkCount, status[1].ChunkCount}
	s.Exemplars, err = compareExemplars(ctx, a, b, status[0])
	return s, status[0], err
}

func compareStreams(ctx context.Context, c *comparison, a, b Head) error {
	ctx, cancel := context.WithCancel(ctx) // Ends the answers that are not read to their end.
	defer cancel()
	x, err := everything(ctx, a.URL)
	if err != nil {
		return fmt.Errorf("reading everything from %s: %w", a.Name, err)
	}
	defer x.Close()
	y, err := everything(ctx, b.URL)
	if err != nil {
		return fmt.Errorf("reading everything from %s: %w", b.Name, err)
	}
	defer y.Close()
	return c.streams(x, y)
}

// headStats is what a head says of itself.
type headStats struct {
	NumSeries     int64
	NumLabelPairs int64
	ChunkCount    int64
	MinTime       int64
	MaxTime       int64
}

// gauges are the metrics about the head that a replay sets. Which of them there
// are depends on the version: one that only one side has is left out.
var gauges = []string{
	"prometheus_tsdb_head_series", "prometheus_tsdb_head_stale_series",
	"prometheus_tsdb_head_native_histogram_series", "prometheus_tsdb_head_native_histogram_buckets",
	"prometheus_tsdb_exemplar_exemplars_in_storage", "prometheus_tsdb_exemplar_series_with_exemplars_in_storage",
}

func compareStatus(ctx context.Context, a, b Head) (stats [2]headStats, err error) {
	var found [2]map[string]string
	for i, h := range []Head{a, b} {
		var answer struct{ HeadStats headStats }
		if err := get(ctx, h, "/api/v1/status/tsdb", nil, func(dec *json.Decoder) error { return dec.Decode(&answer) }); err != nil {
			return stats, err
		}
		stats[i] = answer.HeadStats
		if found[i], err = metrics(ctx, h); err != nil {
			return stats, err
		}
	}
	x, y := stats[0], stats[1]
	for _, f := range []struct {
		name string
		x, y int64
	}{{"series", x.NumSeries, y.NumSeries}, {"label pairs", x.NumLabelPairs, y.NumLabelPairs}, {"min time", x.MinTime, y.MinTime}, {"max time", x.MaxTime, y.MaxTime}} {
		if f.x != f.y {
			return stats, differ("%s of the head: %s has %d, %s has %d", f.name, a.Name, f.x, b.Name, f.y)
		}
	}
	for _, g := range gauges {
		x, inX := found[0][g]
		y, inY := found[1][g]
		if inX && inY && x != y {
			return stats, differ("%s: %s has %s, %s has %s", g, a.Name, x, b.Name, y)
		}
	}
	return stats, nil
}

// metrics reads the metrics without labels.
func metrics(ctx context.Context, h Head) (map[string]string, error) {
	res, err := do(ctx, h, "/metrics", nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: /metrics: %w", h.Name, err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			all[name] = v
		}
	}
	return all, nil
}

// rangesCompared is into how many parts the head's time is cut.
const rangesCompared = 4

// compareRanges compares which series have samples from each part of the time on.
// Nothing is asked for that ends before the head does: upstream up to 3.16 cannot
// cut a chunk in which there are several deletions.
func compareRanges(ctx context.Context, a, b Head, s headStats) error {
	step := max(1, (s.MaxTime-s.MinTime+rangesCompared)/rangesCompared)
	for from := s.MinTime; from <= s.MaxTime; from += step {
		if err := compareFound(ctx, a, b, `{__name__!=""}`, from, s.MaxTime); err != nil {
			return err
		}
	}
	return nil
}

// compareFound compares the series that a selector finds.
func compareFound(ctx context.Context, a, b Head, selector string, from, to int64) error {
	query := url.Values{"match[]": {selector}, "start": {seconds(from)}, "end": {seconds(to + day)}}
	x, err := digest(ctx, a, "/api/v1/series", query)
	if err != nil {
		return err
	}
	y, err := digest(ctx, b, "/api/v1/series", query)
	if err != nil {
		return err
	}
	if x != y {
		return differ("series that %s finds from %s to %s: %s has %s, %s has %s", selector, seconds(from), seconds(to), a.Name, x, b.Name, y)
	}
	return nil
}

const day = 24 * 60 * 60 * 1000 // in milliseconds

// seconds writes a time in milliseconds as the API takes it.
func seconds(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64) }

// set sums up a list whatever its order.
type set struct {
	n   int
	sum uint64 // of the elements' hashes
}

func (s *set) add(element any) error {
	canonical, err := json.Marshal(element) // Sorts the keys.
	s.n++
	s.sum += xxhash.Sum64(canonical)
	return err
}

func digestOf(list []string) (s set) {
	for _, element := range list {
		_ = s.add(element) // A string has no errors.
	}
	return s
}

func (s set) String() string { return fmt.Sprintf("%d (%016x)", s.n, s.sum) }

// digest reads a list and keeps its sum only.
func digest(ctx context.Context, h Head, path string, query url.Values) (s set, err error) {
	err = get(ctx, h, path, query, func(dec *json.Decoder) error {
		return elements(dec, func() error {
			var element any
			if err := dec.Decode(&element); err != nil {
				return err
			}
			return s.add(element)
		})
	})
	return s, err
}

func compareLabels(ctx context.Context, a, b Head, stats headStats) (names, values int, err error) {
	var found [2][]string
	for i, h := range []Head{a, b} {
		if err := get(ctx, h, "/api/v1/labels", nil, func(dec *json.Decoder) error { return dec.Decode(&found[i]) }); err != nil {
			return 0, 0, err
		}
		slices.Sort(found[i])
	}
	if !slices.Equal(found[0], found[1]) {
		return 0, 0, differ("label names: %s has %q, %s has %q", a.Name, found[0], b.Name, found[1])
	}
	for _, name := range found[0] {
		n, err := compareLabel(ctx, a, b, name, stats)
		if err != nil {
			return 0, 0, err
		}
		values += n
	}
	return len(found[0]), values, nil
}

// compareLabel compares the values of a label, and which series are found by it
// and by each of its values: those are lists of their own in a head.
func compareLabel(ctx context.Context, a, b Head, name string, stats headStats) (int, error) {
	x, err := digest(ctx, a, labelPath(name), nil)
	if err != nil {
		return 0, err
	}
	var values []string
	if err := get(ctx, b, labelPath(name), nil, func(dec *json.Decoder) error { return dec.Decode(&values) }); err != nil {
		return 0, err
	}
	if y := digestOf(values); x != y {
		return 0, differ("values of the label %s: %s has %s, %s has %s", name, a.Name, x, b.Name, y)
	}
	slices.Sort(values)
	quoted := strconv.Quote(name)
	// Lists that are not in order get lost where several are merged.
	if err := compareFound(ctx, a, b, fmt.Sprintf(`{%s!="",__name__!=""}`, quoted), stats.MinTime, stats.MaxTime); err != nil {
		return 0, err
	}
	for several := range slices.Chunk(values, 1+len(values)/pairsCompared) {
		selector := fmt.Sprintf(`{%s=%s}`, quoted, strconv.Quote(several[0]))
		if len(several) > 1 {
			for i, v := range several {
				several[i] = regexp.QuoteMeta(v)
			}
			selector = fmt.Sprintf(`{%s=~%s}`, quoted, strconv.Quote(strings.Join(several, "|")))
		}
		if err := compareFound(ctx, a, b, selector, stats.MinTime, stats.MaxTime); err != nil {
			return 0, err
		}
	}
	return len(values), nil
}

// pairsCompared is about how many requests are made for the values of one label.
// If it has more values, several are in one request.
const pairsCompared = 20_000

// labelPath is where the values of a label are. A name that is not of the old
// kind goes in its escaped form.
func labelPath(name string) string {
	return "/api/v1/label/" + url.PathEscape(escaped(name)) + "/values"
}

// client follows no time limit of its own: an answer may be large.
var client = &http.Client{Transport: &http.Transport{DisableCompression: true}}

func do(ctx context.Context, h Head, path string, query url.Values) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.Name, err)
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		return nil, fmt.Errorf("%s: %s: %w", h.Name, path, refused(res))
	}
	return res, nil
}

// refused is the error of an answer that is none.
func refused(res *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(res.Body, 300))
	return fmt.Errorf("the server answered %s: %s", res.Status, strings.Join(strings.Fields(string(text)), " "))
}

// get asks for a path and calls data with a decoder that stands before the
// answer's data.
func get(ctx context.Context, h Head, path string, query url.Values, data func(*json.Decoder) error) error {
	res, err := do(ctx, h, path, query)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	dec := json.NewDecoder(res.Body)
	if err := envelope(dec, data); err != nil {
		return fmt.Errorf("%s: %s: %w", h.Name, path, err)
	}
	return nil
}

// envelope reads {"status":"success","data":...} to its end.
func envelope(dec *json.Decoder, data func(*json.Decoder) error) error {
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errors.Join(errors.New("this is not an answer of the API"), err)
	}
	found := false
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		if key == "data" {
			found = true
			err = data(dec)
		} else {
			err = dec.Decode(new(any))
		}
		if err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return err
	}
	if !found {
		return errors.New("the answer has no data")
	}
	return nil
}

// elements calls each before every element of a list.
func elements(dec *json.Decoder, each func() error) error {
	t, err := dec.Token()
	if err != nil || t == nil { // null
		return err
	}
	if t != json.Delim('[') {
		return fmt.Errorf("unexpected %v", t)
	}
	for dec.More() {
		if err := each(); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}
