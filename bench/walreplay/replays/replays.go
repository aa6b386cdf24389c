// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package replays replays copies of a data directory under Prometheus binaries, and
// compares the heads that come of it.
package replays

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
	"github.com/promguard/promguard/bench/walreplay/internal/replay"
	"github.com/promguard/promguard/bench/walreplay/internal/verify"
)

type (
	// Dir is a data directory.
	Dir = datadir.Dir
	// Contents is what a log holds.
	Contents = datadir.Contents
	// Server is one that has replayed a copy.
	Server = replay.Server
	// Sampled is a series of a log.
	Sampled = datadir.Sampled
	// Head is a server to compare.
	Head = verify.Head
	// Summary is what two heads have in common.
	Summary = verify.Summary
)

// WithCopies calls fn with a data directory and a temporary one that has room for some
// copies of it, and of which nothing is left afterwards.
func WithCopies(path, tmpDir string, copies int, fn func(dir *Dir, tmp string) error) (err error) {
	dir, err := datadir.Open(path)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(tmpDir, "walreplay-")
	if err != nil {
		return fmt.Errorf("--tmp-dir: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := dir.CheckSpace(tmp, copies); err != nil {
		return err
	}
	return fn(dir, tmp)
}

// Count reads the log once, and says what is in it and what makes a measurement doubtful.
func Count(ctx context.Context, dir *Dir, stderr io.Writer) (Contents, error) {
	contents, err := dir.Count(ctx)
	if err != nil {
		return Contents{}, err
	}
	fmt.Fprintf(stderr, "%s: %d series, %d samples, %d records, %d segments\n", dir.Path, contents.Series, contents.Samples, contents.Records, contents.Segments)
	if contents.Corruption != nil {
		fmt.Fprintf(stderr, "warning: the log is corrupt: %v; a replay ends there and repairs its copy\n", contents.Corruption)
	}
	if dir.Blocks > 0 {
		fmt.Fprintf(stderr, "warning: %d blocks are left out; a server that has them skips samples that are in them already\n", dir.Blocks)
	}
	return contents, nil
}

// keep are flags that keep a server from changing its head, if it scrapes nothing: a
// compaction would cut it.
var keep = []string{"--storage.tsdb.block-reload-interval=8760h"}

// open are flags that have a server answer what is more than others may ask for.
var open = []string{
	"--guard.api-timeout=0", "--guard.min-client-rate=off", "--guard.read-memory-budget=off", "--guard.response-max-bytes=off",
}

// Options say how to replay.
type Options struct {
	// GOMAXPROCS is the binary's environment variable, 1 or more.
	GOMAXPROCS int
	// Timeout ends a replay that takes too long; 0 is never.
	Timeout time.Duration
	// Exemplars is how many the head is to keep.
	Exemplars int
	// Limit, unless it is 0, leaves the server the limits of reads that it has where its
	// container may take so many bytes. Otherwise it has no limits of reads.
	Limit int64
}

// Flags are a binary's arguments and those that keep its head as it is; unless limited,
// without limits of reads, and with what verify needs. A binary that does not know a flag would not start: it is
// left out, as are those that the binary is given already.
func Flags(ctx context.Context, b binary.Binary, limited bool) []string {
	args, flags := slices.Clone(b.Args), keep
	if !limited {
		flags = slices.Concat(keep, verify.AppendFlags, open)
	}
	for _, flag := range flags {
		name, _, _ := strings.Cut(flag, "=")
		given := slices.ContainsFunc(b.Args, func(a string) bool { return a == name || strings.HasPrefix(a, name+"=") })
		if !given && b.Accepts(ctx, flag) {
			args = append(args, flag)
		}
	}
	return append(args, "--storage.tsdb.retention.time=100y")
}

// Start replays a copy under a binary and leaves it running, so that it changes
// nothing: it scrapes nothing and does not compact.
func Start(ctx context.Context, b binary.Binary, dir *Dir, at string, o Options) (*Server, error) {
	if err := dir.Copy(ctx, at); err != nil {
		return nil, errors.Join(err, os.RemoveAll(at))
	}
	b.Args = Flags(ctx, b, o.Limit > 0)
	config := "global: {}\n"
	if o.Exemplars > 0 {
		b.Args = append(b.Args, "--enable-feature=exemplar-storage")
		config = fmt.Sprintf("storage: {exemplars: {max_exemplars: %d}}\n", o.Exemplars)
	}
	started := replay.Options{DataDir: at, GOMAXPROCS: o.GOMAXPROCS, Timeout: o.Timeout, Config: config}
	if o.Limit > 0 {
		started.Env = []string{fmt.Sprintf("GOMEMLIMIT=%d", o.Limit/10*9)} // As Prometheus has it in a container.
	}
	s, err := replay.Start(ctx, b, started)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(at))
	}
	return s, nil
}

// StartEmpty starts a binary with a configuration and without data, as Start does.
func StartEmpty(ctx context.Context, b binary.Binary, at, config string, o Options) (*Server, error) {
	if err := os.Mkdir(at, 0o777); err != nil {
		return nil, err
	}
	return replay.Start(ctx, b, replay.Options{DataDir: at, GOMAXPROCS: o.GOMAXPROCS, Timeout: o.Timeout, Config: config})
}

// CompareSamples compares all series of two heads with their samples, exemplars, and
// what the heads say of themselves. The error is a difference if they are not the same;
// see Differ.
func CompareSamples(ctx context.Context, a, b Head) (Summary, error) {
	return verify.CompareSamples(ctx, a, b)
}

// Differ says whether an error is that two heads are not the same.
func Differ(err error) bool {
	_, ok := errors.AsType[*verify.Difference](err)
	return ok
}
