// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gogo/protobuf/proto"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/util/compression"

	"github.com/promguard/promguard/bench/oomstorm/internal/family"
)

// series is an element of a result of PromQL.
type series struct {
	Metric map[string]string
	Value  [2]any
	Values [][2]any
}

func (s *session) ask(ctx context.Context, query string, at time.Time) ([]series, error) {
	b, err := s.Get(ctx, "/api/v1/query?"+url.Values{"query": {query}, "time": {family.Seconds(at)}}.Encode())
	if err != nil {
		return nil, err
	}
	var answer struct{ Data struct{ Result []series } }
	return answer.Data.Result, json.Unmarshal(b, &answer)
}

// values are those of an instant query, by instance.
func (s *session) values(ctx context.Context, query string, at time.Time) (map[string]float64, error) {
	result, err := s.ask(ctx, query, at)
	values := map[string]float64{}
	for _, r := range result {
		text, _ := r.Value[1].(string)
		v, perr := strconv.ParseFloat(text, 64)
		err = errors.Join(err, perr)
		values[r.Metric["instance"]] = v
	}
	return values, err
}

// times are those at which series were 1 in a window to the phase's end, by the
// value of a label.
func (p *phase) times(ctx context.Context, query, by string) (map[string][]time.Time, error) {
	result, err := p.ask(ctx, query, p.end)
	times := map[string][]time.Time{}
	for _, s := range result {
		for _, v := range s.Values {
			if at, ok := v[0].(float64); ok && v[1] == "1" {
				times[s.Metric[by]] = append(times[s.Metric[by]], time.UnixMilli(int64(at*1000)))
			}
		}
	}
	return times, err
}

// post sends a message of a remote protocol and returns the answer's body.
func (s *session) post(ctx context.Context, path string, m proto.Message) ([]byte, error) {
	raw, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	if raw, err = compression.Encode(compression.Snappy, raw, compression.NewSyncEncodeBuffer()); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("Content-Type", "application/x-protobuf")
	return s.Do(req)
}

// sendAhead sends a sample of a time so far ahead that the head is due to be
// compacted.
func (s *session) sendAhead(ctx context.Context) error {
	_, err := s.post(ctx, "/api/v1/write", &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: "storm_ahead"}},
		Samples: []prompb.Sample{{Timestamp: time.Now().Add(ahead - 10*time.Second).UnixMilli(), Value: 1}},
	}}})
	return err
}

// readWindow bounds what is read at once.
const readWindow = time.Minute

// storedSamples counts the samples of lasting series from start until end, by
// instance. PromQL cannot: functions over ranges want the names gone, and not
// without them are the series different.
func (s *session) storedSamples(ctx context.Context, start, end time.Time) (map[string]float64, error) {
	counts := map[string]float64{}
	for ; start.Before(end); start = start.Add(readWindow) {
		last := start.Add(readWindow)
		if last.After(end) {
			last = end
		}
		body, err := s.post(ctx, "/api/v1/read", &prompb.ReadRequest{Queries: []*prompb.Query{{
			StartTimestampMs: start.UnixMilli() + 1, EndTimestampMs: last.UnixMilli(), // PromQL's windows are open on the left, too.
			Matchers: []*prompb.LabelMatcher{
				{Type: prompb.LabelMatcher_RE, Name: "job", Value: lastingJobs}, {Type: prompb.LabelMatcher_NRE, Name: "__name__", Value: passingNames},
			},
		}}})
		if err != nil {
			return nil, err
		}
		var answer prompb.ReadResponse
		if body, err = compression.Decode(compression.Snappy, body, compression.NewSyncDecodeBuffer()); err == nil {
			err = proto.Unmarshal(body, &answer)
		}
		if err != nil || len(answer.Results) != 1 {
			return nil, errors.Join(err, errors.New("remote read gave no result"))
		}
		for _, series := range answer.Results[0].Timeseries {
			instance := ""
			for _, l := range series.Labels {
				if l.Name == "instance" {
					instance = l.Value
				}
			}
			for _, sample := range series.Samples {
				if !value.IsStaleNaN(sample.Value) {
					counts[instance]++
				}
			}
		}
	}
	return counts, nil
}
