// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// seriesOf returns what has the labels of a series of the head, or nil.
func (s *readyStorage) seriesOf(ref storage.SeriesRef) storage.Labels {
	if db, ok := s.get().(*tsdb.DB); ok {
		return db.Head().SeriesOf(ref)
	}
	return nil
}
