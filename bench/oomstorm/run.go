// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "embed"

	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/oomstorm/internal/clients"
	"github.com/promguard/promguard/bench/oomstorm/internal/family"
	"github.com/promguard/promguard/bench/oomstorm/internal/probe"
	"github.com/promguard/promguard/bench/oomstorm/internal/scenario"
	"github.com/promguard/promguard/bench/oomstorm/internal/server"
	"github.com/promguard/promguard/bench/oomstorm/internal/slots"
	"github.com/promguard/promguard/bench/oomstorm/internal/targets"
	"github.com/promguard/promguard/internal/cli"
)

const (
	// backAt is the share of its memory at rest that a server is back with.
	backAt = 1.1
	// askTimeout is how long a server may take to tell what it has stored, once
	// the clients have left.
	askTimeout = time.Minute
	followRate = time.Second
	sayPeriod  = 10 // rounds of followRate
	// cutTime is how long it takes to notice that a server has ended.
	cutTime     = 500 * time.Millisecond
	termTimeout = 3 * time.Minute
)

// Selectors of what must not be lost, and of what tells that nothing was.
const (
	lastingJobs  = targets.Steady + "|" + targets.Exploding
	passingNames = "up|scrape_.+|" + targets.Explosion
	lasting      = `{job=~"` + lastingJobs + `",__name__!~"` + passingNames + `"}`
	ups          = `up{job=~"` + lastingJobs + `"}`
)

type runOptions struct {
	options
	scenario    string
	expressions string
}

//go:embed dashboards.yaml
var shippedExpressions []byte

// loadExpressions reads what dashboards ask.
func loadExpressions(file string) (list []string, err error) {
	text := shippedExpressions
	if file != "" {
		if text, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("--expressions: %w", err)
		}
	}
	var entries []struct{ Expr string }
	if err := yaml.Unmarshal(text, &entries); err != nil {
		return nil, fmt.Errorf("--expressions: %w", err)
	}
	for _, e := range entries {
		list = append(list, e.Expr)
	}
	return list, nil
}

// binaryResult is what came of one binary. One that ended early has fewer phases.
type binaryResult struct {
	binary         binary.Binary
	rest, limit    int64
	limitBy        string
	memory         string
	phases         []phaseResult
	endedAtStart   string // how, if it ended before the first phase
	lastWords      []string
	endedWithPhase string
}

// phaseResult has the figures of a phase, by name, and the answers to the queries
// of expectations, by their index.
type phaseResult struct {
	name    string
	figures map[string]float64
	queries map[int]float64
	// families are the hostile ones by what came of them, while the server lived.
	families map[string]clients.Outcomes
}

// runScenario does what a scenario says. Whatever happens, no process, directory or
// cgroup is left.
func runScenario(ctx context.Context, o runOptions, stdout, stderr io.Writer) error {
	s, err := scenario.Load(o.scenario)
	if err != nil {
		return cli.Misuse(fmt.Errorf("--scenario: %w", err))
	}
	expressions, err := loadExpressions(o.expressions)
	if err != nil {
		return cli.Misuse(err)
	}
	results, err := runBinaries(ctx, o, s, expressions, stderr)
	if err != nil {
		return cli.Misuse(err)
	}
	if err := writeBench(stdout, s, results); err != nil {
		return cli.Misuse(err)
	}
	return judge(stderr, s, results)
}

func runBinaries(ctx context.Context, o runOptions, s *scenario.Scenario, expressions []string, stderr io.Writer) (results []binaryResult, err error) {
	h, err := newHost(ctx, o.options, s, stderr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	if h.set, err = targets.Serve(s.Steady, s.Churning); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.set.Close()) }()
	for _, b := range o.binaries {
		r, err := runBinary(ctx, h, b, expressions)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

func runBinary(ctx context.Context, h *host, b binary.Binary, expressions []string) (r binaryResult, err error) {
	s, err := h.open(ctx, b)
	r = binaryResult{binary: b, rest: s.rest, limit: h.limit, limitBy: s.limitBy, memory: s.memory}
	if early := (*server.EarlyEndError)(nil); errors.As(err, &early) && s.rest > 0 {
		r.endedAtStart, r.lastWords = early.How, early.Tail
		h.say(b, "ended as it started under the limit: %s", early.How)
		return r, nil
	}
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	lines, err := s.linesPerScrape(ctx)
	if err != nil {
		return r, err
	}
	for _, ph := range h.scenario.Phases {
		p := &phase{session: s, Phase: ph, lines: lines, expressions: expressions, result: phaseResult{name: ph.Name, figures: map[string]float64{}, queries: map[int]float64{}}}
		if err := p.run(ctx); err != nil {
			return r, err
		}
		r.phases = append(r.phases, p.result)
		if !s.Alive() {
			r.endedWithPhase, r.lastWords = s.how(), s.Tail()
			h.say(b, "ended in %s: %s", ph.Name, s.how())
			break
		}
	}
	return r, nil
}

// linesPerScrape is how many lasting series each scrape of a target leaves, by
// instance, as long as nothing happens.
func (s *session) linesPerScrape(ctx context.Context) (map[string]float64, error) {
	return s.values(ctx, "count by (instance) ("+lasting+")", time.Now())
}

// phase is one phase on one server.
type phase struct {
	*session
	scenario.Phase
	lines       map[string]float64
	expressions []string
	result      phaseResult
	start, end  time.Time

	status status     // as the server told last
	live   float64    // bytes of its heap, the same
	mu     sync.Mutex // of the figures
}

func (p *phase) set(name string, v float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.figures[name] = v
}

func (p *phase) get(name string) (v float64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok = p.result.figures[name]
	return v, ok
}

func (p *phase) seconds(name string, d time.Duration) { p.set(name, d.Seconds()) }

// run runs the phase. That the server ends is no error.
func (p *phase) run(ctx context.Context) error {
	p.host.say(p.binary, "%s, for %s", p.Name, p.For)
	if err := p.ResetPeak(); err != nil && p.Alive() {
		return err
	}
	if c, err := p.counters(ctx); err == nil {
		p.live = c["go_gc_heap_live_bytes"]
	}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	type answer struct {
		clients.Result
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		result, err := clients.RunInChild(asking, clients.Config{
			URL: p.URL, Seed: p.host.scenario.Seed, Phase: p.Phase, Families: p.host.scenario.AllFamilies(), Expressions: p.expressions,
			Data: family.Data{Points: family.PointsFor(p.host.scenario.Series)},
		})
		answered <- answer{result, err}
		stop() // They are through.
	}()
	err := p.restart(ctx)
	if err == nil && p.Alive() {
		err = p.measure(asking)
	}
	stop()
	a := <-answered
	if err := errors.Join(err, a.err, context.Cause(ctx)); err != nil {
		return err
	}
	p.addClients(a.Result)
	p.addMemory()
	alive := 0.0
	if p.Alive() {
		alive = 1
		p.addStored(ctx)
		p.answerQueries(ctx)
	}
	p.set("alive", alive)
	return nil
}

// restart ends the server and starts it again, if the phase says so. A server that
// ends as it starts is left dead.
func (p *phase) restart(ctx context.Context) error {
	if p.Restart == "" {
		return nil
	}
	begin := time.Now()
	if p.Restart == "kill" {
		p.Kill()
	} else if _, clean := p.Stop(ctx, termTimeout); !clean {
		p.host.say(p.binary, "did not end within %s of SIGTERM", termTimeout)
	}
	p.seconds("ended-sec", time.Since(begin))
	begin = time.Now()
	err := p.session.start(ctx)
	if early := (*server.EarlyEndError)(nil); errors.As(err, &early) {
		p.host.say(p.binary, "ended as it started again: %s", early.How)
		return nil
	}
	if err != nil {
		return err
	}
	p.seconds("ready-sec", time.Since(begin))
	if p.live > 0 {
		peak := p.Watch.Peak()
		p.set("restart-of-live", float64(max(peak.Peak, peak.RSS))/p.live)
	}
	return nil
}

// measure lets the phase happen, and watches, until its time is over, the server has
// ended, or the clients are through.
func (p *phase) measure(ctx context.Context) error {
	set := p.host.set
	exploded := set.Exploded()
	set.Explode(p.Explode)
	set.Churn(p.Churn)
	p.start = time.Now()
	if p.Compact {
		if err := p.sendAhead(ctx); err != nil && p.Alive() {
			return err
		}
	}
	ctx, cancel := context.WithDeadline(ctx, p.start.Add(p.For))
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() { p.addProbes(probe.Run(ctx, p.Dead(), p.URL, p.host.scenario.ProbeRate)) })
	watching.Go(func() { p.follow(ctx, cancel) })
	select {
	case <-p.Dead():
		time.Sleep(cutTime)
		cancel()
	case <-ctx.Done():
	}
	p.end = time.Now()
	set.Explode(0)
	set.Churn(0)
	watching.Wait()
	if p.Explode > 0 {
		p.set("exploded", float64(set.Exploded()-exploded))
	}
	if !p.Alive() && p.Ended().Before(p.end) {
		p.end = p.Ended()
	}
	p.seconds("lived-sec", p.end.Sub(p.start))
	p.set("scrapes-missed", float64(set.Check(p.host.scenario.ScrapeInterval, p.start, p.end).Missed))
	return nil
}

// status is what /api/v1/status/guard tells, where there is one.
type status struct {
	Memory struct {
		State string `json:"state"`
	} `json:"memory"`
	NewSeries json.RawMessage `json:"newSeries"`
}

// follow reads counters while the phase lasts: a server that is killed can tell
// nothing afterwards. Figures are as of the last answer.
func (p *phase) follow(ctx context.Context, end func()) {
	tick := time.NewTicker(followRate)
	defer tick.Stop()
	last, _ := p.counters(ctx)
	sums := map[string]float64{}
	for round := 1; ; round++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		if now, err := p.counters(context.WithoutCancel(ctx)); err == nil {
			for name, v := range now {
				sums[name] += max(0, v-last[name])
			}
			last = now
			p.addCounters(sums, now)
		}
		if ctx.Err() != nil {
			return
		}
		p.readStatus(ctx)
		if p.UntilBack && p.isBack(ctx) {
			p.seconds("back-sec", time.Since(p.start))
			end()
		}
		if round%sayPeriod == 0 {
			p.host.say(p.binary, "%s: %s, peak %s, %s left", p.Name, mib(p.Watch.Now().RSS), mib(p.Watch.Peak().RSS), time.Until(p.start.Add(p.For)).Round(time.Second))
		}
	}
}

// followed are the counters and gauges of /metrics that figures come from.
var followed = []string{
	"prometheus_rule_group_iterations_missed_total", "prometheus_rule_evaluation_failures_total", "prometheus_tsdb_compactions_total",
	"prometheus_guard_read_memory_budget_bytes", "go_gc_heap_live_bytes",
}

func (p *phase) addCounters(sums, now map[string]float64) {
	p.set("rules-missed", sums["prometheus_rule_group_iterations_missed_total"])
	p.set("rules-failed", sums["prometheus_rule_evaluation_failures_total"])
	p.set("compactions", sums["prometheus_tsdb_compactions_total"])
	p.live = now["go_gc_heap_live_bytes"]
	if budget := now["prometheus_guard_read_memory_budget_bytes"]; budget > 0 {
		peak := p.Watch.Peak()
		p.set("over-rest-of-budget", float64(max(peak.Peak, peak.RSS)-p.rest)/budget)
	}
}

func (p *phase) counters(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, probe.Timeout)
	defer cancel()
	text, err := p.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for _, name := range followed {
		values[name] = sumMetric(text, name)
	}
	return values, nil
}

// sumMetric sums all series of a metric in the text format.
func sumMetric(text []byte, name string) (sum float64) {
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
	return sum
}

// readStatus sees whether the server has named the culprit.
func (p *phase) readStatus(ctx context.Context) {
	b, err := p.Get(ctx, "/api/v1/status/guard")
	if err != nil {
		return
	}
	var answer struct{ Data status }
	if json.Unmarshal(b, &answer) != nil {
		return
	}
	p.status = answer.Data
	_, known := p.get("culprit-sec")
	if p.Explode > 0 && !known && bytes.Contains(answer.Data.NewSeries, []byte(`"`+targets.Exploding+`"`)) {
		p.seconds("culprit-sec", time.Since(p.start))
	}
}

// isBack says whether everything is as at rest: the memory's state, or where there
// is none the memory, and what is scraped.
func (p *phase) isBack(ctx context.Context) bool {
	if p.status.Memory.State != "" && p.status.Memory.State != "ok" {
		return false
	}
	if p.status.Memory.State == "" && float64(p.Watch.Now().RSS) > backAt*float64(p.rest) {
		return false
	}
	up, err := p.values(ctx, "sum(up)", time.Now())
	return err == nil && up[""] == float64(len(p.host.set.Targets)+1)
}

func (p *phase) addProbes(r probe.Result) {
	p.set("sum-up-p50-sec", r.Query.P50)
	p.set("sum-up-p99-sec", r.Query.P99)
	p.set("sum-up-failed", float64(r.Query.Failed))
	p.set("health-p99-sec", r.Health.P99)
	p.set("health-failed", float64(r.Health.Failed))
	p.set("metrics-p99-sec", r.Metrics.P99)
	p.set("metrics-failed", float64(r.Metrics.Failed))
}

func (p *phase) addMemory() {
	m := p.Watch.Peak()
	peak := max(m.Peak, m.RSS)
	p.set("peak-bytes", float64(peak))
	p.set("over-rest-bytes", float64(peak-p.rest))
	if p.host.limit > 0 {
		p.set("peak-of-limit", float64(m.Anon)/float64(p.host.limit))
	}
}

func (p *phase) addClients(r clients.Result) {
	refused := func(o clients.Outcomes) (n int) {
		for outcome, count := range o {
			if _, err := strconv.Atoi(outcome); err == nil && outcome != "200" {
				n += count
			}
		}
		return n
	}
	if p.Storm != nil {
		all := clients.Outcomes{}
		for _, o := range r.Storm {
			for outcome, n := range o {
				all[outcome] += n
			}
		}
		p.result.families = r.Storm
		p.set("storm-answered", float64(all["200"]))
		p.set("storm-refused", float64(refused(all)))
		p.set("storm-cut", float64(all[clients.Cut]))
	}
	if d := r.Dashboards; p.Dashboards != nil {
		asked := 0
		for n := range maps.Values(d.Outcomes) {
			asked += n
		}
		p.set("dashboards-answered", float64(d.Outcomes["200"]))
		p.set("dashboards-refused-share", float64(asked-d.Outcomes["200"])/float64(max(1, asked)))
		p.set("dashboards-unfriendly", float64(d.Unfriendly))
		if p.Dashboards.Rounds > 0 && d.Through > 0 {
			p.seconds("dashboards-sec", d.Through)
		}
		if len(d.Took) > 0 {
			p.seconds("dashboards-p99-sec", probe.Quantile(slices.Sorted(slices.Values(d.Took)), 0.99))
		}
	}
	if p.SlowReaders != nil {
		p.set("slow-answers", float64(r.Slow["200"]))
		p.set("slow-refused", float64(refused(r.Slow)))
		p.set("slow-cut", float64(r.Slow[clients.Cut]))
	}
	if p.IdleConnections > 0 {
		p.set("idle-connections", float64(r.Idle))
	}
}

// addStored takes what is stored for what happened: a scrape may have been made and
// its samples lost.
func (p *phase) addStored(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for {
		err := p.compareStored(ctx)
		if err == nil {
			return
		}
		if p.wait(ctx) != nil {
			p.host.say(p.binary, "%s: cannot be asked what is stored: %v", p.Name, err)
			return
		}
	}
}

func (p *phase) compareStored(ctx context.Context) error {
	window := fmt.Sprintf("[%dms]", p.end.Sub(p.start).Milliseconds())
	up, err := p.times(ctx, ups+window, "instance")
	if err != nil {
		return err
	}
	beats, err := p.times(ctx, heartbeat+window, "__name__")
	if err != nil {
		return err
	}
	stored, err := p.storedSamples(ctx, p.start, p.end)
	if err != nil {
		return err
	}
	interval := p.host.scenario.ScrapeInterval
	missed, lost := 0, 0.0
	for instance, lines := range p.lines {
		due := slots.Count{Missed: int(p.end.Sub(p.start) / interval)}
		if times := up[instance]; len(times) > 0 {
			due = slots.Check(times[0], interval, times, p.start, p.end)
			due.Missed += max(0, int(times[0].Sub(p.start)/interval))
		}
		missed += due.Missed
		lost += float64(len(up[instance])+due.Missed)*lines - stored[instance]
	}
	p.raise("scrapes-missed", missed)
	p.set("samples-lost", max(0, lost))
	if times := beats[heartbeat]; len(times) > 0 {
		rules := slots.Check(times[0], p.host.scenario.RuleInterval, times, p.start, p.end)
		p.raise("rules-missed", rules.Missed)
	}
	return nil
}

// raise sets a figure that is at least as much by another measure.
func (p *phase) raise(name string, n int) {
	v, _ := p.get(name)
	p.set(name, max(v, float64(n)))
}

// answerQueries asks what expectations want to know.
func (p *phase) answerQueries(ctx context.Context) {
	for i, e := range p.host.scenario.Expect {
		if e.Query == "" || e.Phase != p.Name || (e.Binary != "" && e.Binary != p.binary.Name) {
			continue
		}
		values, err := p.values(ctx, e.Query, time.Now())
		if err != nil || len(values) != 1 {
			p.host.say(p.binary, "%s: %q has %d values, not one (%v)", e.Name, e.Query, len(values), err)
			continue
		}
		for v := range maps.Values(values) {
			p.result.queries[i] = v
		}
	}
}
