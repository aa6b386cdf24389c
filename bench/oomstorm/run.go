// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/oomstorm/internal/probe"
	"github.com/promguard/promguard/bench/oomstorm/internal/server"
	"github.com/promguard/promguard/bench/oomstorm/internal/slots"
	"github.com/promguard/promguard/bench/oomstorm/internal/storm"
	"github.com/promguard/promguard/bench/oomstorm/internal/targets"
)

const (
	// recoveredAt is the share of its memory at rest that a server has come down
	// to when it has recovered.
	recoveredAt = 1.1
	// askTimeout is how long a server may take to tell what it has stored, once
	// the storm is over.
	askTimeout = time.Minute
	rulePeriod = time.Second
	sayPeriod  = 10 * time.Second
	// cutTime is how long the clients have to notice that the server has ended.
	cutTime = 200 * time.Millisecond
)

// runStorms lets one storm after the other loose. Whatever happens, no process,
// directory or cgroup is left.
func runStorms(ctx context.Context, c stormConfig, stdout, stderr io.Writer) (err error) {
	h, err := newHost(ctx, c.common, c.Duration+c.Baseline, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	if h.set, err = targets.Serve(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.set.Close()) }()
	if h.config, err = writeConfig(h.dir, h.set, c.ScrapeInterval, c.RuleInterval); err != nil {
		return err
	}
	var results []stormResult
	for _, b := range c.Binaries {
		r, err := runStorm(ctx, h, c, b)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	return writeStorms(stdout, c, results)
}

// runStorm is the storm of one binary.
func runStorm(ctx context.Context, h *host, c stormConfig, b binary.Binary) (r stormResult, err error) {
	s, err := h.open(ctx, b)
	r = stormResult{Binary: b, Rest: s.rest, Limit: h.limit, LimitBy: s.limitBy, GOMemLimit: s.memory, Series: s.stats.Series, Buckets: s.stats.Buckets}
	if early := (*server.EarlyEndError)(nil); errors.As(err, &early) && s.rest > 0 {
		r.How = "before the storm, as it started under the limit: " + early.How
		h.say(b, "ended %s", r.How)
		return r, nil
	}
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	t := &tempest{session: s, config: c, result: &r}
	return r, errors.Join(t.run(ctx), context.Cause(ctx))
}

// tempest is one storm on one server.
type tempest struct {
	*session
	config     stormConfig
	result     *stormResult
	start, end time.Time
}

func (t *tempest) run(ctx context.Context) error {
	t.host.say(t.Binary, "asking the innocent query for %s", t.config.Baseline)
	t.result.Unloaded = t.baseline(ctx)
	if err := t.ResetPeak(); err != nil && t.Alive() {
		return err
	}
	t.host.say(t.Binary, "storm of %d clients for %s", t.config.Clients, t.config.Duration)
	if err := t.storm(ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t.afterwards(ctx)
	return nil
}

func (t *tempest) baseline(ctx context.Context) probe.Result {
	ctx, cancel := context.WithTimeout(ctx, t.config.Baseline)
	defer cancel()
	return probe.Run(ctx, t.Dead(), t.URL, t.config.ProbeRate)
}

// storm has clients, probe and watchers run at once until the time is over or
// the server has ended.
func (t *tempest) storm(ctx context.Context) error {
	t.start = time.Now()
	ctx, cancel := context.WithDeadline(ctx, t.start.Add(t.config.Duration))
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		select {
		case <-t.Dead():
			time.Sleep(cutTime)
			cancel()
		case <-ctx.Done():
		}
	})
	all.Go(func() { t.result.Meanwhile = probe.Run(ctx, t.Dead(), t.URL, t.config.ProbeRate) })
	all.Go(func() { t.result.Rules, t.result.RuleFailures = t.followRules(ctx) })
	all.Go(func() { t.sayNowAndThen(ctx) })
	var err error
	all.Go(func() {
		t.result.Answers, err = storm.RunInChild(ctx, storm.Config{
			URL: t.URL, Clients: t.config.Clients, Seed: t.config.Seed, Mix: t.config.Mix, Timeout: t.config.ClientTimeout,
			Slow: t.config.Slow, Leave: t.config.Leave, Gzip: t.config.Gzip, Post: t.config.Post,
			From: t.from, Points: storm.PointsFor(t.config.Series),
		})
		t.Watch.AwaitBelow(int64(recoveredAt * float64(t.rest)))
	})
	all.Wait()
	t.end = t.start.Add(t.config.Duration)
	return err
}

func (t *tempest) sayNowAndThen(ctx context.Context) {
	tick := time.NewTicker(sayPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			left := max(0, t.config.Duration-time.Since(t.start))
			t.host.say(t.Binary, "%s, peak %s, %s left", mib(t.Watch.Now().RSS), mib(t.Watch.Peak().RSS), left.Round(time.Second))
		}
	}
}

// afterwards asks a server that lives what it has stored, and sees how it comes
// to rest and ends.
func (t *tempest) afterwards(ctx context.Context) {
	r := t.result
	stored := t.stored(ctx)
	t.recover(ctx)
	r.Peak = peaks(t.Watch.Peak())
	if t.Alive() {
		r.Survived = true
		r.Lived = t.config.Duration.Seconds()
		t.host.say(t.Binary, "survived, peak %s", mib(r.Peak.HWM))
		if at := t.Watch.Recovered(); !at.IsZero() {
			r.Recovered = seconds(max(0, at.Sub(t.end)))
		}
		if took, clean := t.Stop(ctx, t.config.Settle); clean {
			r.Terminated = seconds(took)
		}
	} else {
		r.Lived = t.Ended().Sub(t.start).Seconds()
		r.How = t.how()
		r.Log = t.Tail()
		t.host.say(t.Binary, "ended after %.1f s: %s", r.Lived, r.How)
		if t.Ended().Before(t.end) {
			t.end = t.Ended()
		}
	}
	r.Scrapes = t.host.set.Check(t.config.ScrapeInterval, t.start, t.end)
	t.judge(stored)
}

// judge takes what is stored for what happened: a scrape may have been made and
// its samples lost.
func (t *tempest) judge(stored *storedTimes) {
	r := t.result
	if stored == nil {
		return
	}
	var scrapes slots.Count
	for _, times := range stored.up {
		scrapes.Add(slots.Check(times[0], t.config.ScrapeInterval, times, t.start, t.end))
	}
	if len(stored.up) == len(t.host.set.Paths) {
		r.Scrapes.Missed = max(r.Scrapes.Missed, scrapes.Missed)
	} else {
		r.Scrapes.Missed = r.Scrapes.Expected
	}
	if len(stored.rules) > 0 {
		rules := slots.Check(stored.rules[0], t.config.RuleInterval, stored.rules, t.start, t.end)
		r.Rules = slots.Count{Expected: rules.Expected, Missed: max(rules.Missed, r.Rules.Missed)}
	}
}

// recover waits until memory has come down, the server has ended, or the wait is
// over.
func (t *tempest) recover(ctx context.Context) {
	ctx, cancel := context.WithDeadline(ctx, t.end.Add(t.config.Settle))
	defer cancel()
	for t.Watch.Recovered().IsZero() {
		if t.wait(ctx) != nil {
			return
		}
	}
}

// storedTimes are the times of samples that the server has: of scrapes that were
// good, by target, and of evaluations of the rules.
type storedTimes struct {
	up    map[string][]time.Time
	rules []time.Time
}

// stored asks until it is answered; nil if that takes too long.
func (t *tempest) stored(ctx context.Context) *storedTimes {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for {
		up, err := t.times(ctx, "up", "instance")
		if err == nil {
			var beats map[string][]time.Time
			if beats, err = t.times(ctx, heartbeat, "__name__"); err == nil {
				return &storedTimes{up: up, rules: beats[heartbeat]}
			}
		}
		if t.wait(ctx) != nil {
			return nil
		}
	}
}

// times are the times at which series were 1, by the value of a label. They
// reach back to before the storm.
func (t *tempest) times(ctx context.Context, name, by string) (map[string][]time.Time, error) {
	reach := time.Since(t.start) + t.config.Baseline
	b, err := t.Get(ctx, "/api/v1/query?query="+url.QueryEscape(fmt.Sprintf("%s[%dms]", name, reach.Milliseconds())))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, err
	}
	times := map[string][]time.Time{}
	for _, s := range answer.Data.Result {
		key := s.Metric[by]
		for _, v := range s.Values {
			if at, ok := v[0].(float64); ok && v[1] == "1" {
				times[key] = append(times[key], time.UnixMilli(int64(at*1000)))
			}
		}
	}
	return times, nil
}

// followRules reads the counters of rule evaluations while the storm lasts: a
// server that is killed can tell nothing afterwards. The counts are as of the
// last answer.
func (t *tempest) followRules(ctx context.Context) (slots.Count, int) {
	first, err := t.ruleCounters(context.WithoutCancel(ctx))
	if err != nil {
		return slots.Count{}, 0
	}
	last := first
	tick := time.NewTicker(rulePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if now, err := t.ruleCounters(context.WithoutCancel(ctx)); err == nil {
				last = now
			}
			return slots.Count{Expected: last.scheduled - first.scheduled, Missed: last.missed - first.missed}, last.failed - first.failed
		case <-tick.C:
			if now, err := t.ruleCounters(ctx); err == nil {
				last = now
			}
		}
	}
}

type ruleCounters struct{ scheduled, missed, failed int }

func (t *tempest) ruleCounters(ctx context.Context) (ruleCounters, error) {
	ctx, cancel := context.WithTimeout(ctx, probe.Timeout)
	defer cancel()
	b, err := t.Get(ctx, "/metrics")
	if err != nil {
		return ruleCounters{}, err
	}
	return ruleCounters{
		scheduled: sumMetric(b, "prometheus_rule_group_iterations_total"),
		missed:    sumMetric(b, "prometheus_rule_group_iterations_missed_total"),
		failed:    sumMetric(b, "prometheus_rule_evaluation_failures_total"),
	}, nil
}

// sumMetric sums all series of a metric in the text format.
func sumMetric(text []byte, name string) int {
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		fields := strings.Fields(rest[strings.LastIndexByte(rest, '}')+1:])
		if len(fields) == 0 {
			continue
		}
		if v, err := strconv.ParseFloat(fields[0], 64); err == nil {
			sum += v
		}
	}
	return int(sum)
}
