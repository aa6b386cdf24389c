// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/prometheus/prometheus/tsdb/fileutil"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// damagedLogs keeps what the repair of a damaged log removes. The repair deletes all
// segments behind the damage and cuts off the damaged one there: up to three hours of
// samples, nearly all of which can be read. They are linked into a directory before:
//
//	wal-damaged-20260102T030405.678Z/
//	  wal/checkpoint.00000010/  linked, as segments cannot be read
//	  wal/00000011              without the series that are created before them
//	  wal/00000012              what can be read of the damaged segment
//	  wal/00000012.damaged      the damaged segment
//	  wal/00000013              linked, would be lost
//	  wbl/...
//
// It is a data directory of its own, which promtool and Prometheus read. Links take
// no space until the log itself is truncated, and a full disk does not refuse them.
// Head chunks are not kept: all that is in those that a start removes is in the logs.
//
// Nothing that happens here fails a start.
type damagedLogs struct {
	dir    string
	logger *slog.Logger
	space  func(dir string) (free, size uint64, err error)
	mtx    sync.Mutex // Held while directories are made or removed.
}

const (
	damagedLogPrefix = "wal-damaged-"
	damagedLogTime   = "20060102T150405.000Z"
	damagedLogTmp    = ".tmp" // Being made, or being removed.

	// damagedLogMax is how many directories are kept. A log that is damaged again and
	// again is that of a broken disk, of which the last ones tell no more.
	damagedLogMax = 4

	// damagedLogFree is the part of the disk that must be free, 1/20, for directories
	// to be kept. Each may come to take as much as a whole log. What is scraped now is
	// worth more; PrometheusDiskFills has told of it at 1/10.
	damagedLogFree = 20
)

// newDamagedLogs returns nil, which keeps nothing, unless promguard's replay is on:
// repair is the end of the replay of a damaged log.
func newDamagedLogs(db *DB) *damagedLogs {
	if !db.opts.ParallelWALReplay {
		return nil
	}
	d := &damagedLogs{dir: db.dir, logger: db.logger, space: diskSpace}
	promauto.With(db.registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "prometheus_guard_wal_damaged_kept_bytes",
		Help: "Size of the directories wal-damaged-*, with what repairs removed from damaged logs. Files that the log still has, too, are counted, though they take no space.",
	}, d.size)
	d.removeUnfinished()
	go func() {
		tick := time.NewTicker(time.Minute)
		defer tick.Stop()
		for {
			d.tidy(0)
			select {
			case <-tick.C:
			case <-db.donec:
				return
			}
		}
	}()
	return d
}

// keep is to be called before the log is repaired for the error of the replay. The
// newest sample that was read is of the time readUntil.
func (d *damagedLogs) keep(initErr error, readUntil int64) {
	var damage *wlog.CorruptionErr
	if d == nil || !errors.As(initErr, &damage) || damage.Segment < 0 {
		return // The repair fails before it removes anything.
	}
	log := "wal"
	if _, ok := errors.AsType[*errLoadWbl](initErr); ok {
		log, readUntil = wlog.WblDirName, math.MinInt64 // That log is in no order of time.
	}
	d.mtx.Lock()
	defer d.mtx.Unlock()
	lost, err := lostByRepair(filepath.Join(d.dir, log), damage)
	if err == nil && lost.bytes == 0 {
		return // As after most crashes: the record that cannot be read is the last thing in the log.
	}
	name := ""
	if err == nil {
		name, err = d.link(log, damage)
	}
	if err == nil {
		d.tidyLocked(lost.rewritten)
		if _, err = os.Stat(name); err != nil {
			err = errors.New("the disk is nearly full")
		}
	}
	if err != nil {
		d.logger.Warn("The repair removes a part of the log of which nothing is kept", "log", log, "removed_bytes", lost.bytes, "err", err)
		return
	}
	attrs := []any{"dir", name, "log", log, "kept_bytes", sizeOf(name), "removed_bytes", lost.bytes}
	if readUntil != math.MinInt64 {
		attrs = append(attrs, "removed_from", time.UnixMilli(readUntil).UTC().Format(time.RFC3339))
	}
	attrs = append(attrs, "removed_until", lost.written.UTC().Format(time.RFC3339))
	d.logger.Warn("Kept what the repair removes from the log. promtool tsdb dump DIR reads it; docs/alerts.md#prometheuslogdamaged says how it comes back. If another server has it all, delete the directory", attrs...)
}

// lostLog is what a repair takes away.
type lostLog struct {
	bytes     uint64 // That are behind the damage.
	rewritten uint64 // Size of the damaged segment, the most that the repair writes.
	written   time.Time
}

// lostByRepair looks at the segments that wlog.WL.Repair removes or rewrites.
func lostByRepair(dir string, damage *wlog.CorruptionErr) (lostLog, error) {
	var lost lostLog
	first, last, err := wlog.Segments(dir)
	if err != nil {
		return lost, err
	}
	for i := max(first, damage.Segment); i <= last; i++ {
		info, err := os.Stat(wlog.SegmentName(dir, i))
		if err != nil {
			return lost, err
		}
		behind := info.Size()
		if i == damage.Segment {
			lost.rewritten = uint64(behind)
			behind = max(0, behind-damage.Offset)
		}
		if behind > 0 {
			lost.bytes += uint64(behind)
			lost.written = info.ModTime()
		}
	}
	return lost, nil
}

// link makes the directory, all at once, and returns its name. A start that was
// killed before its repair has made it already.
func (d *damagedLogs) link(log string, damage *wlog.CorruptionErr) (name string, err error) {
	if kept := d.list(); len(kept) > 0 && holdsSegments(filepath.Join(kept[len(kept)-1], log), filepath.Join(d.dir, log), damage.Segment) {
		return kept[len(kept)-1], nil
	}
	name = filepath.Join(d.dir, damagedLogPrefix+time.Now().UTC().Format(damagedLogTime))
	tmp := name + damagedLogTmp
	defer func() {
		if err != nil {
			os.RemoveAll(tmp)
		}
	}()
	for _, sub := range []string{"wal", wlog.WblDirName} {
		err := linkFiles(filepath.Join(d.dir, sub), filepath.Join(tmp, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	in := filepath.Join(tmp, log)
	if dir := filepath.Base(damage.Dir); strings.HasPrefix(dir, "checkpoint.") {
		in = filepath.Join(in, dir)
	}
	if err := d.setAside(wlog.SegmentName(in, damage.Segment), damage.Offset); err != nil {
		return "", err
	}
	if err := proveRoom(filepath.Join(tmp, "room"), wlog.SegmentName(filepath.Join(d.dir, log), damage.Segment)); err != nil {
		return "", err
	}
	if err := syncDirs(tmp); err != nil {
		return "", err
	}
	return name, fileutil.Rename(tmp, name)
}

// setAside puts what can be read before the offset in the place of a segment. There
// is none if it is one of a checkpoint, and the error does not say so.
func (d *damagedLogs) setAside(segment string, offset int64) error {
	damaged := segment + ".damaged"
	if err := os.Rename(segment, damaged); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	out, err := os.Create(segment)
	if err != nil {
		return err
	}
	if err := copyRecords(out, damaged, offset); err != nil {
		// What it lacks is in the damaged segment, and, for now, in the repaired one.
		d.logger.Warn("What precedes the damage cannot be copied", "segment", damaged, "err", err)
		err = out.Truncate(0)
		return errors.Join(err, out.Close())
	}
	return out.Close()
}

// proveRoom writes, and removes, as much as the repair may write, the damaged segment:
// with links beside them, the segments that the repair removes make no room, and what
// a disk says is free need not be had, as with a quota.
func proveRoom(name, segment string) error {
	from, err := os.Open(segment)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // It rewrites nothing.
	}
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Sync(), to.Close(), os.Remove(name))
}

// copyRecords copies the records that a repair keeps.
func copyRecords(to io.Writer, segment string, before int64) error {
	f, err := os.Open(segment)
	if err != nil {
		return err
	}
	defer f.Close()
	end := int64(0)
	for r := wlog.NewReader(bufio.NewReader(f)); r.Next() && r.Offset() < before; {
		end = r.Offset()
	}
	_, err = io.Copy(to, io.NewSectionReader(f, 0, end))
	return err
}

// holdsSegments reports whether all segments of a log from one on have been linked.
func holdsSegments(kept, log string, from int) bool {
	first, last, err := wlog.Segments(log)
	if err != nil {
		return false
	}
	for i := max(first, from); i <= last; i++ {
		name := wlog.SegmentName(log, i)
		if info, err := os.Stat(name); err == nil && info.Size() == 0 {
			continue
		}
		linked := wlog.SegmentName(kept, i)
		if !sameFile(name, linked) && !sameFile(name, linked+".damaged") {
			return false
		}
	}
	return true
}

func sameFile(a, b string) bool {
	as, errA := os.Stat(a)
	bs, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(as, bs)
}

// linkFiles links all files below a directory to the same places below another.
// Empty ones it makes anew: the one that the log is about to be written to is empty.
func linkFiles(from, to string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		linked := filepath.Join(to, rel)
		switch info, err := e.Info(); {
		case err != nil:
			return err
		case e.IsDir():
			return os.MkdirAll(linked, 0o777)
		case !e.Type().IsRegular():
			return fmt.Errorf("%s is not a file", path)
		case info.Size() == 0:
			return os.WriteFile(linked, nil, 0o666)
		default:
			return os.Link(path, linked)
		}
	})
}

// syncDirs makes a power cut leave what is in a directory there.
func syncDirs(root string) error {
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		dir, err := fileutil.OpenDir(path)
		if err != nil {
			return err
		}
		return errors.Join(dir.Sync(), dir.Close())
	})
}

// tidy removes the oldest directories while there are too many, or while the disk
// has less room than it must have beside so many bytes.
func (d *damagedLogs) tidy(need uint64) {
	d.mtx.Lock()
	defer d.mtx.Unlock()
	d.tidyLocked(need)
}

func (d *damagedLogs) tidyLocked(need uint64) {
	for kept := d.list(); len(kept) > 0; kept = kept[1:] {
		why := "there are newer ones"
		if len(kept) <= damagedLogMax {
			if !d.diskFull(need) {
				return
			}
			why = "the disk is nearly full"
		}
		d.logger.Warn("Removing what was kept of a damaged log", "dir", kept[0], "reason", why)
		tmp := kept[0] + damagedLogTmp
		if err := errors.Join(os.Rename(kept[0], tmp), os.RemoveAll(tmp)); err != nil {
			d.logger.Error("Cannot remove what was kept of a damaged log", "dir", kept[0], "err", err)
			return
		}
	}
}

func (d *damagedLogs) diskFull(need uint64) bool {
	free, size, err := d.space(d.dir)
	return err == nil && free < size/damagedLogFree+need
}

// removeUnfinished removes what a start that was killed began to make or remove.
func (d *damagedLogs) removeUnfinished() {
	for _, name := range d.named(damagedLogTmp) {
		if err := os.RemoveAll(name); err != nil {
			d.logger.Warn("Cannot remove what was kept of a damaged log", "dir", name, "err", err)
		}
	}
}

// list returns the directories, the oldest first. One that somebody has renamed is
// theirs.
func (d *damagedLogs) list() []string { return d.named("") }

// named returns the directories whose names end so behind the time.
func (d *damagedLogs) named(suffix string) (names []string) {
	entries, _ := os.ReadDir(d.dir)
	for _, e := range entries {
		at, ok := strings.CutPrefix(e.Name(), damagedLogPrefix)
		if !ok || !e.IsDir() {
			continue
		}
		if _, err := time.Parse(damagedLogTime+suffix, at); err == nil {
			names = append(names, filepath.Join(d.dir, e.Name()))
		}
	}
	return names
}

func (d *damagedLogs) size() float64 {
	bytes := int64(0)
	for _, name := range d.list() {
		bytes += sizeOf(name)
	}
	return float64(bytes)
}

func sizeOf(dir string) int64 {
	size, _ := fileutil.DirSize(dir) // Of a directory that is just removed, what is left of it.
	return size
}
