// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"math/rand"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// A builder gives the postings that MemPostings.Add gives, whatever references come
// in whatever order, with lists of all lengths.
func TestPostingsBuilderGivesWhatAddGives(t *testing.T) {
	for seed := range int64(30) {
		rnd := rand.New(rand.NewSource(seed))
		want, b := NewUnorderedMemPostings(), NewPostingsBuilder()
		ref := storage.SeriesRef(0)
		for i := range rnd.Intn(8000) {
			if ref += storage.SeriesRef(1 + rnd.Intn(3)); rnd.Intn(50) == 0 {
				ref = storage.SeriesRef(rnd.Int63n(1 << 34))
			}
			lb := labels.NewScratchBuilder(0)
			lb.Add("__name__", "metric_"+strconv.Itoa(rnd.Intn(40)))
			lb.Add("instance", strconv.Itoa(i/100))
			if rnd.Intn(3) == 0 {
				lb.Add("label_"+strconv.Itoa(rnd.Intn(300)), "1")
			}
			lb.Add("own", strconv.Itoa(i))
			lb.Add("some", strconv.Itoa(rnd.Intn(2000)))
			lb.Sort()
			lset := lb.Labels()
			want.Add(ref, lset)
			var ls []labels.Label
			lset.Range(func(l labels.Label) { ls = append(ls, l) })
			b.Add(ref, ls)
		}
		got := NewUnorderedMemPostings()
		b.AddTo(got)
		require.Equal(t, want.m, got.m)
		for _, list := range got.m[""] {
			require.Equal(t, len(list), cap(list), "lists are of the length that they need")
		}
		require.ElementsMatch(t, want.LabelNames(), got.LabelNames())
		for _, name := range want.LabelNames() {
			w, g := want.LabelValues(context.Background(), name, nil), got.LabelValues(context.Background(), name, nil)
			slices.Sort(w)
			slices.Sort(g)
			require.Equal(t, w, g)
		}
	}
}
