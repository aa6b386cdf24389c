// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"

	"github.com/prometheus/prometheus/promguard/memory"
	"github.com/prometheus/prometheus/promguard/readapi"
	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/promguard/spareconn"
	promruntime "github.com/prometheus/prometheus/util/runtime"
	"github.com/prometheus/prometheus/web"
)

// on is the other value of a flag that is only on or off.
const on = "on"

// readFlags are the flags that limit requests which read the database.
type readFlags struct {
	timeout, queueTimeout       period
	metadata, read, query       limit
	memory, responseBytes, rate limit
	procs, spare                limit
	text                        choice
	noText                      bool
}

func (f *readFlags) add(add func(name, help, value string, v kingpin.Value)) {
	f.memory.bytes, f.responseBytes.bytes, f.rate.bytes = true, true, true
	for _, l := range []*limit{&f.metadata, &f.read, &f.query, &f.procs, &f.memory} {
		l.hasAuto = true
	}
	f.memory.least, f.memory.leastWhy = leastBudget, "each read takes 1 MiB at its start, and one may have half"
	f.text.words = []string{on, off}
	add("guard.api-timeout", "Deadline of every request that reads through the API or /federate. A request's own timeout= can only shorten it. PromQL, and remote read for PromQL elsewhere, have --query.timeout on top. off means no deadline.",
		"30s", &f.timeout)
	add("guard.metadata-concurrency", "How many requests for metadata (series, labels, targets, status/tsdb, search) run at a time: auto, off, or a number. auto is twice GOMAXPROCS, at least 4.",
		"auto", &f.metadata)
	add("guard.bulk-concurrency", "How many federation and remote read requests run at a time: auto, off, or a number. auto is GOMAXPROCS, or --storage.remote.read-concurrent-limit if that is more, at least 4.",
		"auto", &f.read)
	add("guard.query-concurrency", "How many PromQL requests are evaluated at a time: auto, off, or a number. auto is four fifths of --query.max-concurrency, so that rules always find room.",
		"auto", &f.query)
	add("guard.read-procs", "How many processors requests that run for long may keep busy while memory is tight: auto, off, or a number. auto is one less than GOMAXPROCS, at least 1: the rest is for small queries, scrapes and rules.",
		"auto", &f.procs)
	add("guard.queue-timeout", "How long a request other than remote read, which waits until its deadline, waits for its turn before it is answered with 503 and Retry-After. off means that none waits.",
		"10s", &f.queueTimeout)
	add("guard.read-memory-budget", "Memory that all read requests together may hold: auto, off, or a size. At least 16MB; one request may have half of it. auto is what everything else leaves of --guard.memory-limit, or of what that is by default; a size is the most that it may be.",
		"auto", &f.memory)
	add("guard.response-max-bytes", "Most bytes of an answer (PromQL, exemplars, label names and values, metadata, remote read of samples, federation), before compression; a larger one is refused. off means no bound.",
		"512MB", &f.responseBytes)
	add("guard.min-client-rate", "How fast a client must read its answer, in bytes per second over time; a slower one is cut off. off means any rate.",
		"16KB", &f.rate)
	add("guard.spare-connections", "Connections accepted while requests run on all --web.max-connections, each for one request to /-/*, /metrics, rules, alerts or status/guard; idle connections are closed for new ones. off means neither.",
		"16", &f.spare)
	add("guard.query-text-limits", "Refuse PromQL that takes seconds or hundreds of megabytes to parse: on or off. Refused are more than 10000 operators, 1 MiB of text, or regular expressions of 300000 instructions.",
		on, &f.text)
}

func (f *readFlags) logAttrs() slog.Attr {
	return slog.Group("reads",
		"timeout", f.timeout.String(), "queue_timeout", f.queueTimeout.String(),
		"metadata_concurrency", f.metadata.String(), "bulk_concurrency", f.read.String(), "query_concurrency", f.query.String(),
		"procs", f.procs.String(), "memory_budget", f.memory.String(),
		"response_max_bytes", f.responseBytes.String(), "min_client_rate", f.rate.String(), "query_text_limits", f.checkText(), "spare_connections", f.spare.String())
}

// LimitReads sets what limits the requests of the web handler, if any flag says
// so. The other options must be set already. An agent has nothing to read.
func (f *Flags) LimitReads(o *web.Options, queryTimeout model.Duration, queryConcurrency int, logger *slog.Logger, reg prometheus.Registerer) {
	if o.IsAgent {
		return
	}
	procs := int64(runtime.GOMAXPROCS(0))
	opts := readapi.Options{
		Timeout:             time.Duration(f.reads.timeout.Duration),
		QueryTimeout:        time.Duration(queryTimeout),
		MetadataConcurrency: int(f.reads.metadata.or(max(4, 2*procs))),
		BulkConcurrency:     int(f.reads.bulkConcurrency(procs, int64(o.RemoteReadConcurrencyLimit))),
		QueryConcurrency:    int(f.reads.query.or(max(1, int64(queryConcurrency)*4/5))),
		Procs:               int(f.reads.procs.or(max(1, procs-1))),
		QueueTimeout:        time.Duration(f.reads.queueTimeout.Duration),
		ResponseBytes:       f.reads.responseBytes.or(0),
		MinClientRate:       f.reads.rate.or(0),
		Memory:              f.series.monitor,
		NewSeries:           f.series.newSeries,
		CheckText:           f.reads.checkText(),
		ReadTimeout:         o.ReadTimeout,
		CORSOrigin:          o.CORSOrigin,
		EnableStop:          o.EnableLifecycle,
		Replay:              replayProgress(o.LocalStorage),
		Drops:               f.drops,
		Settings:            settings(f.attrs()),
	}
	opts.Budget, opts.Tight = f.budget(o.Context, logger)
	o.ExemplarStorage = countedExemplars{o.ExemplarStorage}
	if spare := int(f.reads.spare.or(0)); spare > 0 {
		o.Connections = spareconn.NewPool(o.MaxConnections, spare, silentConnections(o.MaxConnections), reg)
	}
	o.Reads = readapi.New(opts, reg)
}

// silentConnections returns how many connections wait for their client's first byte: ten
// times as many as may be used, if that takes no more than a fiftieth of the memory and a
// third of the files, at 8 KiB each.
func silentConnections(most int) int {
	n := 10 * most
	if limit := memory.Auto(); limit > 0 {
		n = min(n, int(limit/50/(8<<10)))
	}
	var files uint64
	if _, err := fmt.Sscanf(promruntime.FdLimits(), "(soft=%d,", &files); err == nil {
		n = int(min(uint64(n), files/3))
	}
	return max(n, 1)
}

// bulkConcurrency returns how many federation and remote read requests run at a
// time. By itself it lets in what upstream's own limit of remote reads does: what
// keeps more of them from hurting is the memory budget and the turns on processors.
func (f *readFlags) bulkConcurrency(procs, remoteReads int64) int64 {
	return f.read.or(max(4, procs, remoteReads))
}

// leastBudget is the smallest memory budget in bytes.
const leastBudget = 16 << 20

// budget returns the memory budget of reads, watched until the context ends, or nil if
// there is none, and whether memory is tight. It needs to know the memory of the process
// even if nothing else does.
func (f *Flags) budget(ctx context.Context, logger *slog.Logger) (b *reads.Budget, tight func() bool) {
	most := f.reads.memory.or(0)
	monitor := f.series.monitor
	if monitor == nil {
		monitor = memory.NewMonitor(memory.Auto)
	}
	limit := monitor.Usage().Limit
	if most == 0 && (!f.reads.memory.auto || limit == 0) {
		return nil, monitor.Tight
	}
	if f.series.monitor == nil {
		go monitor.Run(ctx)
	}
	b = reads.NewBudget(most, monitor.Usage)
	monitor.Transient(b.Used)
	go b.Backstop(ctx, monitor)
	logger.Info("Memory budget for reads", "bytes", b.Total())
	if limit > 0 && most > limit {
		logger.Warn("The memory budget for reads is more than the memory that the process may use", "bytes", most, "memory", limit)
	}
	return b, monitor.Tight
}

// checkText says whether PromQL that is costly to parse is refused.
func (f *readFlags) checkText() bool { return f.text.word == on && !f.noText }

// replayProgress returns a function that says how far the replay of the
// write-ahead log is.
func replayProgress(db web.LocalStorage) func() string {
	return func() string {
		status, err := db.WALReplayStatus()
		if err != nil || status.Max == 0 {
			return ""
		}
		if p := status.Progress; p != nil {
			return fmt.Sprintf("it replays the write-ahead log, %.1f %% done, about %s left", 100*p.Ratio, p.ETA.Round(time.Second))
		}
		return fmt.Sprintf("it replays the write-ahead log, segment %d of %d to %d", status.Current, status.Min, status.Max)
	}
}
