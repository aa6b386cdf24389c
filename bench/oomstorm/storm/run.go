// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/bench/internal/benchout"
	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/oomstorm/internal/clients"
	"github.com/promguard/promguard/bench/oomstorm/internal/family"
	"github.com/promguard/promguard/bench/oomstorm/internal/probe"
	"github.com/promguard/promguard/bench/oomstorm/internal/scenario"
	"github.com/promguard/promguard/bench/oomstorm/internal/server"
	"github.com/promguard/promguard/bench/oomstorm/internal/targets"
	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/promapi"
)

const (
	// backAt is the share of its memory at rest that a server is back with.
	backAt = 1.1
	// askTimeout is how long a server may take to tell what it has stored, once
	// the clients have left.
	askTimeout   = time.Minute
	followPeriod = time.Second
	sayPeriod    = 10 // of followPeriod
	// cutTime is how long it takes to notice that a server has ended.
	cutTime     = 500 * time.Millisecond
	termTimeout = 3 * time.Minute
	// early is the share of an interval by which a scrape may be so.
	early = 0.1
)

// stored are figures that the server answers at a phase's end, if it lives. $window
// is the phase, $wide a little more, so that it holds $scrapes of each target and
// $evaluations at least, and one of each of a phase that was over at once; $lasting are series that every scrape has, $rest is when
// nothing had happened, $over what the most of the live heap was over that at rest.
var stored = map[string]string{
	"scrapes-missed":   `$targets * $scrapes - sum(clamp_max(sum_over_time(up{job=~"steady|churning"}[$wide]), $scrapes))`,
	"exploding-missed": `$scrapes - clamp_max(sum(sum_over_time(up{job="exploding"}[$wide])), $scrapes)`,
	"samples-lost": `sum(clamp_min(count_over_time(up{job=~"steady|exploding"}[$window]) * on (instance) count by (instance) ($lasting @ $rest)
		- on (instance) (sum by (instance) (count_over_time($lasting[$window])) or on (instance) 0 * up), 0))`,
	"rules-missed":             `$evaluations - clamp_max(count_over_time(storm:heartbeat[$wide]) or vector(0), $evaluations)`,
	"rules-failed":             `sum(increase(prometheus_rule_evaluation_failures_total[$wide])) or sum(0 * max_over_time(prometheus_rule_evaluation_failures_total[$wide]))`,
	"compactions":              `sum(max_over_time(prometheus_tsdb_compactions_total[$wide]))`,
	"live-over-rest-of-budget": `$over / max(max_over_time(prometheus_guard_read_memory_budget_bytes[$wide]))`,
}

// missed are the innocent targets of which most scrapes were.
const missed = `topk(5, $scrapes - sum_over_time(up{job=~"steady|churning"}[$wide]) > 0)`

const lasting = `{job=~"steady|exploding",__name__!~"up|scrape_.+|storm:.+|` + targets.Explosion + `"}`

// RunOptions say what to do to which binaries.
type RunOptions struct {
	Options

	// Scenario is a file, or the name of one that is shipped.
	Scenario string
	// Expressions is a file with what dashboards ask; empty: the shipped list.
	Expressions string
	// Output is a format of cli.Output.
	Output string
	// Proxy is the command and the arguments of a promguard; empty: none.
	Proxy []string
}

// result is what came of one binary. One that ended early is not alive in the phases
// that it did not reach, and has no other figures of them.
type result struct {
	binary      binary.Binary
	rest, limit int64
	limitBy     string
	phases      []phaseResult
	ended       string // how, if it did unasked, and where
	endedIn     string
	lastWords   []string
}

// phaseResult has the figures of a phase, by name, and the answers to the queries
// of expectations, by their text.
type phaseResult struct {
	name     string
	figures  map[string]float64
	queries  map[string]float64
	families map[string]clients.Outcomes // of hostile requests
}

// Run does what a scenario says, and checks what it expects. Figures go to stdout, a
// table and progress to stderr. Whatever happens, no process, directory or cgroup is
// left.
func Run(ctx context.Context, o RunOptions, stdout, stderr io.Writer) error {
	s, err := scenario.Load(o.Scenario)
	if err != nil {
		return cli.Misuse(fmt.Errorf("--scenario: %w", err))
	}
	expressions, err := scenario.Expressions(o.Expressions)
	if err != nil {
		return cli.Misuse(fmt.Errorf("--expressions: %w", err))
	}
	results, err := runBinaries(ctx, o, s, expressions, stderr)
	if err == nil {
		err = writeFigures(benchout.New(stdout, o.Output), s, results)
	}
	if err != nil {
		return cli.Misuse(err)
	}
	return judge(stderr, s, results)
}

func runBinaries(ctx context.Context, o RunOptions, s *scenario.Scenario, expressions []string, stderr io.Writer) (results []result, err error) {
	h, err := newHost(ctx, o.Options, s, stderr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	if h.set, err = targets.Serve(s.Steady, s.Churning); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.set.Close()) }()
	for _, b := range o.Binaries {
		r, err := runBinary(ctx, h, b, o.Proxy, expressions)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

func runBinary(ctx context.Context, h *host, b binary.Binary, proxy, expressions []string) (r result, err error) {
	s, err := h.open(ctx, b)
	defer func() { err = errors.Join(err, s.close()) }()
	ended := (*server.EarlyEndError)(nil)
	if err != nil && (!errors.As(err, &ended) || s.rest == 0) {
		return r, err // It does not even start without the limit.
	}
	r = result{binary: b, rest: s.rest, limit: h.limit, limitBy: s.limitBy}
	r.endedIn = "its start under the limit"
	front := s.URL
	if len(proxy) > 0 && ended == nil {
		var stop func()
		if front, stop, err = startProxy(ctx, proxy, s.URL); err != nil {
			return r, err
		}
		defer stop()
	}
	for _, ph := range h.scenario.Phases {
		if ended != nil {
			r.phases = append(r.phases, phaseResult{name: ph.Name, figures: map[string]float64{"alive": 0}})
			continue
		}
		r.endedIn = ph.Name
		p := &phase{session: s, Phase: ph, front: front, expressions: expressions}
		p.result = phaseResult{name: ph.Name, figures: map[string]float64{}, queries: map[string]float64{}}
		if err := p.run(ctx); err != nil {
			return r, err
		}
		r.phases = append(r.phases, p.result)
		errors.As(s.wait(ctx), &ended)
	}
	if ended != nil {
		r.ended, r.lastWords = ended.How, s.Tail()
		s.say("ended: %s", ended.How)
	}
	return r, nil
}

// phase is one phase on one server.
type phase struct {
	*session
	scenario.Phase
	front       string // URL that clients ask
	expressions []string
	result      phaseResult
	mu          sync.Mutex // of the figures
	start, end  time.Time
}

func (p *phase) set(name string, v float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.figures[name] = v
}

// run runs the phase. That the server ends is no error.
func (p *phase) run(ctx context.Context) error {
	p.say("%s, for %s", p.Name, p.For)
	p.ResetPeak()
	asking, stop := context.WithCancel(ctx)
	defer stop()
	var (
		answers    clients.Result
		clientsErr error
		all        sync.WaitGroup
	)
	all.Go(func() {
		answers, clientsErr = clients.RunInChild(asking, clients.Config{
			URL: p.front, Seed: p.host.scenario.Seed, Phase: p.Phase, Families: p.host.scenario.AllFamilies(), Expressions: p.expressions,
			Data: family.Data{Points: family.PointsFor(p.host.scenario.Series)},
		})
		stop() // They are through.
	})
	err := p.restart(ctx)
	if err == nil && p.Alive() {
		p.watch(asking)
	}
	stop()
	all.Wait()
	if err := errors.Join(err, clientsErr, context.Cause(ctx)); err != nil {
		return err
	}
	p.addMemory()
	p.addClients(answers)
	if !p.Alive() {
		p.set("alive", 0)
		return nil
	}
	p.set("alive", 1)
	p.askStored(ctx)
	return nil
}

// restart ends the server and starts it again, if the phase says so. A server that
// ends as it starts is left dead.
func (p *phase) restart(ctx context.Context) error {
	if p.Restart == "" {
		return nil
	}
	begin := time.Now()
	before, _ := p.Live()
	if p.Restart == "kill" {
		p.Kill()
	} else if !p.Stop(ctx, termTimeout) {
		p.say("did not end within %s of SIGTERM", termTimeout)
	}
	p.set("ended-sec", time.Since(begin).Seconds())
	begin = time.Now()
	err := p.session.start(ctx)
	if ended := (*server.EarlyEndError)(nil); errors.As(err, &ended) {
		return nil
	}
	p.set("ready-sec", time.Since(begin).Seconds())
	_, peak := p.Live()
	p.set("restart-of-live", float64(peak)/float64(max(1, before)))
	return err
}

// watch lets the phase happen until its time is over, the server has ended, or the
// clients are through.
func (p *phase) watch(ctx context.Context) {
	set := p.host.set
	exploded := set.Exploded()
	set.Explode(p.Explode)
	set.Churn(p.Churn)
	p.start = time.Now()
	if p.Compact {
		set.Ahead(p.start.Add(ahead))
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
	if !p.Alive() && p.Ended().Before(p.end) {
		p.end = p.Ended()
	}
	p.set("lived-sec", p.end.Sub(p.start).Seconds())
	if p.Explode > 0 {
		p.set("exploded", float64(set.Exploded()-exploded))
	}
	set.Explode(0)
	set.Churn(0)
	set.Ahead(time.Time{})
	watching.Wait()
}

// follow looks at what the server says of itself while the phase lasts, and ends it
// when what it is to last until has come.
func (p *phase) follow(ctx context.Context, end func()) {
	tick := time.NewTicker(followPeriod)
	defer tick.Stop()
	named := false
	for round := 1; ; round++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		state, culprit := p.status(ctx)
		if p.Explode > 0 && !named && culprit == targets.Exploding {
			named = true
			p.set("culprit-sec", time.Since(p.start).Seconds())
		}
		switch {
		case p.Until == scenario.Back && p.isBack(ctx, state):
			p.set("back-sec", time.Since(p.start).Seconds())
			end()
		case p.Until == scenario.Compacted && p.isCompacted(ctx):
			end()
		}
		if round%sayPeriod == 0 {
			_, peak := p.Memory()
			p.say("%s: %s, peak %s, %s left %s", p.Name, mib(p.rss()), mib(peak.RSS), time.Until(p.start.Add(p.For)).Round(time.Second), state)
		}
	}
}

// status is the memory's state and the job that causes most of the new series, if
// the server tells.
func (p *phase) status(ctx context.Context) (state, culprit string) {
	var answer struct {
		Data struct {
			Memory    struct{ State string }
			NewSeries struct{ Culprits []struct{ Job string } }
		}
	}
	if b, err := p.Get(ctx, "/api/v1/status/guard"); err != nil || json.Unmarshal(b, &answer) != nil {
		return "", ""
	}
	if c := answer.Data.NewSeries.Culprits; len(c) > 0 {
		culprit = c[0].Job
	}
	return answer.Data.Memory.State, culprit
}

// isBack says whether everything is as at rest: the memory's state, or where there
// is none the memory, and what is scraped.
func (p *phase) isBack(ctx context.Context, state string) bool {
	if state != "ok" && (state != "" || float64(p.rss()) > backAt*float64(p.rest)) {
		return false
	}
	up, err := p.query(ctx, "sum(up)", time.Now())
	return err == nil && int(up) == p.host.set.Len(targets.Steady, targets.Churning, targets.Exploding)+1
}

func (p *phase) isCompacted(ctx context.Context) bool {
	const total = "sum(prometheus_tsdb_compactions_total"
	n, err := p.query(ctx, total+") - "+total+" @ "+promapi.Seconds(p.start)+")", time.Now())
	return err == nil && n > 0
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
	_, peak := p.Memory()
	p.set("peak-bytes", float64(peak.RSS))
	p.set("over-rest-bytes", float64(peak.RSS-p.rest))
	if p.host.limit > 0 {
		p.set("peak-of-limit", float64(peak.Anon)/float64(p.host.limit))
	}
}

func (p *phase) addClients(r clients.Result) {
	if p.Storm != nil {
		all := clients.Outcomes{}
		for _, o := range r.Storm {
			for outcome, n := range o {
				all[outcome] += n
			}
		}
		p.result.families = r.Storm
		p.addOutcomes("storm", all)
	}
	if p.SlowReaders != nil {
		p.addOutcomes("slow", r.Slow)
	}
	if d := r.Dashboards; p.Dashboards != nil {
		p.addOutcomes("dashboards", d.Outcomes)
		asked := 0
		for n := range maps.Values(d.Outcomes) {
			asked += n
		}
		if asked > 0 {
			p.set("dashboards-refused-share", float64(asked-d.Outcomes["200"])/float64(asked))
		}
		p.set("dashboards-unfriendly", float64(d.Unfriendly))
		p.set("dashboards-p99-sec", probe.Quantile(slices.Sorted(slices.Values(d.Took)), 0.99).Seconds())
		if d.Through > 0 {
			p.set("dashboards-sec", d.Through.Seconds())
		}
	}
	if p.IdleConnections > 0 {
		p.set("idle-away-sec", r.IdleAway.Seconds())
	}
}

// addOutcomes tells status codes other than 200 from ends without any.
func (p *phase) addOutcomes(who string, o clients.Outcomes) {
	refused := 0
	for outcome, n := range o {
		if _, err := strconv.Atoi(outcome); err == nil && outcome != "200" {
			refused += n
		}
	}
	p.set(who+"-answered", float64(o["200"]))
	p.set(who+"-refused", float64(refused))
	p.set(who+"-cut", float64(o[clients.Cut]))
}

// askStored asks for the figures that are stored, and for what expectations want
// to know.
func (p *phase) askStored(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	sc, lived := p.host.scenario, p.end.Sub(p.start)
	interval := max(sc.ScrapeInterval, sc.RuleInterval)
	wide := max(lived, interval) + time.Duration(early*float64(interval))
	scrapes := int(lived / sc.ScrapeInterval)
	if p.Restart != "" { // The first may be a whole interval after the start.
		scrapes--
	}
	_, over := p.Live()
	over -= p.live
	vars := strings.NewReplacer(
		"$window", ms(lived), "$wide", ms(wide), "$targets", strconv.Itoa(p.host.set.Len(targets.Steady, targets.Churning)), "$lasting", lasting,
		"$scrapes", strconv.Itoa(scrapes), "$evaluations", strconv.Itoa(int(lived/sc.RuleInterval)),
		"$rest", promapi.Seconds(p.restAt), "$over", strconv.FormatInt(over, 10),
	)
	for name, query := range stored {
		if v, err := p.insist(ctx, vars.Replace(query)); err == nil {
			p.set(name, v)
		} else if name != "live-over-rest-of-budget" { // Which not every server has.
			p.say("%s: %s cannot be asked: %v", p.Name, name, err)
		}
	}
	worst, _ := p.vector(ctx, vars.Replace(missed), p.end)
	for _, s := range worst {
		p.say("%s: of %s %s scrapes were missed", p.Name, s.Metric[model.InstanceLabel], s.Value)
	}
	for _, e := range sc.Expect {
		if e.Query != "" && e.Phase == p.Name && (e.Binary == "" || e.Binary == p.binary.Name) {
			if v, err := p.insist(ctx, vars.Replace(e.Query)); err == nil {
				p.result.queries[e.Query] = v
			} else {
				p.say("%s: %v", e.Name, err)
			}
		}
	}
}

func ms(d time.Duration) string {
	return model.Duration(d.Round(time.Millisecond)).String()
}

// insist asks again if it is refused: what runs may have to end first.
func (p *phase) insist(ctx context.Context, query string) (v float64, err error) {
	for range 5 {
		if v, err = p.query(ctx, query, p.end); err == nil || p.wait(ctx) != nil {
			return v, err
		}
	}
	return v, err
}
