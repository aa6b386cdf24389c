// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promapi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

const queryEndpoint = "query"

// Row is a row of the result of an instant query.
type Row struct {
	Labels labels.Labels
	Value  float64
}

// Query evaluates an expression now, or as of the time of As. Native histograms are left out. The error is
// also that of a result with more than Budget.Series rows.
func (c *Client) Query(ctx context.Context, query string) ([]Row, error) {
	type vector struct {
		Result []struct {
			Metric map[string]string
			// Value is the time and the value as text; native histograms have none.
			Value []any
		}
	}
	params := url.Values{"query": {query}, "limit": {strconv.Itoa(c.budget.Series + 1)}}
	if !c.at.IsZero() {
		params.Set("time", Seconds(c.at))
	}
	data, truncated, err := get[vector](ctx, c, queryEndpoint, params)
	if err != nil {
		return nil, err
	}
	if truncated || len(data.Result) > c.budget.Series {
		return nil, fmt.Errorf("the result has more than %d rows (--max-series)", c.budget.Series)
	}
	rows := make([]Row, 0, len(data.Result))
	for _, r := range data.Result {
		if len(r.Value) == 0 {
			continue
		}
		value, err := sampleValue(r.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: query %s: %w", c, query, err)
		}
		rows = append(rows, Row{labels.FromMap(r.Metric), value})
	}
	return rows, nil
}

func sampleValue(pair []any) (float64, error) {
	if len(pair) == 2 {
		if text, ok := pair[1].(string); ok {
			if v, err := strconv.ParseFloat(text, 64); err == nil {
				return v, nil
			}
		}
	}
	return 0, fmt.Errorf("the value %v is not a number", pair)
}

// maxValues bounds how many values of a label are listed. A large cluster has some
// thousand metric names.
const maxValues = 50_000

// lately is an hour ago. Without an end, no clock that is behind leaves the newest
// series out.
func (c *Client) lately() string {
	now := c.at
	if now.IsZero() {
		now = time.Now()
	}
	return strconv.FormatInt(now.Add(-time.Hour).Unix(), 10)
}

// Seconds is a time as the API takes it.
func Seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

// Names returns the names of the metrics of the last hour. The error is also that
// there are more than can be listed.
func (c *Client) Names(ctx context.Context) ([]string, error) {
	return c.values(ctx, model.MetricNameLabel, nil)
}

// Jobs returns the values of job among the series of a name in the last hour.
func (c *Client) Jobs(ctx context.Context, name string) ([]string, error) {
	return c.values(ctx, model.JobLabel, url.Values{"match[]": {Selector([]string{name})}})
}

func (c *Client) values(ctx context.Context, label string, params url.Values) ([]string, error) {
	all := url.Values{"limit": {strconv.Itoa(maxValues)}, "start": {c.lately()}}
	maps.Copy(all, params)
	values, truncated, err := get[[]string](ctx, c, "label/"+label+"/values", all)
	if err == nil && (truncated || len(values) >= maxValues) {
		err = fmt.Errorf("%s: there are more values of %s than the %d that are listed", c, label, len(values))
	}
	return values, err
}

// Types returns the types that targets state of their metrics.
func (c *Client) Types(ctx context.Context) (map[string]model.MetricType, error) {
	type metadata struct{ Type model.MetricType }
	stated, _, err := get[map[string][]metadata](ctx, c, "metadata", url.Values{"limit_per_metric": {"1"}})
	types := make(map[string]model.MetricType, len(stated))
	for name, m := range stated {
		if len(m) > 0 {
			types[name] = m[0].Type
		}
	}
	return types, err
}

// Config returns the server's configuration as YAML.
func (c *Client) Config(ctx context.Context) (string, error) {
	data, _, err := get[struct{ YAML string }](ctx, c, "status/config", nil)
	return data.YAML, err
}

// Head is what a server says about its head.
type Head struct {
	// Series counts those in memory, churned ones included; 0 if it is not known.
	Series int
	// ByName has the names with most series. All other names have at most Rest.
	ByName map[string]int
	Rest   int
}

// AtMost returns how many series a name can have.
func (h Head) AtMost(name string) int {
	if n, ok := h.ByName[name]; ok {
		return n
	}
	return h.Rest
}

// maxTopNames is how many names are asked for. The server goes through all pairs
// of labels and values, and while it holds up new series it compares those that
// are as frequent as the last of the list with all of the list: with the most
// that it allows, 10,000, that takes seconds.
const maxTopNames = 500

// Head asks for the names with most series. With an error, every name is taken to
// have as many as one query may read, so that each is asked for alone.
func (c *Client) Head(ctx context.Context) (Head, error) {
	type status struct {
		HeadStats struct {
			NumSeries int
		}
		SeriesCountByMetricName []struct {
			Name  string
			Value int
		}
	}
	data, _, err := get[status](ctx, c, "status/tsdb", url.Values{"limit": {strconv.Itoa(maxTopNames)}})
	if err != nil {
		return Head{Rest: c.budget.Series}, err
	}
	h := Head{Series: data.HeadStats.NumSeries, ByName: map[string]int{}}
	for i, m := range data.SeriesCountByMetricName {
		h.ByName[m.Name] = m.Value
		if i == 0 || m.Value < h.Rest {
			h.Rest = m.Value
		}
	}
	// A server that knows no limit lists ten.
	if n := len(data.SeriesCountByMetricName); n < maxTopNames && n != 10 {
		h.Rest = 0
	}
	return h, nil
}

// Batch is names for one query.
type Batch struct {
	Names []string
	// Series is how many the names have at most.
	Series int
}

// maxBatch bounds how many names a query has.
const maxBatch = 50

// Batches packs names, the largest first. A batch of several names has no more
// than that many series.
func (h Head) Batches(names []string, series int) []Batch {
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(h.AtMost(b), h.AtMost(a)) })
	var out []Batch
	for _, name := range names {
		n := h.AtMost(name)
		last := len(out) - 1
		if last < 0 || len(out[last].Names) >= maxBatch || out[last].Series+n > series {
			out = append(out, Batch{})
			last++
		}
		out[last].Names = append(out[last].Names, name)
		out[last].Series += n
	}
	return out
}

// RuleGroup is a group of rules that the server evaluates.
type RuleGroup struct {
	Name  string `json:"name"`
	File  string `json:"file"`
	Rules []Rule `json:"rules"`
}

// Rule is one of them.
type Rule struct {
	Type        string            `json:"type"` // alerting or recording
	Name        string            `json:"name"`
	Query       string            `json:"query"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// RuleGroups returns the rules that the server evaluates.
func (c *Client) RuleGroups(ctx context.Context) ([]RuleGroup, error) {
	data, _, err := get[struct{ Groups []RuleGroup }](ctx, c, "rules", nil)
	return data.Groups, err
}
