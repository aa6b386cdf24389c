// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// recordEvery is how often rules are evaluated.
const recordEvery = time.Minute

// Record evaluates the recording rules of a file over the time of the samples in
// dir, as Prometheus would have, and writes what they give into dir as a further
// block. A rule sees what those before it recorded.
func Record(ctx context.Context, dir, rules string) (err error) {
	groups, errs := rulefmt.ParseFile(rules, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	r, err := newRecorder(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			if rule.Record == "" {
				continue
			}
			if err := r.record(ctx, rule); err != nil {
				return fmt.Errorf("%s: %w", rule.Record, err)
			}
		}
	}
	return r.write(dir)
}

// recorder has the samples that are there, and a database for what is recorded.
type recorder struct {
	engine  *promql.Engine
	given   *tsdb.Block
	records *tsdb.DB
	temp    string
}

func newRecorder(dir string) (*recorder, error) {
	temp, err := os.MkdirTemp("", "panels-records-")
	if err != nil {
		return nil, err
	}
	logger := slog.New(slog.DiscardHandler)
	blocks, err := filepath.Glob(filepath.Join(dir, "*", "meta.json"))
	if err != nil || len(blocks) != 1 {
		return nil, errors.Join(err, fmt.Errorf("%s has %d blocks, not one", dir, len(blocks)), os.RemoveAll(temp))
	}
	given, err := tsdb.OpenBlock(logger, filepath.Dir(blocks[0]), nil, nil)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	opts := tsdb.DefaultOptions()
	opts.RetentionDuration = 0
	// Series come as wholes, one after the other.
	opts.MinBlockDuration, opts.MaxBlockDuration = span.Milliseconds(), span.Milliseconds()
	records, err := tsdb.Open(temp+"/records", logger, nil, opts, nil)
	if err != nil {
		return nil, errors.Join(err, given.Close(), os.RemoveAll(temp))
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 50e6, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	return &recorder{engine: engine, given: given, records: records, temp: temp}, nil
}

func (r *recorder) close() error {
	return errors.Join(r.engine.Close(), r.given.Close(), r.records.Close(), os.RemoveAll(r.temp))
}

// Querier reads both what was given and what was recorded.
func (r *recorder) Querier(mint, maxt int64) (storage.Querier, error) {
	given, err := tsdb.NewBlockQuerier(r.given, mint, maxt)
	if err != nil {
		return nil, err
	}
	records, err := r.records.Querier(mint, maxt)
	if err != nil {
		return nil, errors.Join(err, given.Close())
	}
	return storage.NewMergeQuerier([]storage.Querier{given, records}, nil, storage.ChainedSeriesMerge), nil
}

// record evaluates a rule over all the time at once: none of them reads what it
// recorded itself, nor what a later one does.
func (r *recorder) record(ctx context.Context, rule rulefmt.Rule) error {
	begin := End.Add(-Shown + first*time.Minute)
	query, err := r.engine.NewRangeQuery(ctx, r, nil, rule.Expr, begin, End, recordEvery)
	if err != nil {
		return err
	}
	defer query.Close()
	matrix, err := query.Exec(ctx).Matrix()
	if err != nil {
		return err
	}
	app := r.records.Appender(ctx)
	for _, s := range matrix {
		b := labels.NewBuilder(s.Metric).Set(labels.MetricName, rule.Record)
		for name, value := range rule.Labels {
			b.Set(name, value)
		}
		for _, p := range s.Floats {
			if _, err := app.Append(0, b.Labels(), p.T, p.F); err != nil {
				return errors.Join(err, app.Rollback())
			}
		}
	}
	return app.Commit()
}

// write puts what was recorded into dir; without any, it writes nothing.
func (r *recorder) write(dir string) error {
	if r.records.Head().NumSeries() == 0 {
		return nil
	}
	return r.records.Snapshot(dir, true)
}
