// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
	"github.com/promguard/promguard/bench/walreplay/internal/progress"
)

func addRecord(app *kingpin.Application) (*kingpin.CmdClause, command) {
	cmd := app.Command("record", "Copy what a start of Prometheus replays, with checksums: from the data directory of a stopped server or a snapshot of one, or from a bucket; to a new directory, or to a bucket.")
	from := cmd.Flag("wal", "Data directory, wal directory, or bucket:NAME.").Required().PlaceHolder("PLACE").String()
	to := cmd.Flag("out", "New directory, or bucket:NAME.").Required().PlaceHolder("PLACE").String()
	buckets := addBucketFlags(cmd)
	return cmd, func(ctx context.Context, _, stderr io.Writer) error {
		m, err := record(ctx, *from, *to, buckets, stderr)
		if err != nil {
			return err
		}
		fmt.Fprintf(stderr, "%s: %d files, %.1f MiB\n", *to, len(m.Files), float64(m.Bytes())/(1<<20))
		return nil
	}
}

func record(ctx context.Context, from, to string, buckets *bucketFlags, stderr io.Writer) (*datadir.Manifest, error) {
	source, fromBucket, err := inBucket(from)
	if err != nil {
		return nil, err
	}
	target, toBucket, err := inBucket(to)
	switch {
	case err != nil:
		return nil, err
	case fromBucket && toBucket:
		return nil, errors.New("one of --wal and --out must be a directory")
	case fromBucket:
		if _, err := os.Lstat(to); err == nil {
			return nil, fmt.Errorf("%s exists; name a new directory, or remove it first", to)
		}
		return fetch(ctx, buckets, source, to, stderr)
	}
	dir, err := datadir.Open(from)
	if err != nil {
		return nil, err
	}
	if toBucket {
		return push(ctx, dir, target, buckets, stderr)
	}
	p := progress.New(stderr, "recording "+from, "bytes", 2*float64(dir.Bytes))
	m, err := dir.Record(ctx, to, p)
	if err != nil {
		return nil, err
	}
	p.Done()
	return m, nil
}

func push(ctx context.Context, dir *datadir.Dir, name string, buckets *bucketFlags, stderr io.Writer) (*datadir.Manifest, error) {
	b, err := buckets.open(ctx)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	p := progress.New(stderr, "uploading "+name, "bytes", 2*float64(dir.Bytes))
	m, err := b.Push(ctx, dir, name, p)
	if err != nil {
		return nil, err
	}
	p.Done()
	return m, nil
}
