// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/promguard/promguard/internal/promapi"
)

// question is a request to the API of Prometheus.
type question struct {
	path string
	form url.Values
}

// instant asks for a time; the zero value is now.
func instant(query string, at time.Time) question {
	form := url.Values{"query": {query}}
	if !at.IsZero() {
		form.Set("time", promapi.Seconds(at))
	}
	return question{"/api/v1/query", form}
}

func ranged(query string, start, end time.Time, step time.Duration) question {
	return question{"/api/v1/query_range", url.Values{
		"query": {query}, "start": {promapi.Seconds(start)}, "end": {promapi.Seconds(end)}, "step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
	}}
}

// reply is an answer of the API, or an error that it gave.
type reply struct {
	Status, Error   string
	Warnings, Infos []string
	Data            struct {
		ResultType string
		Result     json.RawMessage
	}
}

// missing are the warnings that something is missing: not those of PromQL about the
// query, which Thanos has among them.
func (r *reply) missing() []string {
	return slices.DeleteFunc(slices.Clone(r.Warnings), func(w string) bool { return strings.HasPrefix(w, "PromQL ") })
}

// ask asks a server. It is an error if no answer comes; one that says why is a reply.
func ask(ctx context.Context, root string, q question) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, root+q.path, strings.NewReader(q.form.Encode()))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return reply{}, err
	}
	var r reply
	if err := json.Unmarshal(text, &r); err != nil {
		return reply{}, fmt.Errorf("%s: %.200s", res.Status, text)
	}
	if res.StatusCode/100 == 5 {
		return r, fmt.Errorf("%s: %s", res.Status, r.Error)
	}
	return r, nil
}

// series is a row of an answer.
type series struct {
	Metric map[string]string
	Value  [2]any
	Values [][2]any
}

// points are the values of an answer by labels and time, without the label that all
// servers of a shard share.
func (r *reply) points() (map[string]float64, error) {
	var rows []series
	switch r.Data.ResultType {
	case "scalar", "string":
		rows = make([]series, 1)
		if err := json.Unmarshal(r.Data.Result, &rows[0].Value); err != nil {
			return nil, err
		}
	default:
		if err := json.Unmarshal(r.Data.Result, &rows); err != nil {
			return nil, err
		}
	}
	points := map[string]float64{}
	for _, s := range rows {
		key := strings.Builder{}
		for _, name := range slices.Sorted(maps.Keys(s.Metric)) {
			if name != prometheusLabel {
				fmt.Fprintf(&key, "%s=%q,", name, s.Metric[name])
			}
		}
		if len(s.Values) == 0 {
			s.Values = [][2]any{s.Value}
		}
		for _, v := range s.Values {
			text, _ := v[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, fmt.Errorf("%v is no value: %w", v[1], err)
			}
			at := fmt.Sprintf("{%s} at %v", key.String(), v[0])
			if _, twice := points[at]; twice {
				return nil, fmt.Errorf("%s is there twice", at)
			}
			points[at] = value
		}
	}
	return points, nil
}

// number is the value of an answer of one, otherwise NaN.
func (r *reply) number() float64 {
	points, err := r.points()
	if err != nil || len(points) != 1 {
		return math.NaN()
	}
	for _, v := range points {
		return v
	}
	return math.NaN()
}
