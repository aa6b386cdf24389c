// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/bench/walreplay/internal/bucket"
	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
	"github.com/promguard/promguard/bench/walreplay/internal/progress"
)

// bucketFlags say where the things are that are named bucket:NAME.
type bucketFlags struct {
	file, text string
	timeout    time.Duration
}

func addBucketFlags(cmd *kingpin.CmdClause) *bucketFlags {
	f := &bucketFlags{}
	cmd.Flag("objstore.config-file", "YAML file with the bucket of bucket:NAME, as Thanos takes it. Without it, the bucket is the directory walreplay-bucket.").PlaceHolder("FILE").StringVar(&f.file)
	cmd.Flag("objstore.config", "The same YAML, inline.").PlaceHolder("YAML").StringVar(&f.text)
	cmd.Flag("objstore.timeout", "How long the bucket may take for its first answer.").Default("20s").DurationVar(&f.timeout)
	return f
}

func (f *bucketFlags) open(ctx context.Context) (*bucket.Bucket, error) {
	text := []byte(f.text)
	switch {
	case f.file != "" && f.text != "":
		return nil, errors.New("give --objstore.config-file or --objstore.config, not both")
	case f.file != "":
		var err error
		if text, err = os.ReadFile(f.file); err != nil {
			return nil, fmt.Errorf("--objstore.config-file: %w", err)
		}
	case f.text == "":
		text = []byte(bucket.DefaultConfig)
	}
	return bucket.Open(ctx, text, f.timeout)
}

// inBucket is the NAME of bucket:NAME.
func inBucket(place string) (name string, ok bool, err error) {
	name, ok = strings.CutPrefix(place, "bucket:")
	if ok {
		err = bucket.CheckName(name)
	}
	return name, ok, err
}

// fetch downloads a recording.
func fetch(ctx context.Context, f *bucketFlags, name, to string, stderr io.Writer) (*datadir.Manifest, error) {
	b, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	m, err := b.Manifest(ctx, name)
	if err != nil {
		return nil, err
	}
	p := progress.New(stderr, "fetching "+name, "bytes", float64(m.Bytes()))
	if err := b.Fetch(ctx, name, m, to, p); err != nil {
		return nil, err
	}
	p.Done()
	return m, nil
}

// withWAL calls fn with the data directory of a place and with a temporary
// directory, of which nothing is left afterwards.
func withWAL(ctx context.Context, place, tmpDir string, f *bucketFlags, stderr io.Writer, fn func(dir *datadir.Dir, tmp string) error) (err error) {
	name, remote, err := inBucket(place)
	if err != nil {
		return err
	}
	var dir *datadir.Dir
	if !remote {
		if dir, err = datadir.Open(place); err != nil {
			return err
		}
	}
	tmp, err := os.MkdirTemp(tmpDir, "walreplay-")
	if err != nil {
		return fmt.Errorf("--tmp-dir: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if remote {
		fetched := filepath.Join(tmp, "fetched")
		if _, err := fetch(ctx, f, name, fetched, stderr); err != nil {
			return err
		}
		if dir, err = datadir.Open(fetched); err != nil {
			return err
		}
		dir.Name = place
	}
	return fn(dir, tmp)
}

// output is where a result goes: standard output, a new file, or a bucket.
type output struct {
	stdout io.Writer
	path   string
	bucket *bucket.Bucket
	name   string
}

// openOutput refuses what could not be written later.
func openOutput(ctx context.Context, place string, f *bucketFlags, stdout io.Writer) (*output, error) {
	name, remote, err := inBucket(place)
	switch {
	case err != nil:
		return nil, err
	case remote:
		b, err := f.open(ctx)
		if err != nil {
			return nil, err
		}
		if err := b.CheckNew(ctx, name); err != nil {
			return nil, errors.Join(err, b.Close())
		}
		return &output{bucket: b, name: name}, nil
	case place == "" || place == "-":
		return &output{stdout: stdout}, nil
	}
	if _, err := os.Lstat(place); err == nil {
		return nil, fmt.Errorf("--out: %s exists; name a new file", place)
	}
	if _, err := os.Stat(filepath.Dir(place)); err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	return &output{path: place}, nil
}

// put writes the whole result.
func (o *output) put(ctx context.Context, write func(io.Writer) error) error {
	if o.stdout != nil {
		return write(o.stdout)
	}
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	if o.bucket != nil {
		return o.bucket.PutReport(ctx, o.name, text.Bytes())
	}
	tmp, err := os.CreateTemp(filepath.Dir(o.path), ".walreplay-")
	if err != nil {
		return err
	}
	_, err = tmp.Write(text.Bytes())
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), o.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

func (o *output) Close() error {
	if o.bucket == nil {
		return nil
	}
	return o.bucket.Close()
}
