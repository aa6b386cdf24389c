// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/promapi/promtest"
	"github.com/promguard/promguard/internal/relabel"
)

// runRules parses and runs one rules command and returns what it printed.
func runRules(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := runRulesTo(t, &out, args...)
	return out.String(), err
}

func runRulesTo(t *testing.T, w io.Writer, args ...string) error {
	t.Helper()
	app := kingpin.New("promguard", "")
	commands := rulesCommands(app, w, io.Discard)
	name, err := app.Parse(append([]string{"rules"}, args...))
	require.NoError(t, err)
	for _, c := range commands {
		if c.clause.FullCommand() == name {
			return c.run()
		}
	}
	t.Fatalf("no command runs for %s", name)
	return nil
}

func TestRulesPrintPrintsTheProfileThatTheBuildApplies(t *testing.T) {
	var want bytes.Buffer
	p, err := relabel.ProfileByName(relabel.ProfileRecommended)
	require.NoError(t, err)
	require.NoError(t, relabel.Render(&want, p, relabel.FormatMetricRelabelConfigs))

	byDefault, err := runRules(t, "print")
	require.NoError(t, err)
	require.Equal(t, want.String(), byDefault)

	asked, err := runRules(t, "print", "--profile=recommended", "--format=metric_relabel_configs")
	require.NoError(t, err)
	require.Equal(t, want.String(), asked)
}

func TestRulesPrintOfTheOffProfileDropsNothing(t *testing.T) {
	out, err := runRules(t, "print", "--profile=off")
	require.NoError(t, err)
	require.Contains(t, out, "metric_relabel_configs: []\n")
}

func TestRulesListHasALinePerRule(t *testing.T) {
	out, err := runRules(t, "list")
	require.NoError(t, err)
	p, err := relabel.ProfileByName(relabel.ProfileRecommended)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 1+len(p.Rules))
	require.Regexp(t, `^ID +CLASS +SCOPE +REASON$`, lines[0])
	for i, r := range p.Rules {
		require.True(t, strings.HasPrefix(lines[i+1], r.ID+" "), lines[i+1])
		require.Contains(t, lines[i+1], r.Reason)
	}
}

func TestRulesCommandsNameWhatIsAllowed(t *testing.T) {
	_, err := runRules(t, "print", "--profile=maximal")
	require.EqualError(t, err, `unknown drop-rules profile "maximal": use one of minimal, recommended, aggressive, off`)
	_, err = runRules(t, "list", "--profile=maximal")
	require.EqualError(t, err, `unknown drop-rules profile "maximal": use one of minimal, recommended, aggressive, off`)
	_, err = runRules(t, "print", "--format=toml")
	require.EqualError(t, err, `unknown format "toml": use one of metric_relabel_configs, write_relabel_configs, scrapeclass, servicemonitor, podmonitor, helm-values, alloy, vmagent`)
}

func TestRulesCommandsReportThatTheyCouldNotWrite(t *testing.T) {
	closed, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	for _, command := range []string{"print", "list"} {
		require.ErrorIs(t, runRulesTo(t, closed, command), os.ErrClosed, command)
	}
}

func TestJobWithOneTargetCountsAsInOneShard(t *testing.T) {
	up := func(job, instance, path string) labels.Labels {
		return labels.FromStrings("__name__", "up", "job", job, "instance", instance, "metrics_path", path)
	}
	api := promtest.New(t, time.Minute, up("ksm", "a", "/metrics"), up("ksm", "a", "/self"), up("node", "b", "/metrics"), up("node", "c", "/metrics"))
	file := filepath.Join(t.TempDir(), "rules.yaml")
	rules := `{groups: [{name: g, rules: [{record: a, expr: 'sum(kube_pod_info{job="ksm"})'}, {record: b, expr: 'sum(up{job="node"})'}]}]}`
	require.NoError(t, os.WriteFile(file, []byte(rules), 0o600))
	out, err := runRules(t, "check", "--sharded", "--rule-files="+file, "--prometheus.url="+api.URL)
	require.ErrorIs(t, err, cli.Exit(1))
	require.Contains(t, out, "2 rules: 1 may run in each shard, 1 over all shards only; 0 not checked.")
}
