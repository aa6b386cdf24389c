// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/bench/walreplay/internal/bucket"
)

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
