// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/promguard/memory"
)

func parse(t *testing.T, args ...string) (*Flags, *kingpin.Application, error) {
	t.Helper()
	a := kingpin.New("prometheus", "")
	f := AddFlags(a, (*kingpin.Application).Flag)
	_, err := a.Parse(args)
	return f, a, err
}

func TestEveryFlagCanBeOff(t *testing.T) {
	_, a, err := parse(t)
	require.NoError(t, err)
	n := 0
	for _, flag := range a.Model().Flags {
		if !strings.HasPrefix(flag.Name, "guard.") {
			continue
		}
		n++
		_, a, err := parse(t, "--"+flag.Name+"=off")
		require.NoError(t, err)
		for _, set := range a.Model().Flags {
			if set.Name == flag.Name {
				require.Contains(t, []string{"off", "upstream", "whole"}, set.Value.String(), flag.Name)
			}
		}
	}
	require.Equal(t, 18, n)
}

func TestFlagsKeepTheirOtherSpellingsOfOff(t *testing.T) {
	f, _, err := parse(t, "--guard.api-timeout=0", "--guard.queue-timeout=0s", "--guard.spare-connections=0", "--guard.wal-replay=upstream", "--no-guard.query-text-limits")
	require.NoError(t, err)
	require.Zero(t, f.reads.timeout.Duration)
	require.Zero(t, f.reads.queueTimeout.Duration)
	require.Zero(t, f.reads.spare.or(7))
	require.False(t, f.ParallelWALReplay())
	require.False(t, f.reads.checkText())
}

func TestErrorsOfFlagsNameTheFlagAndWhatItTakes(t *testing.T) {
	for flag, want := range map[string]string{
		"guard.api-timeout=soon":                 `--guard.api-timeout: "soon" is neither off nor a duration such as 30s`,
		"guard.queue-timeout=10":                 `--guard.queue-timeout: "10" is neither off nor a duration such as 30s`,
		"guard.spare-connections=some":           `--guard.spare-connections: "some" is neither off nor a number of at least 1`,
		"guard.bulk-concurrency=-1":              `--guard.bulk-concurrency: "-1" is neither auto, off nor a number of at least 1`,
		"guard.query-text-limits=maybe":          `--guard.query-text-limits: "maybe" is neither off nor on`,
		"guard.wal-replay=fast":                  `--guard.wal-replay: "fast" is neither off nor parallel nor upstream`,
		"guard.wal-replay-gomaxprocs=-2":         `--guard.wal-replay-gomaxprocs: "-2" is neither auto, off, nor a number of processors of at least 1`,
		"guard.response-max-bytes=1e3":           `--guard.response-max-bytes: "1e3" is neither off nor a size such as 512MB of at least 1`,
		"guard.read-memory-budget=1KB":           `--guard.read-memory-budget: "1KB" is less than 16MiB: each read takes 1 MiB at its start, and one may have half`,
		"guard.read-memory-budget=16777215":      `is less than 16MiB`,
		"guard.memory-limit=1KB":                 `--guard.memory-limit: "1KB" is less than 64MiB: a server without series takes nearly that`,
		"guard.memory-limit=off,reject-scrapes":  `nothing is rejected where there is no limit`,
		"guard.max-head-series=1e6":              `--guard.max-head-series: "1e6" is neither off nor a number of series of at least 1`,
		"guard.max-head-series=5,maybe":          `--guard.max-head-series: "maybe" is not one of off, observe, warn, enforce`,
		"guard.series-labels=short":              `--guard.series-labels: "short" is neither off nor packed nor whole`,
		"guard.memory-limit=much":                `--guard.memory-limit: "much" is neither auto, off nor a size such as 512MB of at least 1`,
		"guard.drop-rules=off,federate=off":      `--guard.drop-rules: "off,federate=off": "federate" is not one of remote-write, otlp`,
		"guard.drop-rules=off,otlp=rules.yml":    `"off,otlp=rules.yml": otlp=rules.yml is not one of minimal, recommended, aggressive, off`,
		"guard.drop-rules=off,otlp=off,otlp=off": `otlp is there twice`,
	} {
		_, _, err := parse(t, "--"+flag)
		require.ErrorContains(t, err, want)
	}
}

func TestAnAgentTakesNoFlagButThatOfItsScrapes(t *testing.T) {
	a := kingpin.New("prometheus", "")
	serverOnly := map[string]bool{}
	AddFlags(a, func(a *kingpin.Application, name, help string) *kingpin.FlagClause {
		serverOnly[name] = true
		return a.Flag(name, help)
	})
	for _, flag := range a.Model().Flags {
		if strings.Contains(flag.Name, "guard.") {
			require.Equal(t, flag.Name != "guard.drop-rules", serverOnly[flag.Name], flag.Name)
		}
	}
}

func TestDropRulesAreToldByPath(t *testing.T) {
	for flag, want := range map[string][3]string{
		"recommended":                              {"recommended", "recommended", "recommended"},
		"recommended,remote-write=off":             {"recommended", "off", "recommended"},
		"rules.yml,otlp=minimal":                   {"rules.yml", "rules.yml", "minimal"},
		"off,otlp=aggressive,remote-write=minimal": {"off", "minimal", "aggressive"},
		"a,b.yml":                  {"a,b.yml", "a,b.yml", "a,b.yml"},
		"a=b.yml,remote-write=off": {"a=b.yml", "off", "a=b.yml"},
	} {
		f, _, err := parse(t, "--guard.drop-rules="+flag)
		require.NoError(t, err)
		require.Equal(t, flag, f.dropRulesFlag.String())
		require.Equal(t, want, [3]string{f.dropRulesFlag.source, f.dropRulesFlag.of("remote-write"), f.dropRulesFlag.of("otlp")}, flag)
		require.False(t, f.dropRulesFlag.off())
	}
	for _, flag := range []string{"off", "off,otlp=off,remote-write=off"} {
		f, _, err := parse(t, "--guard.drop-rules="+flag)
		require.NoError(t, err)
		require.True(t, f.dropRulesFlag.off(), flag)
	}
}

func TestTheLogSaysWhatIsInForce(t *testing.T) {
	f, _, err := parse(t, "--guard.drop-rules=minimal", "--guard.spare-connections=3")
	require.NoError(t, err)
	logged := func(agent bool) string {
		var b bytes.Buffer
		f.Log(slog.New(slog.NewTextHandler(&b, nil)), agent)
		return b.String()
	}
	server := logged(false)
	require.Contains(t, server, "reads.timeout=30s")
	require.Contains(t, server, "reads.spare_connections=3 wal_replay=parallel")
	require.Contains(t, server, "drop_rules=minimal")
	require.Regexp(t, `msg=promguard drop_rules=minimal\n$`, logged(true))
}

func TestReadsByThemselvesAreAsManyAsUpstreamLetsIn(t *testing.T) {
	f, _, err := parse(t)
	require.NoError(t, err)
	require.EqualValues(t, 10, f.reads.bulkConcurrency(2, 10))
	require.EqualValues(t, 16, f.reads.bulkConcurrency(16, 10))
	require.EqualValues(t, 4, f.reads.bulkConcurrency(1, 0))
	f, _, err = parse(t, "--guard.bulk-concurrency=3")
	require.NoError(t, err)
	require.EqualValues(t, 3, f.reads.bulkConcurrency(2, 10))
}

func TestTheBudgetOfReadsFollowsTheMemoryAndTheFlag(t *testing.T) {
	const limit = 1 << 40
	for _, tc := range []struct {
		memory, budget string
		most           int64 // 0: none.
		warns          bool
	}{
		{"1TB", "auto", limit * 4 / 5, false},
		{"off", "auto", math.MaxInt64, false}, // Of what the machine has.
		{"1TB", "64MB", 64 << 20, false},
		{"1TB", "2TB", limit * 4 / 5, true},
		{"off", "64MB", 64 << 20, false},
		{"1TB", "off", 0, false},
	} {
		f, _, err := parse(t, "--guard.memory-limit="+tc.memory, "--guard.read-memory-budget="+tc.budget)
		require.NoError(t, err)
		if n := f.series.memory.or(0); n > 0 {
			f.series.monitor = memory.NewMonitor(func() int64 { return n })
		}
		var log bytes.Buffer
		b, tight := f.budget(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
		require.Equal(t, tc.most > 0, b != nil, "%+v", tc)
		require.False(t, tight())
		if b != nil {
			require.LessOrEqual(t, b.Total(), tc.most, "%+v", tc)
			require.GreaterOrEqual(t, b.Total(), min(tc.most, 64<<20), "%+v", tc)
		}
		require.Equal(t, tc.warns, strings.Contains(log.String(), "more than the memory"), "%+v: %s", tc, &log)
	}
}

func TestAMistypedFlagOfPromguardsIsToldInOneLineWithTheOneThatWasMeant(t *testing.T) {
	for args, want := range map[string]string{
		"--guard.api-timout=10s":     "unknown long flag '--guard.api-timout', did you mean --guard.api-timeout?",
		"--guard-api-timeout=10s":    "unknown long flag '--guard-api-timeout', did you mean --guard.api-timeout?",
		"--guard.api-timeout":        "expected argument for flag '--guard.api-timeout'",
		"--guard.api-timeout=soon":   `--guard.api-timeout: "soon" is neither off nor a duration such as 30s`,
		"--guard.drop-rules=a,b=off": `--guard.drop-rules: "a,b=off": "b" is not one of remote-write, otlp`,
		"--config.fil=x":             "", // Upstream's, and so is what it says.
	} {
		_, a, err := parse(t, args)
		require.Error(t, err)
		require.Equal(t, want, complaint(a.Model(), err))
	}
}
