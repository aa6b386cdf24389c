// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/golang/snappy"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// AppendFlags are what a server needs for CompareAppends.
var AppendFlags = []string{"--web.enable-remote-write-receiver", "--enable-feature=metadata-wal-records"}

// CompareAppends compares what no query sees, and the next scrapes depend on: the
// reference that a new series gets, and which metadata the heads take for new.
// Each server gets a sample of a new series, and one of every series that the log
// in data, a data directory, has metadata of, with these. What the servers log then
// must be the same. It changes the heads, so it comes last. The summary is that of
// Compare.
func CompareAppends(ctx context.Context, a, b Head, data string, s Summary) error {
	defer client.CloseIdleConnections()
	told, err := toldMetadata(filepath.Join(data, "wal"))
	if err != nil {
		return err
	}
	told[labels.FromStrings(labels.MetricName, "walreplay_verify_new_series").String()] = toldSeries{
		labels: labels.FromStrings(labels.MetricName, "walreplay_verify_new_series"),
	}
	var logged [2][]string
	for i, h := range []Head{a, b} {
		for _, keys := range slices.Collect(slices.Chunk(slices.Sorted(maps.Keys(told)), 1000)) {
			if err := write(ctx, h, told, keys, s.maxTime+1000); err != nil {
				return err
			}
		}
		if logged[i], err = lastLogged(filepath.Join(h.Dir, "wal")); err != nil {
			return err
		}
	}
	for i := range max(len(logged[0]), len(logged[1])) {
		switch {
		case i == len(logged[1]) || i < len(logged[0]) && logged[0][i] < logged[1][i]:
			return differ("of new samples %s logged %s, and %s did not", a.Name, logged[0][i], b.Name)
		case i == len(logged[0]) || logged[0][i] > logged[1][i]:
			return differ("of new samples %s logged %s, and %s did not", b.Name, logged[1][i], a.Name)
		}
	}
	return nil
}

// toldSeries is a series and its last metadata in a log.
type toldSeries struct {
	labels labels.Labels
	metadata.Metadata
}

// toldMetadata returns the series with metadata, by their labels.
func toldMetadata(wal string) (map[string]toldSeries, error) {
	told, series := map[string]toldSeries{}, map[chunks.HeadSeriesRef]labels.Labels{}
	take := func(dec *record.Decoder, rec []byte) error {
		switch dec.Type(rec) {
		case record.Series:
			all, err := dec.Series(rec, nil)
			for _, s := range all {
				series[s.Ref] = s.Labels
			}
			return err
		case record.Metadata:
			all, err := dec.Metadata(rec, nil)
			for _, m := range all {
				if ls, ok := series[m.Ref]; ok {
					told[ls.String()] = toldSeries{ls, metadata.Metadata{Type: record.ToMetricType(m.Type), Unit: m.Unit, Help: m.Help}}
				}
			}
			return err
		}
		return nil
	}
	from := 0
	dir, at, err := wlog.LastCheckpoint(wal)
	if err == nil {
		from = at + 1
		err = readLog(wlog.SegmentRange{Dir: dir, First: -1, Last: -1}, take)
	}
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return nil, err
	}
	return told, readLog(wlog.SegmentRange{Dir: wal, First: from, Last: -1}, take)
}

// readLog reads up to where a log is corrupt, as a replay does.
func readLog(segments wlog.SegmentRange, take func(*record.Decoder, []byte) error) error {
	sr, err := wlog.NewSegmentsRangeReader(segments)
	if err != nil {
		return err
	}
	defer sr.Close()
	dec := record.NewDecoder(labels.NewSymbolTable(), promslog.NewNopLogger())
	r := wlog.NewReader(sr)
	for r.Next() {
		if err := take(&dec, r.Record()); err != nil {
			return err
		}
	}
	return nil
}

// lastLogged returns what the last segment says of series and metadata.
func lastLogged(wal string) (all []string, err error) {
	_, last, err := wlog.Segments(wal)
	if err != nil {
		return nil, err
	}
	err = readLog(wlog.SegmentRange{Dir: wal, First: last, Last: last}, func(dec *record.Decoder, rec []byte) error {
		switch dec.Type(rec) {
		case record.Series:
			series, err := dec.Series(rec, nil)
			for _, s := range series {
				all = append(all, fmt.Sprintf("a series %s with the reference %d", s.Labels, s.Ref))
			}
			return err
		case record.Metadata:
			ms, err := dec.Metadata(rec, nil)
			for _, m := range ms {
				all = append(all, fmt.Sprintf("new metadata of the reference %d", m.Ref))
			}
			return err
		}
		return nil
	})
	slices.Sort(all)
	return all, err
}

// write sends a sample of each of the series by remote write 2.0.
func write(ctx context.Context, h Head, told map[string]toldSeries, keys []string, t int64) error {
	symbols := writev2.NewSymbolTable()
	req := &writev2.Request{}
	for _, key := range keys {
		s := told[key]
		req.Timeseries = append(req.Timeseries, writev2.TimeSeries{
			LabelsRefs: symbols.SymbolizeLabels(s.labels, nil),
			Samples:    []writev2.Sample{{Timestamp: t, Value: 1}},
			Metadata:   writev2.Metadata{Type: writev2.FromMetadataType(s.Type), HelpRef: symbols.Symbolize(s.Help), UnitRef: symbols.Symbolize(s.Unit)},
		})
	}
	req.Symbols = symbols.Symbols()
	b, err := req.Marshal()
	if err != nil {
		return err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL+"/api/v1/write", bytes.NewReader(snappy.Encode(nil, b)))
	if err != nil {
		return err
	}
	post.Header.Set("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")
	post.Header.Set("Content-Encoding", "snappy")
	post.Header.Set("X-Prometheus-Remote-Write-Version", "2.0.0")
	res, err := client.Do(post)
	if err != nil {
		return fmt.Errorf("writing to %s: %w", h.Name, err)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("writing to %s: %w", h.Name, refused(res))
	}
	return nil
}
