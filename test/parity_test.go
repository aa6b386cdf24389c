// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheBuildAnswersAsUpstreamDoes puts the corpus to two
// stock servers and to patched ones, with every --guard.* flag off and with the defaults,
// on equal data. What two stock servers answer alike, the patched ones must answer
// alike, byte for byte, but for what is listed as meant to differ.
// Then each goes on with the other's data directory.
func TestTheBuildAnswersAsUpstreamDoes(t *testing.T) {
	t.Parallel()
	requirePairs(t)
	d := makeDataset(t)
	c := newComparison()
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			setup := newParitySetup(t, m.agent)
			c.group = startGroup(t, m, setup, d, stockBuild(), stockBuild(), offBuild(), onBuild())
			c.compareAll(t, thin(m, corpus(t, d)))
			if m.agent {
				c.stopAll(t)
				return
			}
			c.compareAll(t, changes(t, d))
			c.compareBadReload(t, setup)
			c.compareAll(t, []request{{method: http.MethodGet, target: "/metrics"}})
			c.requireEveryRoute(t)
			before := c.fixedAnswers(t, d)
			c.stopAll(t)
			c.swapDirectories(t, setup)
			require.Equal(t, before, c.fixedAnswers(t, d), "after the servers took each other's directories")
			c.stopAll(t)
		})
	}
	c.requireVolatile(t)
}

// requirePairs skips the test where the binaries are not built, or not alike: the
// web UI is in none of stock's.
func requirePairs(t *testing.T) {
	t.Helper()
	tags := func(name string) string {
		return buildTags.FindString(command(t, name, t.TempDir(), "", "--version").out)
	}
	stock, patched := tags("stock/prometheus"), tags("prometheus")
	require.NotEmpty(t, stock)
	if stock != patched {
		t.Skipf("stock has %q and the patched build %q: make prometheus stock builds them alike", stock, patched)
	}
}

var buildTags = regexp.MustCompile(`tags: .*`)

// thin leaves the mode's part of the corpus. Requests about a path alone, which
// tell whether there is a route at all, stay.
func thin(m mode, all []request) []request {
	var out []request
	for i, r := range all {
		if i%m.every == m.first || (r.method == http.MethodGet && r.path() == r.target && len(r.headers) == 0) {
			out = append(out, r)
		}
	}
	return out
}

// startGroup starts the builds, each on its own copy of the data, and waits
// until the set of their series changes no more.
func startGroup(t *testing.T, m mode, setup paritySetup, d dataset, builds ...build) []*parityServer {
	t.Helper()
	var group []*parityServer
	for _, b := range builds {
		dir := t.TempDir()
		if !m.agent {
			d.copyTo(t, filepath.Join(dir, "data"))
		}
		group = append(group, startParity(t, b, m, setup, dir))
	}
	for _, s := range group {
		s.settled(t)
	}
	return group
}

// comparison compares the answers of servers: the first two are stock.
type comparison struct {
	group []*parityServer
	// differed says which volatile things were seen to differ between the two.
	differed map[string]bool
	// failures counts the differences by path.
	failures map[string]int
}

func newComparison() *comparison {
	return &comparison{differed: map[string]bool{}, failures: map[string]int{}}
}

// maxFailures is how many differences of one path are shown.
const maxFailures = 3

func (c *comparison) compareAll(t *testing.T, requests []request) {
	t.Helper()
	for _, r := range requests {
		c.compare(t, r)
	}
	t.Logf("%d requests compared", len(requests))
}

// compareBadReload compares what a reload of a broken configuration gives, and
// the notification about it.
func (c *comparison) compareBadReload(t *testing.T, setup paritySetup) {
	t.Helper()
	good, err := os.ReadFile(setup.config)
	require.NoError(t, err)
	notified := []request{
		{method: http.MethodPost, target: "/-/reload"},
		{method: http.MethodGet, target: api + "/notifications"},
		{method: http.MethodGet, target: api + "/notifications/live", endless: true},
		{method: http.MethodGet, target: api + "/status/config"},
	}
	for _, config := range []string{"nonsense: 1\n", "global: {scrape_interval: 0s, evaluation_interval: x}\n", string(good) + "- nonsense\n", string(good)} {
		require.NoError(t, os.WriteFile(setup.config, []byte(config), 0o644))
		c.compareAll(t, notified)
	}
}

// requireEveryRoute fails if a route that the server counts was never asked.
func (c *comparison) requireEveryRoute(t *testing.T) {
	t.Helper()
	asked := map[string]float64{}
	for line := range strings.SplitSeq(get(t, c.group[0].url+"/metrics").body, "\n") {
		if found := routeCount.FindStringSubmatch(line); found != nil {
			n, err := strconv.ParseFloat(found[2], 64)
			require.NoError(t, err)
			asked[found[1]] += n
		}
	}
	require.Greater(t, len(asked), 50)
	for route, n := range asked {
		if n == 0 {
			t.Errorf("the corpus has no request for %s", route)
		}
	}
}

var routeCount = regexp.MustCompile(`^prometheus_http_requests_total\{code="\d+",handler="([^"]+)"\} (.+)$`)

// requireVolatile fails if something is normalised without need.
func (c *comparison) requireVolatile(t *testing.T) {
	t.Helper()
	for _, v := range volatiles {
		if !v.seldom && !c.differed[v.name] {
			t.Errorf("two stock servers never differed in %s: it needs no normalising", v.name)
		}
	}
}

// stopAll ends the servers with SIGTERM and compares their exit codes and what
// they logged.
func (c *comparison) stopAll(t *testing.T) {
	t.Helper()
	var logs []map[string]bool
	for _, s := range c.group {
		s.stop(t)
		require.Equal(t, c.group[0].cmd.ProcessState.ExitCode(), s.cmd.ProcessState.ExitCode(), s.build.name)
		logs = append(logs, messages(s.out.String()))
	}
	for i, s := range c.group[2:] {
		for m := range logs[2+i] {
			if !logs[0][m] && !logs[1][m] && !s.build.mayLog[m] {
				t.Errorf("%s logs what stock does not: %s", s.build.name, m)
			}
		}
		for m := range logs[0] {
			if logs[1][m] && !logs[2+i][m] && !s.build.mayLog[m] {
				t.Errorf("%s does not log what stock logs: %s", s.build.name, m)
			}
		}
	}
}

var message = regexp.MustCompile(`level=(\w+) .*?msg=("(?:[^"\\]|\\.)*"|\S+)`)

// messages are the levels and the texts of log lines. What is at the level
// debug depends on the moment.
func messages(log string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(log) {
		if m := message.FindStringSubmatch(line); len(m) > 1 && m[1] != "DEBUG" {
			found[m[1]+" "+m[2]] = true
		}
	}
	return found
}

// fixedAnswers are the answers about the data directory's first content, of
// each server, which must be the same of all.
func (c *comparison) fixedAnswers(t *testing.T, d dataset) []reply {
	t.Helper()
	var out []reply
	for _, r := range fixed(d) {
		replies := c.sendAll(t, r)
		for i, s := range c.group {
			require.Empty(t, replies[0].difference(replies[i]), "%s: %s", s.build.name, r)
		}
		out = append(out, replies[0])
	}
	return out
}

// swapDirectories starts the stock servers on the directories that patched ones
// left, and the patched ones on those of stock.
func (c *comparison) swapDirectories(t *testing.T, setup paritySetup) {
	t.Helper()
	for i, j := 0, len(c.group)-1; i < j; i, j = i+1, j-1 {
		a, b := c.group[i], c.group[j]
		c.group[i] = startParity(t, a.build, a.mode, setup, b.dir)
		c.group[j] = startParity(t, b.build, b.mode, setup, a.dir)
	}
	if middle := len(c.group) / 2; len(c.group)%2 == 1 {
		m := c.group[middle]
		c.group[middle] = startParity(t, m.build, m.mode, setup, m.dir)
	}
}

func (c *comparison) compare(t *testing.T, r request) {
	t.Helper()
	raw := c.sendAll(t, r)
	want, name := normal(r, raw[0])
	if name != "" {
		c.differed[name] = c.differed[name] || raw[0].body != raw[1].body
	}
	again, _ := normal(r, raw[1])
	if diff := want.difference(again); diff != "" {
		c.fail(t, r, "%s\n\tstock itself answers differently each time: %s", r, diff)
		return
	}
	for i, s := range c.group[2:] {
		got, _ := normal(r, raw[2+i])
		want, got := acrossBuilds(r, want), acrossBuilds(r, got)
		if s.build.excepts(r, &want, &got) {
			continue
		}
		if diff := want.difference(got); diff != "" {
			c.fail(t, r, "%s\n\t%s: %s", r, s.build.name, diff)
		}
	}
}

func (c *comparison) fail(t *testing.T, r request, format string, args ...any) {
	t.Helper()
	c.failures[r.path()]++
	if c.failures[r.path()] > maxFailures {
		t.Fail()
		return
	}
	t.Errorf(format, args...)
}

// sendAll puts one request to all servers at the same time.
func (c *comparison) sendAll(t *testing.T, r request) []reply {
	t.Helper()
	replies := make([]reply, len(c.group))
	var wg sync.WaitGroup
	for i, s := range c.group {
		wg.Go(func() { replies[i] = s.send(t, r) })
	}
	wg.Wait()
	return replies
}
