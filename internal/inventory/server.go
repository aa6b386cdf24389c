// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// Server is a live Prometheus, or what speaks its API, that is asked within a
// budget: one request at a time, each with a time limit that the server is told,
// and after each as long a pause as it took. It is not safe for concurrent use.
type Server struct {
	// URL is where the API begins, without /api/v1.
	URL string
	// Client may be nil.
	Client *http.Client
	// Timeout bounds one request, and Total all of them with the pauses.
	Timeout, Total time.Duration
	// MaxQueries bounds how many requests are made.
	MaxQueries int
	// MaxSeries bounds how many series one query reads, as far as that is known
	// beforehand, and how many rows it returns.
	MaxSeries int

	asked, failed int
	until         time.Time
	// Sleep is for tests; nil means to wait.
	Sleep func(context.Context, time.Duration)
}

// ErrBudget says that no more may be asked of the server.
var ErrBudget = errors.New("the budget is used up")

// maxFailures is after how many requests in a row that the server could not answer
// no more are made. grace is how much longer than told a server may take, so that
// it can say itself that time is up.
const (
	maxFailures = 3
	grace       = 5 * time.Second
)

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 64 << 20

// Row is a row of the result of an instant query.
type Row struct {
	Labels labels.Labels
	Value  float64
}

// Query evaluates an expression now. The error is also that of a result with
// more than MaxSeries rows, of which some are then missing.
func (s *Server) Query(ctx context.Context, query string) ([]Row, error) {
	var data struct {
		Result []struct {
			Metric map[string]string `json:"metric"`
			// Value is the time and the value as text; native histograms have none.
			Value []any `json:"value"`
		} `json:"result"`
	}
	limit := strconv.Itoa(s.MaxSeries + 1)
	seconds := strconv.FormatFloat(s.Timeout.Seconds(), 'f', -1, 64)
	truncated, err := s.get(ctx, "query", url.Values{"query": {query}, "limit": {limit}, "timeout": {seconds}}, &data)
	if err != nil {
		return nil, err
	}
	if truncated || len(data.Result) > s.MaxSeries {
		return nil, fmt.Errorf("the result has more than %d rows", s.MaxSeries)
	}
	rows := make([]Row, 0, len(data.Result))
	for _, r := range data.Result {
		if len(r.Value) != 2 {
			continue
		}
		text, ok := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("%s: query %s: the value %v is not a number", s, query, r.Value[1])
		}
		rows = append(rows, Row{labels.FromMap(r.Metric), value})
	}
	return rows, nil
}

// maxNames bounds how many metric names are read. A large cluster has some
// thousand.
const maxNames = 50_000

// lately is an hour ago. Without an end, no clock that is behind leaves the newest
// series out.
func lately() string { return strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10) }

// Names returns the names of the metrics of the last hour. The error is also that
// there are more than can be listed.
func (s *Server) Names(ctx context.Context) ([]string, error) {
	var names []string
	params := url.Values{"limit": {strconv.Itoa(maxNames)}, "start": {lately()}}
	truncated, err := s.get(ctx, "label/"+model.MetricNameLabel+"/values", params, &names)
	if err == nil && (truncated || len(names) >= maxNames) {
		err = fmt.Errorf("%s: there are more metric names than the %d that are listed", s, len(names))
	}
	return names, err
}

// Head is what a server says about its head.
type Head struct {
	// Series counts those in memory, churned ones included.
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

// Head asks for the names with most series.
func (s *Server) Head(ctx context.Context) (Head, error) {
	var data struct {
		HeadStats struct {
			NumSeries int `json:"numSeries"`
		} `json:"headStats"`
		SeriesCountByMetricName []struct {
			Name  string `json:"name"`
			Value int    `json:"value"`
		} `json:"seriesCountByMetricName"`
	}
	if _, err := s.get(ctx, "status/tsdb", url.Values{"limit": {strconv.Itoa(maxTopNames)}}, &data); err != nil {
		return Head{}, err
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

// Jobs returns the values of job among the series of a name in the last hour.
func (s *Server) Jobs(ctx context.Context, name string) ([]string, error) {
	var jobs []string
	params := url.Values{"match[]": {Selector([]string{name})}, "limit": {strconv.Itoa(maxNames)}, "start": {lately()}}
	_, err := s.get(ctx, "label/"+model.JobLabel+"/values", params, &jobs)
	return jobs, err
}

// Selector returns a selector of the series with one of the names and of the
// matchers.
func Selector(names []string, matchers ...*labels.Matcher) string {
	name := labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, names[0])
	if len(names) > 1 {
		name = labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, OneOf(names))
	}
	terms := []string{name.String()}
	for _, m := range matchers {
		terms = append(terms, m.String())
	}
	return "{" + strings.Join(terms, ",") + "}"
}

// OneOf returns a regular expression of the texts.
func OneOf(texts []string) string {
	quoted := make([]string, 0, len(texts))
	for _, t := range texts {
		quoted = append(quoted, regexp.QuoteMeta(t))
	}
	return strings.Join(quoted, "|")
}

// LabelName writes a label's name as PromQL's by has it.
func LabelName(name string) string {
	if model.LegacyValidation.IsValidLabelName(name) {
		return name
	}
	return strconv.Quote(name)
}

// Config returns the server's configuration as YAML.
func (s *Server) Config(ctx context.Context) (string, error) {
	var data struct {
		YAML string `json:"yaml"`
	}
	_, err := s.get(ctx, "status/config", nil, &data)
	return data.YAML, err
}

// get asks the API. truncated says that the server has left something out.
func (s *Server) get(ctx context.Context, path string, params url.Values, into any) (truncated bool, err error) {
	if err := s.admit(); err != nil {
		return false, err
	}
	began := time.Now()
	truncated, err = s.request(ctx, path, params, into)
	s.rest(ctx, time.Since(began))
	return truncated, err
}

// admit takes a request from the budget.
func (s *Server) admit() error {
	if s.until.IsZero() {
		s.until = time.Now().Add(s.Total)
	}
	if s.asked >= s.MaxQueries {
		return fmt.Errorf("%w: %d requests have been made", ErrBudget, s.asked)
	}
	if !time.Now().Before(s.until) {
		return fmt.Errorf("%w: %s have passed", ErrBudget, s.Total)
	}
	if s.failed >= maxFailures {
		return fmt.Errorf("%w: the server did not answer %d times in a row", ErrBudget, s.failed)
	}
	s.asked++
	return nil
}

// rest leaves the server to others for as long as it has worked.
func (s *Server) rest(ctx context.Context, d time.Duration) {
	if s.Sleep != nil {
		s.Sleep(ctx, d)
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Asked returns how many requests were made.
func (s *Server) Asked() int { return s.asked }

func (s *Server) request(ctx context.Context, path string, params url.Values, into any) (truncated bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout+grace)
	defer cancel()
	target := strings.TrimSuffix(s.URL, "/") + "/api/v1/" + path
	method, body := http.MethodGet, io.Reader(http.NoBody)
	if path == "query" {
		// A query may be longer than a URL can be.
		method, body = http.MethodPost, strings.NewReader(params.Encode())
	} else if len(params) > 0 {
		target += "?" + params.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return false, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	client := s.Client
	if client == nil {
		client = http.DefaultClient
	}
	s.failed++
	res, err := client.Do(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	if res.StatusCode < http.StatusInternalServerError {
		s.failed = 0
	}
	var answer struct {
		Status   string          `json:"status"`
		Error    string          `json:"error"`
		Warnings []string        `json:"warnings"`
		Data     json.RawMessage `json:"data"`
	}
	text := &io.LimitedReader{R: res.Body, N: maxAnswer}
	if err := json.NewDecoder(text).Decode(&answer); err != nil {
		if text.N == 0 {
			err = fmt.Errorf("it is longer than %d MiB", maxAnswer>>20)
		}
		return false, fmt.Errorf("%s/api/v1/%s: %s, and no answer of Prometheus's API: %w", s, path, res.Status, err)
	}
	if answer.Status != "success" {
		return false, fmt.Errorf("%s/api/v1/%s: %s: %s", s, path, res.Status, answer.Error)
	}
	for _, w := range answer.Warnings {
		truncated = truncated || strings.Contains(w, "truncated")
	}
	if err := json.Unmarshal(answer.Data, into); err != nil {
		return false, fmt.Errorf("%s/api/v1/%s: %w", s, path, err)
	}
	return truncated, nil
}

// String is the URL without a password.
func (s *Server) String() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return "the server"
	}
	return strings.TrimSuffix(u.Redacted(), "/")
}
