// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// All series of a first scrape are in the log, before their samples, in records of
// bounded size.
func TestSeriesOfALargeTargetAreLoggedInSeveralRecords(t *testing.T) {
	for _, n := range []int{1, maxSeriesInRecord, maxSeriesInRecord + 1, 3*maxSeriesInRecord - 1} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			h, wal := newTestHead(t, 1000, "none", false)
			app := h.Appender(context.Background())
			want := map[chunks.HeadSeriesRef]string{}
			for i := range n {
				lset := labels.FromStrings("__name__", "m", "i", strconv.Itoa(i))
				ref, err := app.Append(0, lset, 1, float64(i))
				require.NoError(t, err)
				want[chunks.HeadSeriesRef(ref)] = lset.String()
			}
			require.NoError(t, app.Commit())

			sr, err := wlog.NewSegmentsReader(wal.Dir())
			require.NoError(t, err)
			defer sr.Close()
			got, records, samples := map[chunks.HeadSeriesRef]string{}, 0, 0
			dec := record.NewDecoder(labels.NewSymbolTable(), promslog.NewNopLogger())
			for r := wlog.NewReader(sr); r.Next(); {
				switch dec.Type(r.Record()) {
				case record.Series:
					series, err := dec.Series(r.Record(), nil)
					require.NoError(t, err)
					require.LessOrEqual(t, len(series), maxSeriesInRecord)
					for _, s := range series {
						got[s.Ref] = s.Labels.String()
					}
					records++
				case record.Samples:
					require.Equal(t, want, got)
					samples++
				}
			}
			require.Equal(t, (n+maxSeriesInRecord-1)/maxSeriesInRecord, records)
			require.Equal(t, 1, samples)

			for _, parallel := range []bool{false, true} {
				opts := *h.opts
				opts.ChunkDirRoot, opts.ParallelWALReplay = t.TempDir(), parallel
				again, err := NewHead(prometheus.NewRegistry(), promslog.NewNopLogger(), wal, nil, &opts, nil)
				require.NoError(t, err)
				require.NoError(t, again.Init(0))
				require.EqualValues(t, n, again.NumSeries())
				require.NoError(t, again.chunkDiskMapper.Close())
			}
		})
	}
}
