// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

func TestPostingsGrowByAQuarter(t *testing.T) {
	p := NewMemPostings()
	for n := range 20_000 {
		p.Add(storage.SeriesRef(n), labels.FromStrings("all", "same", "own", strconv.Itoa(n)))
		for _, room := range []int{cap(p.m["all"]["same"]), cap(p.lvs["own"])} {
			// At most a quarter more is allocated than is asked for.
			require.LessOrEqual(t, room, withRoom(n)*5/4+1)
		}
	}
	require.Equal(t, 1, cap(p.m["own"]["1"]))
}

func TestPostingsThatAreDeletedLeaveNoRoom(t *testing.T) {
	p := NewMemPostings()
	deleted := map[storage.SeriesRef]struct{}{}
	for n := range 20_000 {
		p.Add(storage.SeriesRef(n), labels.FromStrings("all", "same", "own", strconv.Itoa(n)))
		if n%2 == 0 {
			deleted[storage.SeriesRef(n)] = struct{}{}
		}
	}
	affected := map[labels.Label]struct{}{{Name: "all", Value: "same"}: {}}
	for n := range deleted {
		affected[labels.Label{Name: "own", Value: strconv.Itoa(int(n))}] = struct{}{}
	}
	p.Delete(deleted, affected)
	left := p.m["all"]["same"]
	require.Len(t, left, 10_000)
	require.LessOrEqual(t, cap(left), withRoom(10_000)*5/4)
	require.Len(t, p.lvs["own"], 10_000)
	require.LessOrEqual(t, cap(p.lvs["own"]), withRoom(10_000)*5/4)
	for i, ref := range left {
		require.Equal(t, storage.SeriesRef(2*i+1), ref)
	}
}
