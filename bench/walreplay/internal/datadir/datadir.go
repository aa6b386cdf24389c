// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package datadir reads and copies the parts of a Prometheus data directory
// that are replayed at start. It never writes to the directory itself.
package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// Dir is a data directory, or a directory that is itself a write-ahead log.
type Dir struct {
	Path string
	// Blocks is how many blocks the directory has. They are not copied.
	Blocks int
	// Bytes is the size of what a copy holds, WALBytes that of the segments and
	// checkpoints in it, WBLBytes that of the log of out-of-order samples.
	Bytes, WALBytes, WBLBytes int64

	wal   string  // the directory with the segments
	parts []entry // what is copied
}

// entry is a file or directory and its name in a data directory.
type entry struct{ from, to string }

// Open looks at a directory. It returns an error if there is nothing to replay
// or if a running Prometheus holds the directory's lock.
func Open(path string) (*Dir, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is a file; name a Prometheus data directory, or the wal directory in one", path)
	}
	d := &Dir{Path: path}
	if err := d.list(); err != nil {
		return nil, err
	}
	if err := d.checkSegments(); err != nil {
		return nil, err
	}
	locked, err := isLocked(filepath.Join(filepath.Dir(d.wal), "lock"))
	if err != nil {
		return nil, err
	}
	if locked {
		return nil, fmt.Errorf("%s is in use by a running Prometheus, which holds its lock file; stop it, or copy its wal and chunks_head directories elsewhere", filepath.Dir(d.wal))
	}
	return d, d.walk(func(_, to string, info fs.FileInfo) error {
		d.Bytes += info.Size()
		switch root, _, _ := strings.Cut(filepath.ToSlash(to), "/"); root {
		case "wal":
			d.WALBytes += info.Size()
		case wlog.WblDirName:
			d.WBLBytes += info.Size()
		}
		return nil
	})
}

// list finds what a Prometheus that starts on the directory would replay.
func (d *Dir) list() error {
	if info, err := os.Stat(filepath.Join(d.Path, "wal")); err != nil || !info.IsDir() {
		d.wal = d.Path
		d.parts = []entry{{d.Path, "wal"}}
		return nil
	}
	d.wal = filepath.Join(d.Path, "wal")
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case isReplayed(name):
			d.parts = append(d.parts, entry{filepath.Join(d.Path, name), name})
		default:
			if _, err := ulid.ParseStrict(name); err == nil && e.IsDir() {
				d.Blocks++
			}
		}
	}
	return nil
}

func (d *Dir) checkSegments() error {
	first, _, err := wlog.Segments(d.wal)
	if err != nil {
		return fmt.Errorf("%s: %w", d.wal, err)
	}
	if first >= 0 {
		return nil
	}
	if _, _, err := wlog.LastCheckpoint(d.wal); err == nil {
		return nil
	}
	return fmt.Errorf("%s holds no WAL: no wal directory, and no segments such as 00000000", d.Path)
}

// walk calls fn for every regular file to copy, with its path and its path in
// the copy.
func (d *Dir) walk(fn func(from, to string, info fs.FileInfo) error) error {
	for _, part := range d.parts {
		err := filepath.Walk(part.from, func(path string, info fs.FileInfo, err error) error {
			if err != nil || !info.Mode().IsRegular() {
				return err
			}
			rel, err := filepath.Rel(part.from, path)
			if err != nil {
				return err
			}
			if part.from == d.Path && filepath.Dir(path) == d.Path && info.Name() == "lock" {
				return nil
			}
			return fn(path, filepath.Join(part.to, rel), info)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// CheckSpace returns an error if a file system is too full for so many copies.
func (d *Dir) CheckSpace(dir string, copies int) error {
	free, err := freeBytes(dir)
	if err != nil {
		return err
	}
	if uint64(d.Bytes)*uint64(copies) > free {
		return fmt.Errorf("%d copies of %s take %d MiB and %s has %d MiB free; name another place with --tmp-dir", copies, d.Path, d.Bytes*int64(copies)>>20, dir, free>>20)
	}
	return nil
}

// Copy copies what is replayed into a new data directory and syncs it, so that
// writing it back to disk does not fall into what is measured afterwards.
func (d *Dir) Copy(ctx context.Context, to string) error {
	return d.walk(func(from, rel string, _ fs.FileInfo) error {
		target := filepath.Join(to, rel)
		if err := os.MkdirAll(filepath.Dir(target), 0o777); err != nil {
			return err
		}
		return copyFile(ctx, from, target)
	})
}

func copyFile(ctx context.Context, from, to string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := io.CopyN(dst, src, 16<<20)
		if errors.Is(err, io.EOF) {
			return dst.Sync()
		}
		if err != nil {
			return err
		}
	}
}
