// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package grafana

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pixels is how wide a dashboard is, of which a panel of w columns gets w/24.
const (
	pixels  = 1600
	columns = 24
)

// Source is Prometheus as a data source, with the settings of
// deploy/grafana/provisioning.
type Source struct {
	// URL is the root of the API.
	URL string
	// ScrapeInterval is the data source's timeInterval.
	ScrapeInterval time.Duration
	// Timeout is sent with each query.
	Timeout string
	// From and To are the time shown.
	From, To time.Time
}

// Result is what a query gave: an answer, and in it an error, warnings or series.
type Result struct {
	// Code is the status of the answer.
	Code int `json:"code"`
	// Expr is what was asked, and Step at which resolution.
	Expr string        `json:"expr"`
	Step time.Duration `json:"step"`
	// Error is the text that the panel shows.
	Error    string   `json:"error,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Series are in the order of the answer.
	Series []Series `json:"-"`
	Frames []Frame  `json:"frames"`
}

// Series is a series of an answer, or a sample of one.
type Series struct {
	Metric map[string]string `json:"metric"`
	Value  *point            `json:"value"`
	Values []point           `json:"values"`
}

// point is [seconds, "value"].
type point [2]any

func (p point) parse() (ms int64, v float64, err error) {
	seconds, ok := p[0].(float64)
	text, isText := p[1].(string)
	if !ok || !isText {
		return 0, 0, fmt.Errorf("%v is no point", p)
	}
	v, err = strconv.ParseFloat(text, 64)
	return int64(seconds*1000 + .5), v, err
}

// Ask asks what a target of a panel asks. variables are the dashboard's.
func (s Source) Ask(ctx context.Context, d *Dashboard, p Panel, t Target, variables map[string]string) (Result, error) {
	every := step(s.To.Sub(s.From), s.ScrapeInterval, pixels*p.GridPos.W/columns)
	values := maps.Clone(variables)
	values["__interval"] = duration(every)
	values["__rate_interval"] = duration(rateInterval(every, s.ScrapeInterval))
	values["__range"] = duration(s.To.Sub(s.From))
	expr, err := fill(t.Expr, values)
	if err != nil {
		return Result{}, err
	}
	r := Result{Expr: expr, Step: every}
	form := url.Values{"query": {expr}, "timeout": {s.Timeout}}
	path := "query"
	if t.Instant {
		form.Set("time", seconds(s.To))
	} else {
		path = "query_range"
		form.Set("start", seconds(s.From.Truncate(every)))
		form.Set("end", seconds(s.To.Truncate(every)))
		form.Set("step", strconv.FormatFloat(every.Seconds(), 'f', -1, 64))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/api/v1/"+path, strings.NewReader(form.Encode()))
	if err != nil {
		return Result{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("X-Dashboard-Uid", d.UID)
	req.Header.Set("X-Panel-Id", strconv.Itoa(p.ID))
	if err := do(req, &r); err != nil {
		return Result{}, err
	}
	// Grafana shows series in the order of the answer, which changes for range
	// queries from time to time: sorted, the same data gives the same colours.
	slices.SortStableFunc(r.Series, func(a, b Series) int { return cmp.Compare(fmt.Sprint(a.Metric), fmt.Sprint(b.Metric)) })
	for _, series := range r.Series {
		f, err := frame(t, expr, every, series)
		if err != nil {
			return Result{}, err
		}
		r.Frames = append(r.Frames, f)
	}
	return r, nil
}

func seconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// do sends a request and reads the answer into r. An answer that says what is
// wrong is no error.
func do(req *http.Request, r *Result) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Status   string
		Error    string
		Warnings []string
		Infos    []string
		Data     struct{ Result json.RawMessage }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%s: %w: %.200s", resp.Status, err, body)
	}
	r.Code, r.Error, r.Warnings = resp.StatusCode, answer.Error, slices.Concat(answer.Warnings, answer.Infos)
	if answer.Status != "success" {
		return nil
	}
	return json.Unmarshal(answer.Data.Result, &r.Series)
}
