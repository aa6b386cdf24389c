// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proc"
	"github.com/promguard/promguard/internal/rules/source"
)

// The tests here run the whole chain: make test-sharded builds it.

// sharedExpressions are all of kube-prometheus, if they are beside the repository; those
// of its dashboards are in it.
const (
	sharedExpressions = "../../../shared/kube-prometheus/expressions.json"
	ownExpressions    = "../oomstorm/internal/scenario/expressions.yaml"
)

func testOptions(t *testing.T) options {
	t.Helper()
	bin := os.Getenv("PROMGUARD_SHARDED")
	if bin == "" {
		t.Skip("PROMGUARD_SHARDED is not set: make test-sharded builds Thanos and sets it")
	}
	return options{
		bin: bin, data: t.TempDir(), manifests: "../../deploy/kubernetes",
		shards: 3, replicas: 2, queries: 2, series: 50_000,
		// Three scrapes between two beats: one that is late loses none.
		interval: 5 * time.Second, beat: 15 * time.Second, block: 2 * time.Minute,
	}
}

// harness is a chain, and a server that scrapes all targets alone.
type harness struct {
	*chain

	whole *part
}

func newHarness(t *testing.T, o options) *harness {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	h := &harness{}
	var err error
	h.chain, err = newChain(o, func(_ *part, err error) { stop(err) })
	require.NoError(t, err)
	t.Cleanup(h.close)
	h.whole, err = h.server("whole", 0, 1)
	require.NoError(t, err)
	if err := h.start(ctx); err != nil {
		require.NoError(t, cmp.Or(context.Cause(ctx), err))
	}
	h.targets.expose()
	return h
}

// within waits until a condition holds, for a time that is never reached but for a bug.
func within(t *testing.T, limit time.Duration, what string, holds func() bool) (took time.Duration) {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("%s: not within %s", what, limit))
	defer cancel()
	require.NoError(t, until(ctx, holds))
	return time.Since(begun)
}

// settled is a beat that every server has scraped.
func (h *harness) settled() time.Time { return time.Now().Add(-h.beat).Truncate(h.beat) }

// clean says whether an answer of now is whole.
func (h *harness) clean(t *testing.T) bool {
	t.Helper()
	a, err := ask(t.Context(), h.reads(), instant("count(up == 1)", time.Time{}))
	return err == nil && len(a.missing()) == 0 && a.number() == float64(h.targets.count)
}

// questions are what the stream asks for: answers that must be equal although servers
// come and go.
func (h *harness) questions() []question {
	at := h.settled()
	return []question{
		instant("count(kube_pod_info)", at),
		instant("count by (job) (up == 1)", at),
		instant("count by (instance) (node_cpu_seconds_total)", at),
		ranged("count by (namespace) (kube_pod_status_phase)", at.Add(-time.Minute), at, h.beat),
		ranged("sum by (node) (kube_node_status_capacity)", at.Add(-time.Minute), at, h.beat),
	}
}

// String is the query of a question.
func (q question) String() string { return q.form.Get("query") }

// tally is what came of the reads of a stream.
type tally struct {
	asked, failed, warned, parts, wrong atomic.Int64

	mu    sync.Mutex
	first string // of what failed or was wrong
}

func (c *tally) note(n *atomic.Int64, format string, args ...any) {
	n.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first = cmp.Or(c.first, fmt.Sprintf(format, args...))
}

func (c *tally) String() string {
	return fmt.Sprintf("%d reads: %d failed, %d with warnings, %d of them parts, %d wrong without one", c.asked.Load(), c.failed.Load(), c.warned.Load(), c.parts.Load(), c.wrong.Load())
}

// stream reads through the chain while do runs, and compares with the whole server.
func (h *harness) stream(t *testing.T, do func(c *tally)) *tally {
	t.Helper()
	c := &tally{}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				for _, q := range h.questions() {
					h.read(ctx, c, q)
				}
			}
		})
	}
	defer wg.Wait()
	defer stop()
	do(c)
	t.Log(c)
	return c
}

func (h *harness) read(ctx context.Context, c *tally, q question) {
	got, err := ask(ctx, h.reads(), q)
	if ctx.Err() != nil {
		return
	}
	want, wholeErr := ask(ctx, h.whole.url, q)
	if ctx.Err() != nil {
		return
	}
	c.asked.Add(1)
	switch {
	case err != nil:
		c.note(&c.failed, "%s: %s", q, err)
		return
	case wholeErr != nil || want.Status != "success":
		c.note(&c.failed, "%s, of the server that knows all: %v%s", q, wholeErr, want.Error)
		return
	}
	why := differs(&got, &want)
	switch {
	case len(got.missing()) > 0:
		c.warned.Add(1)
		if why != "" {
			c.parts.Add(1)
		}
	case why != "":
		c.note(&c.wrong, "%s: %s", q, why)
	}
}

// more waits until so many reads more have been tried.
func (c *tally) more(t *testing.T, n int64) {
	t.Helper()
	before := c.asked.Load()
	within(t, 5*time.Minute, "reads", func() bool { return c.asked.Load() >= before+n })
}

// again starts what was killed, and returns how long it takes until all is answered as
// before, from when the last of it is ready.
func (h *harness) again(t *testing.T, parts ...*part) time.Duration {
	t.Helper()
	for _, p := range parts {
		require.NoError(t, p.start(h.ended))
	}
	for _, p := range parts {
		require.NoError(t, p.ready(t.Context()))
	}
	return within(t, 2*time.Minute, "whole answers", func() bool { return h.clean(t) })
}

// kill ends processes as the kernel does when there is no memory, and waits for that.
func kill(parts ...*part) {
	for _, p := range parts {
		p.stopped.Store(true)
		p.Kill()
	}
}

func (p pod) parts() []*part { return []*part{p.server, p.sidecar} }

func (b block) replica() string { return b.Thanos.Labels[replicaLabel] }

// expose lets targets begin to expose something at the next beat.
func (t *targets) expose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.from = time.Now().Truncate(t.beat).Add(t.beat)
}

func TestTheChainAnswersAsOneServerDoesWhateverIsKilled(t *testing.T) {
	h := newHarness(t, testOptions(t))
	for shard, pods := range h.pods {
		a, err := ask(t.Context(), pods[0].server.url, instant("count(up)", time.Time{}))
		require.NoError(t, err)
		require.Positive(t, a.number(), "shard %d has no targets", shard)
	}
	within(t, 2*time.Minute, "beats for a rate", func() bool { return h.settled().After(h.targets.from.Add(4 * h.beat)) })

	t.Run("every expression of kube-prometheus", h.testExpressions)
	t.Run("a replica is killed", func(t *testing.T) {
		gone := h.pods[1][0]
		c := h.stream(t, func(c *tally) {
			c.more(t, 50)
			kill(gone.parts()...)
			c.more(t, 300)
			t.Logf("back %s after it was ready", h.again(t, gone.parts()...))
			c.more(t, 50)
		})
		require.Zero(t, c.failed.Load(), c.first)
		require.Zero(t, c.wrong.Load(), c.first)
		require.Zero(t, c.parts.Load(), "the other replica has all")
	})
	t.Run("a whole shard is killed", func(t *testing.T) {
		gone := append(h.pods[2][0].parts(), h.pods[2][1].parts()...)
		c := h.stream(t, func(c *tally) {
			kill(gone...)
			c.more(t, 300)
			a, err := ask(t.Context(), h.reads(), instant("count(up == 1)", time.Time{}))
			require.NoError(t, err)
			require.NotEmpty(t, a.missing(), "nobody learns that a shard is missing")
			back := h.again(t, gone...)
			t.Logf("back %s after it was ready", back)
			c.more(t, 50)
		})
		require.Zero(t, c.failed.Load(), c.first)
		require.Zero(t, c.wrong.Load(), c.first)
		require.Positive(t, c.parts.Load(), "nothing was missing")
	})
	t.Run("the bucket has what was uploaded", h.testBucket)
	t.Run("the store gateway is killed", func(t *testing.T) {
		c := h.stream(t, func(c *tally) {
			kill(h.store)
			c.more(t, 200)
			t.Logf("back %s after it was ready", h.again(t, h.store))
		})
		require.Zero(t, c.failed.Load(), c.first)
		require.Zero(t, c.wrong.Load(), c.first)
		require.Zero(t, c.parts.Load(), "the servers have all of the last hours")
		require.Positive(t, c.warned.Load())
	})
	t.Run("a Query is killed", func(t *testing.T) {
		c := h.stream(t, func(c *tally) {
			kill(h.query[0])
			c.more(t, 200)
			t.Logf("back %s after it was ready", h.again(t, h.query[0]))
		})
		require.Zero(t, c.failed.Load(), c.first)
		require.Zero(t, c.wrong.Load(), c.first)
		require.Zero(t, c.parts.Load())
	})
	t.Run("servers are upgraded from stock and back", h.testUpgrade)
	t.Run("each block is uploaded once", h.testUploads)
}

// reasons are differences that are there for a reason, by expression.
var reasons = map[string]string{}

func (h *harness) testExpressions(t *testing.T) {
	file := ownExpressions
	if _, err := os.Stat(sharedExpressions); err == nil {
		file = sharedExpressions
	}
	expressions, err := readExpressions(file)
	require.NoError(t, err)
	for i, e := range expressions {
		expr, err := source.Parse(strings.ReplaceAll(e, "VARX", source.Marker(0))) // A dashboard's variable.
		require.NoError(t, err, e)
		var ok bool
		expressions[i], ok = source.Evaluable(expr)
		require.True(t, ok, e)
	}
	slices.Sort(expressions)
	expressions = slices.Compact(expressions)
	at := h.settled()
	rows, refused := 0, 0
	for _, e := range expressions {
		for _, q := range []question{instant(e, at), ranged(e, at.Add(-3*h.beat), at, h.beat)} {
			got, err := ask(t.Context(), h.reads(), q)
			require.NoError(t, err, e)
			want, err := ask(t.Context(), h.whole.url, q)
			require.NoError(t, err, e)
			why := differs(&got, &want)
			switch reason := reasons[e]; {
			case reason != "":
				t.Logf("%s: %s: %s", e, reason, why)
				continue
			case why != "" || len(got.missing()) > 0:
				t.Errorf("%s %s: %s %q", q.path, e, why, got.missing())
			case want.Status != "success":
				refused++
				t.Logf("refused by both: %s: %s", e, want.Error)
			default:
				points, err := want.points()
				require.NoError(t, err, e)
				rows += min(1, len(points))
			}
		}
	}
	t.Logf("%d expressions of %s, each at an instant and over a range: %d of %d answers have rows, %d are errors of both", len(expressions), filepath.Base(file), rows, 2*len(expressions), refused)
	require.Greater(t, rows, len(expressions)/3, "answers that are empty show nothing")
}

// testBucket asks the store gateway alone for what is in blocks.
func (h *harness) testBucket(t *testing.T) {
	var end int64 // of what all servers have uploaded
	within(t, 10*time.Minute, "two blocks of each server", func() bool {
		all, err := readBlocks(h.bucket)
		require.NoError(t, err)
		n, last := map[string]int{}, map[string]int64{}
		for _, b := range all {
			n[b.replica()]++
			last[b.replica()] = max(last[b.replica()], b.MaxTime)
		}
		end = slices.Min(append(slices.Collect(maps.Values(last)), math.MaxInt64))
		return len(n) == h.shards*h.replicas && slices.Min(slices.Collect(maps.Values(n))) > 1
	})
	at := time.UnixMilli(end - 1).Truncate(h.beat)
	for _, expr := range []string{"count by (job) (up == 1)", "count(kube_pod_info)", "sum by (instance) (rate(node_cpu_seconds_total[1m]))"} {
		q := instant(expr, at)
		want, err := ask(t.Context(), h.whole.url, q)
		require.NoError(t, err)
		q.form.Set("storeMatch[]", fmt.Sprintf("{__address__=%q}", h.grpc(h.store)))
		var why string
		within(t, 5*time.Minute, "blocks in the store gateway", func() bool {
			got, err := ask(t.Context(), h.query[0].url, q)
			require.NoError(t, err)
			why = differs(&got, &want)
			return why == ""
		})
		require.Empty(t, why)
	}
}

// grpc is where a component serves its API of stores.
func (*harness) grpc(p *part) string {
	for _, a := range p.args {
		if address, ok := strings.CutPrefix(a, "--grpc-address="); ok {
			return address
		}
	}
	return ""
}

func (h *harness) testUpgrade(t *testing.T) {
	stock, patched := filepath.Join(h.bin, "stock", "prometheus"), h.pods[0][0].server.path
	c := h.stream(t, func(c *tally) {
		for _, path := range []string{stock, patched} {
			for _, pods := range h.pods {
				for _, pod := range pods {
					s := pod.server
					args := s.args
					s.stop()
					if s.path = path; path == stock {
						s.args = with(args, []string{"--guard."})
					}
					h.again(t, s)
					if path == stock {
						s.args = args // For the way back.
					}
					c.more(t, 20)
				}
			}
		}
	})
	require.Zero(t, c.failed.Load(), c.first)
	require.Zero(t, c.wrong.Load(), c.first)
	require.Zero(t, c.parts.Load(), "the other replica has all")
}

// testUploads waits for more blocks and looks whether any was written again, or has
// samples that another of the same server has.
func (h *harness) testUploads(t *testing.T) {
	written := func() map[string]time.Time {
		at := map[string]time.Time{}
		require.NoError(t, filepath.WalkDir(h.bucket, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Base(filepath.Dir(path)) == "markers" {
				return err
			}
			info, err := d.Info()
			if err == nil {
				at[path] = info.ModTime()
			}
			return err
		}))
		return at
	}
	before := written()
	uploaded := func() map[string]int {
		n := map[string]int{}
		all, err := readBlocks(h.bucket)
		require.NoError(t, err)
		for _, b := range all {
			n[b.replica()]++
		}
		return n
	}
	least := uploaded()
	within(t, 10*time.Minute, "another block of each server", func() bool {
		n := uploaded()
		for replica := range least {
			if n[replica] <= least[replica] {
				return false
			}
		}
		return len(n) == h.shards*h.replicas
	})
	after := written()
	for path, at := range before {
		require.Equal(t, at, after[path], "%s was written again", path)
	}
	all, err := readBlocks(h.bucket)
	require.NoError(t, err)
	for i, a := range all {
		for _, b := range all[:i] {
			overlap := a.MinTime < b.MaxTime && b.MinTime < a.MaxTime
			require.False(t, overlap && a.replica() == b.replica(), "%s and %s of %s have the same time", a.ULID, b.ULID, a.replica())
		}
	}
	t.Logf("%d blocks", len(all))
}

// Thanos' sidecar reads in streamed chunks, and uploads files: a storm of the one holds up
// neither the other nor scrapes, and does not kill the server.
func TestAStormThroughASidecarEndsAndUploadsGoOn(t *testing.T) {
	const limit = 256 << 20
	o := testOptions(t)
	o.shards, o.replicas, o.queries, o.series = 1, 1, 1, 100_000
	o.serverEnv = []string{fmt.Sprintf("GOMEMLIMIT=%d", limit)}
	ctx, stop := context.WithCancelCause(t.Context())
	c, err := newChain(o, func(_ *part, err error) { stop(err) })
	require.NoError(t, err)
	t.Cleanup(c.close)
	require.NoError(t, c.start(ctx))
	c.targets.expose()
	server := c.pods[0][0].server

	storm, end := context.WithCancel(ctx)
	tally := &tally{}
	var answered atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for storm.Err() == nil {
				r, err := ask(storm, c.query[0].url, instant(`count(last_over_time({__name__=~".+"}[5m]))`, time.Time{}))
				switch {
				case storm.Err() != nil:
				case err != nil || r.Status != "success" || len(r.missing()) > 0:
					tally.note(&tally.failed, "%v %s %q", err, r.Error, r.missing())
				default:
					answered.Add(1)
				}
			}
		})
	}
	var most int64
	within(t, 10*time.Minute, "an upload in the storm", func() bool {
		m, err := proc.ReadMemory(server.PID())
		require.NoError(t, cmp.Or(context.Cause(ctx), err))
		most = max(most, m.Anon)
		blocks, err := readBlocks(c.bucket)
		return err == nil && len(blocks) > 1 && answered.Load() > 20
	})
	end()
	wg.Wait()
	t.Logf("%d answered, %d refused (%s); %d MiB of anonymous memory at most, %d MiB limit", answered.Load(), tally.failed.Load(), tally.first, most>>20, limit>>20)
	// GOMEMLIMIT is nine tenths of a container.
	require.Less(t, most, int64(limit/9*10))
	a, err := ask(ctx, server.url, instant("min(count_over_time(up[1m]))", time.Time{}))
	require.NoError(t, err)
	require.GreaterOrEqual(t, a.number(), float64(time.Minute/o.interval-1), "scrapes were missed")
	require.NoError(t, c.up(ctx))
}

func TestAnInterruptStopsAllAndLeavesNoProcess(t *testing.T) {
	o := testOptions(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out strings.Builder
	require.NoError(t, execute(ctx, []string{
		"run", "--bin=" + o.bin, "--manifests=" + o.manifests, "--data=" + o.data, "--port=0", "--series=3000",
	}, writerFunc(func(text []byte) (int, error) {
		if strings.Contains(string(text), "Ctrl-C stops all.") {
			interrupt()
		}
		return out.Write(text)
	})))
	require.Contains(t, out.String(), "stopping all")
	require.Contains(t, out.String(), "thanos-query-frontend")
	left, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range left {
		text, _ := os.ReadFile(file)
		require.NotContains(t, string(text), o.data)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(text []byte) (int, error) { return f(text) }

// Query's servers are named, as one that is looked up and gone is missing without a word;
// those of rules are looked up, and rules go on.
func TestTheQueryOfRulesAnswersWithoutAServerThatIsGone(t *testing.T) {
	o := testOptions(t)
	o.shards, o.replicas, o.queries = 2, 1, 1
	ctx, stop := context.WithCancelCause(t.Context())
	c, err := newChain(o, func(_ *part, err error) { stop(err) })
	require.NoError(t, err)
	t.Cleanup(c.close)
	text, err := os.ReadFile(c.endpoints)
	require.NoError(t, err)
	rules, _, err := c.thanos("thanos-rule-query", "rule-query.yaml", nil, "--endpoint.sd-config="+strings.ReplaceAll(string(text), "strict: true", "strict: false"))
	require.NoError(t, err)
	require.NoError(t, c.start(ctx))
	kill(c.pods[1][0].parts()...)
	within(t, time.Minute, "an answer without half of the cluster and without a warning", func() bool {
		a, err := ask(ctx, rules.url, question{"/api/v1/query", url.Values{"query": {"count(up == 1)"}, "partial_response": {"false"}}})
		return err == nil && a.Status == "success" && len(a.missing()) == 0 && a.number() < float64(c.targets.count)
	})
}
