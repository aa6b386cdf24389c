// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/bench/walreplay/internal/bucket"
	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
)

// recordConfig says what is copied. A place is a directory, or bucket:NAME.
type recordConfig struct {
	from, to   string
	bucketFile string
}

func addRecord(app *kingpin.Application) (*kingpin.CmdClause, command) {
	cmd := app.Command("record", "Copy what a start of Prometheus replays, with checksums: from the data directory of a stopped server or a snapshot of one, or from a bucket; to a new directory, or to a bucket.")
	c := &recordConfig{}
	cmd.Flag("wal", "Data directory, wal directory, or bucket:NAME.").Required().PlaceHolder("PLACE").StringVar(&c.from)
	cmd.Flag("out", "New directory, or bucket:NAME.").Required().PlaceHolder("PLACE").StringVar(&c.to)
	cmd.Flag("objstore.config-file", "YAML file with the bucket of bucket:NAME, as Thanos takes it. Without it, the bucket is the directory walreplay-bucket.").PlaceHolder("FILE").StringVar(&c.bucketFile)
	return cmd, func(ctx context.Context, _, stderr io.Writer) error {
		m, err := c.record(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(stderr, "%s: %d files, %.1f MiB\n", c.to, len(m.Files), float64(m.Bytes())/(1<<20))
		return nil
	}
}

func (c *recordConfig) record(ctx context.Context) (*datadir.Manifest, error) {
	source, fromBucket := strings.CutPrefix(c.from, "bucket:")
	target, toBucket := strings.CutPrefix(c.to, "bucket:")
	switch {
	case fromBucket && toBucket:
		return nil, errors.New("one of --wal and --out must be a directory")
	case fromBucket:
		return c.fetch(ctx, source)
	}
	dir, err := datadir.Open(c.from)
	if err != nil {
		return nil, err
	}
	if toBucket {
		b, err := c.open(ctx, target)
		if err != nil {
			return nil, err
		}
		defer b.Close()
		return b.Push(ctx, dir, target)
	}
	return dir.Record(ctx, c.to)
}

// fetch downloads a recording.
func (c *recordConfig) fetch(ctx context.Context, name string) (*datadir.Manifest, error) {
	if _, err := os.Lstat(c.to); err == nil {
		return nil, fmt.Errorf("%s exists; name a new directory, or remove it first", c.to)
	}
	b, err := c.open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	m, err := b.Manifest(ctx, name)
	if err != nil {
		return nil, err
	}
	return m, b.Fetch(ctx, name, m, c.to)
}

// answerTimeout is how long the bucket may take for its first answer.
const answerTimeout = 20 * time.Second

// open opens the bucket of a recording.
func (c *recordConfig) open(ctx context.Context, name string) (*bucket.Bucket, error) {
	if err := bucket.CheckName(name); err != nil {
		return nil, err
	}
	text := []byte(bucket.DefaultConfig)
	if c.bucketFile != "" {
		var err error
		if text, err = os.ReadFile(c.bucketFile); err != nil {
			return nil, fmt.Errorf("--objstore.config-file: %w", err)
		}
	}
	return bucket.Open(ctx, text, answerTimeout)
}
