// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package evaluate

import (
	"context"
	"errors"
	"math"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// now is the time of the last sample, in milliseconds; any will do.
const now = int64(1_700_000_000_000)

// ages of the samples of each series, oldest first. Every range that rules use,
// from a minute to days, has at least two.
var ages = []time.Duration{
	3*24*time.Hour - time.Minute, 24*time.Hour - time.Minute, 6*time.Hour - time.Minute, 2*time.Hour - time.Minute, 59 * time.Minute,
	29 * time.Minute, 9 * time.Minute, 4 * time.Minute, 3 * time.Minute, 2 * time.Minute, time.Minute, 30 * time.Second, 0,
}

// history is how much of a counter's value the time before the last sample
// brought.
const history = 4 * 24 * time.Hour

// head holds samples in memory.
type head struct {
	*tsdb.Head

	dir string
	// refs are the head's own names of the series that are scraped.
	refs []storage.SeriesRef
}

func newHead() (*head, error) {
	dir, err := os.MkdirTemp("", "promguard-rules-check-")
	if err != nil {
		return nil, err
	}
	opts := tsdb.DefaultHeadOptions()
	opts.ChunkDirRoot = dir
	// All samples of a series in few chunks, all of them in memory.
	opts.ChunkRange = 2 * history.Milliseconds()
	// Locks for tens of processors take time to make, and there are few series.
	opts.StripeSize = 256
	h, err := tsdb.NewHead(nil, nil, nil, nil, opts, nil)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := h.Init(math.MinInt64); err != nil {
		return nil, errors.Join(err, h.Close(), os.RemoveAll(dir))
	}
	return &head{Head: h, dir: dir}, nil
}

// Close removes what the head wrote.
func (h *head) Close() error {
	return errors.Join(h.Head.Close(), os.RemoveAll(h.dir))
}

// Querier implements storage.Queryable.
func (h *head) Querier(mint, maxt int64) (storage.Querier, error) {
	return tsdb.NewBlockQuerier(tsdb.NewRangeHead(h.Head, mint, maxt), mint, maxt)
}

// scrape appends a sample of each series. They must be the same every time.
func (h *head) scrape(series []Series, age time.Duration) error {
	grown := 1 - float64(age)/float64(history)
	app := h.Appender(context.Background())
	if h.refs == nil {
		h.refs = make([]storage.SeriesRef, len(series))
	}
	for i, s := range series {
		v := s.Value
		if s.Counter {
			v *= grown
		}
		ref, err := app.Append(h.refs[i], s.Labels, now-age.Milliseconds(), v)
		if err != nil {
			return errors.Join(err, app.Rollback())
		}
		h.refs[i] = ref
	}
	return app.Commit()
}

// record appends the result of a recording rule.
func (h *head) record(rows map[string]row, name string, static map[string]string, t int64) error {
	app := h.Appender(context.Background())
	for _, r := range rows {
		b := labels.NewBuilder(r.labels).Set(labels.MetricName, name)
		for k, v := range static {
			b.Set(k, v)
		}
		if _, err := app.Append(0, b.Labels(), t, r.value); err != nil {
			// Two rows may get the same labels; Prometheus drops one too.
			if errors.Is(err, storage.ErrDuplicateSampleForTimestamp) {
				continue
			}
			return errors.Join(err, app.Rollback())
		}
	}
	return app.Commit()
}
