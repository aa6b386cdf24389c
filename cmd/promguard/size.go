// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/size"
)

// sizeFlags are the flags of size.
type sizeFlags struct {
	cluster       size.Cluster
	profile, file *string
	server        serverFlags
	shardMemory   func() float64
	replicas      int
	retention     string
	output        *string
}

func sizeCommand(app *kingpin.Application, stdout, stderr io.Writer) subcommand {
	cmd := app.Command("size", "Say how many patched Prometheus servers a cluster needs, and how large: series, memory, shards, disks, bucket, limits.")
	var f sizeFlags
	cmd.Flag("nodes", "Nodes of the cluster. With --prometheus.url, what it has is scaled to so many.").IntVar(&f.cluster.Nodes)
	cmd.Flag("pods-per-node", "Pods of a node, with none of --prometheus.url.").Default("30").IntVar(&f.cluster.PodsPerNode)
	cmd.Flag("churn", "Share of the pods that is replaced in an hour, with none of --prometheus.url.").Default("0.1").Float64Var(&f.cluster.Churn)
	cmd.Flag("scrape-interval", "Scrape interval of jobs whose own cannot be found out.").Default("30s").DurationVar(&f.cluster.Interval)
	f.profile, f.file = profileFlags(cmd)
	f.server.declare(cmd, "Count the series of this server, by instant queries one after the other.")
	memory := cmd.Flag("shard-memory", "Largest memory limit that a server may have.").Default("64GB").Bytes()
	f.shardMemory = func() float64 { return float64(*memory) }
	cmd.Flag("replicas", "Replicas of each shard.").Default("2").IntVar(&f.replicas)
	cmd.Flag("retention", "For how long samples are kept: by the server if one is enough, otherwise in the bucket.").Default("15d").StringVar(&f.retention)
	f.output = cli.Output(cmd, "patch")
	return subcommand{clause: cmd, run: func() error { return cli.Misuse(f.run(stdout, stderr)) }}
}

func (f *sizeFlags) run(stdout, stderr io.Writer) error {
	retention, err := model.ParseDuration(f.retention)
	if err != nil {
		return fmt.Errorf("--retention: %w", err)
	}
	progress := cli.NewProgress(stderr)
	load, err := f.load(progress)
	progress.End()
	if err != nil {
		return err
	}
	plan, err := size.New(load, size.Limits{ShardMemory: f.shardMemory(), Replicas: f.replicas, Retention: time.Duration(retention)})
	if err != nil {
		return err
	}
	return plan.Write(stdout, *f.output)
}

func (f *sizeFlags) load(progress *cli.Progress) (size.Load, error) {
	p, err := loadProfile(*f.profile, *f.file)
	if err != nil {
		return size.Load{}, err
	}
	if err := f.server.validate(); err != nil {
		return size.Load{}, err
	}
	if !f.server.given() {
		if f.cluster.Nodes == 0 {
			return size.Load{}, errors.New("give --nodes, or --prometheus.url of today's server")
		}
		return size.Model(p, f.cluster)
	}
	if f.cluster.Nodes < 0 || f.cluster.Interval <= 0 {
		return size.Load{}, errors.New("--scrape-interval must be above 0, --nodes not below")
	}
	api, err := f.server.client(progress)
	if err != nil {
		return size.Load{}, err
	}
	defer api.Close()
	return size.Live(context.Background(), p, api, f.cluster.Nodes, f.cluster.Interval)
}
