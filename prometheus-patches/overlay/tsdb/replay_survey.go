// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/encoding"
	"github.com/prometheus/prometheus/tsdb/record"
)

// replaySurveyFrom is how many series have to be written off before it is worth while
// to know them beforehand.
var replaySurveyFrom = 4096

// survey finds the series that the log has and later writes off, so that the replay
// does not make them: after an explosion of series they are most of the log.
//
// It believes the log, without a look at its sums. So what it finds has to come true:
// a replay that ends before each of them has left is discarded.
func (r *walReplay) survey() {
	if !r.h.seriesHaveLeft() {
		return
	}
	start := time.Now()
	off := r.findWrittenOff()
	if off.len() < replaySurveyFrom {
		return
	}
	s := newReplaySurvey(r, off)
	types := []record.Type{record.Series, record.Tombstones}
	if r.h.opts.MaxExemplars.Load() > 0 {
		types = append(types, record.Exemplars)
	}
	skimmer := newReplaySkimmer(types...)
	for _, name := range r.files() {
		if skimmer.skim(name, s.record) != nil {
			break // Where the replay ends, too.
		}
	}
	n := 0
	for _, number := range slices.Sorted(maps.Keys(s.leaving)) {
		n += r.refs.leave(number, s.leaving[number])
	}
	r.h.logger.Info("Series of the WAL that have left the head since are not replayed", "series", n, "found_in", time.Since(start).String())
}

// seriesHaveLeft reports whether the log can write series off: they are in blocks that
// say so, and are not merged with others.
func (h *Head) seriesHaveLeft() bool {
	dirs, _ := blockDirs(h.opts.ChunkDirRoot)
	return slices.ContainsFunc(dirs, func(dir string) bool {
		meta, _, err := readMetaFile(dir)
		return err == nil && (meta.Compaction.FromStaleSeries() || meta.Compaction.FromSelectedSeries())
	})
}

// findWrittenOff returns the references that the log writes off anywhere.
func (r *walReplay) findWrittenOff() replayRefSet {
	off := replayRefSet{}
	var mtx sync.Mutex
	r.each(r.files(), func(name string) {
		_ = newReplaySkimmer(record.Tombstones).skim(name, func(rec []byte) error {
			mtx.Lock()
			defer mtx.Unlock()
			return eachWrittenOff(rec, off.add)
		})
	})
	return off
}

// files are those of all units.
func (r *walReplay) files() (names []string) {
	for _, u := range r.units {
		names = append(names, u.files...)
	}
	return names
}

// each calls f for each file, several at a time.
func (r *walReplay) each(files []string, f func(name string)) {
	var wg sync.WaitGroup
	limit := make(chan struct{}, r.decoders)
	for _, name := range files {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			r.guard(func() { f(name) })
		})
	}
	wg.Wait()
}

// eachWrittenOff calls f for the references that a record of tombstones writes off.
func eachWrittenOff(rec []byte, f func(chunks.HeadSeriesRef)) error {
	dec := encoding.Decbuf{B: rec[1:]}
	for dec.Len() > 0 && dec.Err() == nil {
		ref, mint, maxt := dec.Be64(), dec.Varint64(), dec.Varint64()
		if dec.Err() == nil && mint == math.MinInt64 && maxt == math.MaxInt64 {
			f(chunks.HeadSeriesRef(ref))
		}
	}
	return dec.Err()
}

// eachSeries calls f for the series of a record, and accepts what record.Decoder
// accepts. The labels may be bytes of the record.
func eachSeries(d *record.Decoder, rec []byte, f func(ref chunks.HeadSeriesRef, lset labels.Labels)) error {
	for p := rec[1:]; len(p) > 0; {
		if len(p) < 8 {
			return encoding.ErrInvalidSize
		}
		ref := chunks.HeadSeriesRef(binary.BigEndian.Uint64(p))
		p = p[8:]
		lset, n := verbatimLabels(p)
		if n == 0 {
			dec := encoding.Decbuf{B: p}
			lset = d.DecodeLabels(&dec)
			if err := dec.Err(); err != nil {
				return err
			}
			n = len(p) - dec.Len()
		}
		p = p[n:]
		f(ref, lset)
	}
	return nil
}

// replaySurvey follows the series of a log from their records to the tombstones that
// write them off. Whatever is odd about one, the replay has to see: it is left alone.
type replaySurvey struct {
	r       *walReplay
	dec     record.Decoder
	off     replayRefSet
	living  map[uint64]chunks.HeadSeriesRef // By the hash of their labels.
	hashes  map[chunks.HeadSeriesRef]uint64 // Of those that are written off later.
	odd     replayRefSet
	leaving replayRefSet
}

func newReplaySurvey(r *walReplay, off replayRefSet) *replaySurvey {
	return &replaySurvey{
		r: r, dec: record.NewDecoder(labels.NewSymbolTable(), r.h.logger), off: off,
		living: map[uint64]chunks.HeadSeriesRef{}, hashes: map[chunks.HeadSeriesRef]uint64{},
		odd: replayRefSet{}, leaving: replayRefSet{},
	}
}

func (s *replaySurvey) record(rec []byte) error {
	switch s.dec.Type(rec) {
	case record.Series:
		return eachSeries(&s.dec, rec, func(ref chunks.HeadSeriesRef, lset labels.Labels) { s.series(ref, lset.Hash()) })
	case record.Tombstones:
		return eachWrittenOff(rec, s.writeOff)
	case record.Exemplars: // They stay when their series leaves.
		exemplars, err := s.dec.Exemplars(rec, nil)
		for _, e := range exemplars {
			s.leaveAlone(e.Ref)
		}
		return err
	}
	return nil
}

// series sees a series record. One whose labels another has, or seems to have, is the
// same series under a second reference.
func (s *replaySurvey) series(ref chunks.HeadSeriesRef, hash uint64) {
	if other, ok := s.living[hash]; ok {
		s.leaveAlone(other)
		s.leaveAlone(ref)
		return
	}
	s.living[hash] = ref
	if !s.off.has(ref) {
		return
	}
	if _, again := s.hashes[ref]; again || s.leaving.has(ref) || len(s.r.oooMmapped[ref]) > 0 {
		s.leaveAlone(ref)
		return
	}
	s.hashes[ref] = hash
}

// writeOff sees the tombstone of a whole series. Its labels are free again.
func (s *replaySurvey) writeOff(ref chunks.HeadSeriesRef) {
	hash, ok := s.hashes[ref]
	if !ok || s.odd.has(ref) {
		return
	}
	delete(s.hashes, ref)
	delete(s.living, hash)
	s.leaving.add(ref)
}

func (s *replaySurvey) leaveAlone(ref chunks.HeadSeriesRef) {
	if s.off.has(ref) {
		s.odd.add(ref)
		s.leaving.remove(ref)
	}
}
