// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// Server is a Prometheus whose series are read, a metric name at a time and one
// request after the other, so that it does not suffer.
type Server struct {
	// URL is where the API begins, without /api/v1.
	URL string
	// MaxSeries bounds what is read.
	MaxSeries int
	// Client may be nil.
	Client *http.Client
}

// maxAnswer bounds one answer, in bytes, and requestTimeout how long it may take.
const (
	maxAnswer      = 512 << 20
	requestTimeout = time.Minute
)

// Read returns the series, with their last values, of the metric names for which
// wanted is true. Names with a colon are left out: they are recorded, and the
// recording rules are evaluated anew.
func (s Server) Read(ctx context.Context, wanted func(name string) bool) ([]Series, error) {
	var names []string
	if err := s.get(ctx, "label/"+labels.MetricName+"/values", nil, &names); err != nil {
		return nil, err
	}
	types, err := s.types(ctx)
	if err != nil {
		return nil, err
	}
	var all []Series
	for _, name := range names {
		if strings.Contains(name, ":") || !wanted(name) {
			continue
		}
		series, err := s.series(ctx, name, types)
		if err != nil {
			return nil, err
		}
		if all = append(all, series...); len(all) > s.MaxSeries {
			return nil, fmt.Errorf("%s: more than %d series would have to be read; give a scrape with --exposition, or a higher --max-series", s.redacted(), s.MaxSeries)
		}
	}
	return all, nil
}

// types are those that targets state, by metric.
func (s Server) types(ctx context.Context) (map[string]model.MetricType, error) {
	var metadata map[string][]struct {
		Type model.MetricType `json:"type"`
	}
	if err := s.get(ctx, "metadata", url.Values{"limit_per_metric": {"1"}}, &metadata); err != nil {
		return nil, err
	}
	types := map[string]model.MetricType{}
	for name, m := range metadata {
		if len(m) > 0 {
			types[name] = m[0].Type
		}
	}
	return types, nil
}

func (s Server) series(ctx context.Context, name string, types map[string]model.MetricType) ([]Series, error) {
	var answer struct {
		Result []struct {
			Metric map[string]string `json:"metric"`
			// Value is the time and the value as text; native histograms have
			// none.
			Value []any `json:"value"`
		} `json:"result"`
	}
	query := "{" + strconv.Quote(name) + "}"
	if model.LegacyValidation.IsValidMetricName(name) {
		query = name
	}
	if err := s.get(ctx, "query", url.Values{"query": {query}}, &answer); err != nil {
		return nil, err
	}
	out := make([]Series, 0, len(answer.Result))
	for _, r := range answer.Result {
		if len(r.Value) != 2 {
			continue
		}
		text, ok := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("%s: query %s: the value %v is not a number", s.redacted(), query, r.Value[1])
		}
		lset := labels.FromMap(r.Metric)
		out = append(out, Series{Labels: lset, Value: value, Counter: isCounter(lset, types)})
	}
	return out, nil
}

func (s Server) get(ctx context.Context, path string, params url.Values, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	target := strings.TrimSuffix(s.URL, "/") + "/api/v1/" + path
	if len(params) > 0 {
		target += "?" + params.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return err
	}
	client := s.Client
	if client == nil {
		client = http.DefaultClient
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var answer struct {
		Status string          `json:"status"`
		Error  string          `json:"error"`
		Data   json.RawMessage `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(&answer); err != nil {
		return fmt.Errorf("%s/api/v1/%s: %s, and no answer of Prometheus's API: %w", s.redacted(), path, res.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s/api/v1/%s: %s: %s", s.redacted(), path, res.Status, answer.Error)
	}
	if err := json.Unmarshal(answer.Data, into); err != nil {
		return fmt.Errorf("%s/api/v1/%s: %w", s.redacted(), path, err)
	}
	return nil
}

// redacted is the URL for messages, without a password.
func (s Server) redacted() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return "the server"
	}
	return strings.TrimSuffix(u.Redacted(), "/")
}
