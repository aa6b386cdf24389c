// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package promguard holds the flags of what promguard adds to Prometheus. The
// off value of each gives upstream's behaviour.
package promguard

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/prometheus/prometheus/internal/didyoumean"
	"github.com/prometheus/prometheus/internal/relabel"
	"github.com/prometheus/prometheus/internal/screen"
	"github.com/prometheus/prometheus/promguard/walreplay"
)

// Flags are the values of promguard's flags, set when the application parses
// its command line.
type Flags struct {
	reads         readFlags
	walReplay     walreplay.Limit
	replay        choice
	dropRulesFlag dropRulesFlag
	dropRules     *dropRules
	series        seriesFlags
}

// Values of --guard.wal-replay.
const (
	replayParallel = "parallel"
	replayUpstream = "upstream"
)

// A newFlag adds a flag to the application.
type newFlag func(a *kingpin.Application, name, help string) *kingpin.FlagClause

// AddFlags adds promguard's flags to the application. Those that an agent refuses,
// as they are of no use to it, are made by serverOnly.
func AddFlags(a *kingpin.Application, serverOnly newFlag) *Flags {
	f := &Flags{replay: choice{words: []string{replayParallel, replayUpstream}}}
	add := func(name, help, value string, v kingpin.Value) {
		serverOnly(a, name, help).Default(value).SetValue(namedValue{v, name})
	}
	f.series.add(add)
	f.reads.add(add)
	serverOnly(a, "no-guard.query-text-limits", "The same as --guard.query-text-limits=off.").Hidden().BoolVar(&f.reads.noText)
	add("guard.wal-replay-gomaxprocs", fmt.Sprintf("Processors used while the write-ahead log is replayed at start: auto, off, or a number. auto is the processors that the machine has and the process may use, at most %d. It never raises GOMAXPROCS.", walreplay.AutoMax),
		"auto", &f.walReplay)
	add("guard.wal-replay", "How the checkpoint and the write-ahead log are replayed at start: parallel or upstream, which is off. parallel also keeps what the repair of a damaged log removes.",
		replayParallel, &f.replay)
	a.Flag("guard.drop-rules", "Default drop rules, applied to every scrape after its own metric_relabel_configs, and to what is received by remote write and OTLP: "+strings.Join(relabel.ProfileNames(), ", ")+", or a file, which is read again with the configuration. The label __promguard_drop_rules__ of a target names others, or off. Other rules, or off, for what is received: recommended,remote-write=off,otlp=minimal.").
		Default(relabel.ProfileRecommended).SetValue(namedValue{&f.dropRulesFlag, "guard.drop-rules"})
	return f
}

// Fail ends the process if what is wrong with its command line is a flag of
// promguard's: with one line, and not with upstream's usage behind it.
func (*Flags) Fail(a *kingpin.Application, err error) {
	if text := complaint(a.Model(), err); text != "" {
		fmt.Fprintln(os.Stderr, "prometheus: "+text)
		os.Exit(2)
	}
}

// ours finds a flag of promguard's in an error of the parser's.
var ours = regexp.MustCompile(`'?--((?:no-)?guard[.-][\w.-]*)`)

func complaint(app *kingpin.ApplicationModel, err error) string {
	m := ours.FindStringSubmatch(err.Error())
	if m == nil {
		return ""
	}
	var known []string
	for _, f := range app.Flags {
		if f.Name == m[1] {
			return err.Error()
		}
		known = append(known, "--"+f.Name)
	}
	return err.Error() + didyoumean.Hint("--"+m[1], known)
}

// Log says which limits are in force. An agent only scrapes.
func (f *Flags) Log(logger *slog.Logger, agent bool) {
	attrs := f.attrs()
	if agent {
		attrs = attrs[len(attrs)-1:]
	}
	logger.LogAttrs(context.Background(), slog.LevelInfo, "promguard", attrs...)
}

// attrs are the values of the flags; the last are the drop rules.
func (f *Flags) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("memory_limit", f.series.memory.String()), slog.String("max_head_series", f.series.head.String()), slog.String("series_limits", f.series.limits),
		slog.String("series_labels", f.series.labels.String()),
		f.reads.logAttrs(), slog.String("wal_replay", f.replay.String()), slog.String("wal_replay_gomaxprocs", f.walReplay.String()),
		slog.String("drop_rules", f.dropRulesFlag.String()),
	}
}

// settings are the same for the page.
func settings(attrs []slog.Attr) (list []screen.Setting) {
	for _, a := range attrs {
		if a.Value.Kind() == slog.KindGroup {
			list = append(list, settings(a.Value.Group())...)
			continue
		}
		list = append(list, screen.Setting{Name: strings.ReplaceAll(a.Key, "_", " "), Value: a.Value.String()})
	}
	return list
}

// CapWALReplay caps the processors and the replay concurrency until the
// function it returns is called.
func (f *Flags) CapWALReplay(concurrency *int, logger *slog.Logger, reg prometheus.Registerer) (restore func()) {
	return walreplay.Cap(f.walReplay, concurrency, logger, reg)
}

// ParallelWALReplay reports whether the WAL is not replayed by upstream's code.
func (f *Flags) ParallelWALReplay() bool { return f.replay.word == replayParallel }
