// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/compression"
)

type recorder struct{ created, refused []string }

func (r *recorder) NewSeries(ls labels.Labels, refused bool) {
	if refused {
		r.refused = append(r.refused, ls.Get("__name__"))
		return
	}
	r.created = append(r.created, ls.Get("__name__"))
}

func TestCreatedSeriesAreToldOnceAndNotInReplay(t *testing.T) {
	h, _ := newTestHead(t, 1000, compression.None, false)
	require.NoError(t, h.Init(0))
	var told recorder
	h.ObserveSeries(&told)
	for i := range 2 {
		app := h.AppenderV2(t.Context())
		appendOne(t, app, "a", 100+int64(i))
		appendOne(t, app, "b", 100+int64(i))
		require.NoError(t, app.Commit())
	}
	require.Equal(t, []string{"a", "b"}, told.created)
	require.True(t, h.HasSeries(labels.FromStrings("__name__", "a", "job", "x")))
	require.False(t, h.HasSeries(labels.FromStrings("__name__", "a")))
	require.Equal(t, 2, h.SeriesWith("job", "x"))
	require.Zero(t, h.SeriesWith("job", "y"))
}
