// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/bench/walreplay/internal/bucket"
	"github.com/promguard/promguard/bench/walreplay/internal/results"
)

func addReport(app *kingpin.Application) (*kingpin.CmdClause, command) {
	cmd := app.Command("report", "Write a report that run wrote with --format=json in another format.")
	from := cmd.Flag("in", "File, or bucket:NAME.").Required().PlaceHolder("PLACE").String()
	format := cmd.Flag("format", "benchfmt, table, json or html.").Default("table").Enum(results.Formats()...)
	to := cmd.Flag("out", "New file, or bucket:NAME; standard output if left out.").PlaceHolder("PLACE").String()
	buckets := addBucketFlags(cmd)
	return cmd, func(ctx context.Context, stdout, _ io.Writer) error {
		text, err := readReport(ctx, *from, buckets)
		if err != nil {
			return err
		}
		r, err := results.Parse(text)
		if err != nil {
			return fmt.Errorf("%s: %w", *from, err)
		}
		out, err := openOutput(ctx, *to, buckets, stdout)
		if err != nil {
			return err
		}
		err = out.put(ctx, func(w io.Writer) error { return r.Write(w, *format) })
		return errors.Join(err, out.Close())
	}
}

func readReport(ctx context.Context, place string, buckets *bucketFlags) ([]byte, error) {
	name, remote, err := inBucket(place)
	if err != nil {
		return nil, err
	}
	if !remote {
		return os.ReadFile(place)
	}
	b, err := buckets.open(ctx)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	return b.Report(ctx, name)
}

func addList(app *kingpin.Application) (*kingpin.CmdClause, command) {
	cmd := app.Command("list", "List the recordings and reports in a bucket.")
	buckets := addBucketFlags(cmd)
	return cmd, func(ctx context.Context, stdout, _ io.Writer) error {
		b, err := buckets.open(ctx)
		if err != nil {
			return err
		}
		defer b.Close()
		t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
		err = b.List(ctx, func(e bucket.Entry) {
			if e.Manifest == nil {
				fmt.Fprintf(t, "bucket:%s\treport\n", e.Name)
				return
			}
			fmt.Fprintf(t, "bucket:%s\trecording\t%.1f MiB\t%s\n", e.Name, float64(e.Manifest.Bytes())/(1<<20), e.Manifest.Created.Format("2006-01-02 15:04"))
		})
		if err != nil {
			return err
		}
		return t.Flush()
	}
}
