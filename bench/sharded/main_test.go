// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/config"
	_ "github.com/prometheus/prometheus/discovery/http" // The configuration has its section.
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/stretchr/testify/require"
)

// fakeBinaries are files that are there and are never started.
func fakeBinaries(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o777))
	}
	return dir
}

func execution(t *testing.T, args ...string) error {
	t.Helper()
	return execute(t.Context(), append(args, "--manifests=../../deploy/kubernetes", "--data="+t.TempDir()), &bytes.Buffer{})
}

func TestWhatIsMissingIsToldBeforeAnythingStarts(t *testing.T) {
	err := execution(t, "run", "--bin="+fakeBinaries(t, "prometheus", "promguard"))
	require.ErrorContains(t, err, "peers/thanos: no such file or directory; make thanos builds it, --bin names another directory")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	bin := fakeBinaries(t, "prometheus", "promguard", "peers/thanos")
	err = execution(t, "run", "--bin="+bin, "--port="+strconv.Itoa(port))
	require.ErrorContains(t, err, "is in use; stop what uses it, or name another first port with --port")
	require.ErrorContains(t, execution(t, "run", "--bin="+bin, "--port=70000"), "--port: ")
}

func TestAProcessThatEndsAtTheStartIsToldWithItsLog(t *testing.T) {
	bin := fakeBinaries(t, "prometheus", "promguard", "peers/thanos")
	require.NoError(t, os.WriteFile(filepath.Join(bin, "prometheus"), []byte("#!/bin/sh\necho no room >&2\nexit 3\n"), 0o777))
	for _, name := range []string{"promguard", "peers/thanos"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\nexec sleep 60\n"), 0o777))
	}
	err := execution(t, "run", "--bin="+bin, "--port=0")
	require.ErrorContains(t, err, "stopped (exit status 3); its last log lines:\n  no room")
	require.ErrorContains(t, err, "prometheus-k8s-")
}

func TestProcessesAreStartedWithTheArgumentsOfTheManifests(t *testing.T) {
	o := options{
		bin: fakeBinaries(t, "prometheus", "promguard", "peers/thanos"), data: t.TempDir(), manifests: "../../deploy/kubernetes",
		shards: 3, replicas: 2, queries: 2, series: 1000, interval: time.Second, block: 2 * time.Hour,
	}
	c, err := newChain(o, nil)
	require.NoError(t, err)
	defer c.close()
	require.Equal(t, "query-frontend", c.frontend.args[0])
	require.Contains(t, c.frontend.args, "--query-range.split-interval=24h")
	require.Contains(t, c.query[1].args, "--query.replica-label="+replicaLabel)
	require.Contains(t, c.proxy.args, "--web.shutdown-timeout=125s")
	for _, p := range c.parts {
		for _, arg := range p.args {
			require.NotContains(t, arg, ".svc")
			require.NotContains(t, arg, "0.0.0.0")
		}
	}
	require.Equal(t, "prometheus-k8s-shard-2-1", c.pods[2][1].server.name)
}

func TestASecondChainLeavesTheDirectoryOfAnotherAlone(t *testing.T) {
	o := options{
		bin: fakeBinaries(t, "prometheus", "promguard", "peers/thanos"), data: t.TempDir(), manifests: "../../deploy/kubernetes",
		shards: 2, replicas: 1, queries: 1, series: 1000, interval: time.Second,
	}
	c, err := newChain(o, nil)
	require.NoError(t, err)
	defer c.close()
	before, err := os.ReadFile(c.endpoints)
	require.NoError(t, err)
	_, err = newChain(o, nil)
	require.ErrorContains(t, err, "is in use")
	after, err := os.ReadFile(c.endpoints)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	c.close()
	c, err = newChain(o, nil)
	require.NoError(t, err)
	c.close()
}

func TestArgumentsOfTheOperatorsObjectsAreReadToo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prometheus.yaml")
	require.NoError(t, os.WriteFile(file, []byte("kind: Prometheus\nspec: {additionalArgs: [{name: guard.api-timeout, value: 2m}], thanos: {additionalArgs: [{name: enable-auto-gomemlimit}]}}\n"), 0o666))
	for component, want := range map[string][]string{"server": {"--guard.api-timeout=2m"}, "sidecar": {"sidecar", "--enable-auto-gomemlimit"}} {
		args, err := arguments(file, component)
		require.NoError(t, err)
		require.Equal(t, want, args)
	}
	require.Equal(t, []string{"a", "--c=4", "--b=3"}, with([]string{"a", "--b=1", "--d.e=2", "--c=4"}, []string{"--d"}, "--b=3"))
}

func TestEveryTargetIsOfOneShard(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	targets, err := serveTargets(l, 20_000, nil, time.Second)
	require.NoError(t, err)
	defer targets.server.Close()
	const shards = 3
	kept, of := map[string]int{}, [shards]int{}
	for shard := range shards {
		c, err := config.Load(targets.prometheusConfig(time.Second, "r", shard, shards), nil)
		require.NoError(t, err)
		for _, s := range c.ScrapeConfigs {
			for _, target := range targets.cluster.Targets() {
				if target.Pool != s.JobName {
					continue
				}
				if keep := relabel.ProcessBuilder(labels.NewBuilder(target.Labels), s.RelabelConfigs...); keep {
					kept[target.Pool+target.Labels.String()]++
					of[shard]++
				}
			}
		}
	}
	require.Len(t, kept, targets.count)
	for target, n := range kept {
		require.Equal(t, 1, n, target)
	}
	require.NotContains(t, of, 0, "nothing is missing without that shard")
}

func TestSamplesOfABeatHaveItsTime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	targets, err := serveTargets(l, 1000, nil, time.Minute)
	require.NoError(t, err)
	defer targets.server.Close()
	target := targets.cluster.Targets()[0]
	text, err := targets.at(target, targets.start)
	require.NoError(t, err)
	require.Empty(t, text, "not all servers are there")
	targets.expose()
	at := targets.start.Add(2 * time.Minute)
	text, err = targets.at(target, at)
	require.NoError(t, err)
	require.NotEmpty(t, text)
	for line := range strings.Lines(string(text)) {
		require.True(t, line[0] == '#' || strings.HasSuffix(line, " "+strconv.FormatInt(at.UnixMilli(), 10)+"\n"), line)
	}
}

func TestAnswersAreComparedByLabelsTimesAndValues(t *testing.T) {
	vector := func(result string) *reply {
		r := &reply{Status: "success"}
		r.Data.ResultType, r.Data.Result = "vector", []byte(result)
		return r
	}
	want := vector(`[{"metric":{"a":"x"},"value":[1,"2"]}]`)
	for got, why := range map[string]string{
		`[{"metric":{"a":"x"},"value":[1,"2"]}]`:                                          "",
		`[{"metric":{"a":"x","prometheus":"monitoring/k8s"},"value":[1,"2.0000000001"]}]`: "",
		`[{"metric":{"a":"x"},"value":[1,"2.00001"]}]`:                                    `{a="x",} at 1 is 2.00001 in place of 2`,
		`[{"metric":{"a":"x"},"value":[2,"2"]}]`:                                          `{a="x",} at 1 is missing`,
		`[]`:                                                                              `{a="x",} at 1 is missing`,
		`[{"metric":{"a":"x"},"value":[1,"2"]},{"metric":{},"value":[1,"2"]}]`:            `{} at 1 should not be there`,
		`[{"metric":{"a":"x"},"value":[1,"2"]},{"metric":{"a":"x","prometheus":"monitoring/k8s"},"value":[1,"2"]}]`: `{a="x",} at 1 is there twice`,
	} {
		require.Equal(t, why, differs(vector(got), want), got)
	}
	require.Contains(t, differs(&reply{Status: "error", Error: "no"}, want), "error (no) in place of success")
}

func TestAConnectionGoesToABackendThatAccepts(t *testing.T) {
	s, err := newService("127.0.0.1:0")
	require.NoError(t, err)
	defer s.close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	there, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer there.Close()
	s.backends = []string{gone.Addr().String(), there.Addr().String()}
	require.NoError(t, gone.Close())
	go s.serve()
	go func() {
		for {
			conn, err := there.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("here"))
			_ = conn.Close()
		}
	}()
	for range 4 {
		conn, err := net.Dial("tcp", s.listener.Addr().String())
		require.NoError(t, err)
		text := make([]byte, 4)
		_, err = conn.Read(text)
		require.NoError(t, err)
		require.Equal(t, "here", string(text))
		_ = conn.Close()
	}
}

func TestAThousandthHasSoManyNodes(t *testing.T) {
	const nodes = 1
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	targets, err := serveTargets(l, seriesOf(nodes), controlPlane, 0)
	require.NoError(t, err)
	require.NoError(t, targets.server.Close())
	require.Equal(t, 3*nodes+1, targets.count, "node-exporter, kubelet, cAdvisor of each, kube-state-metrics")
}

func TestGrowthThatIsALineIsFoundAndOneThatIsNoneIsTold(t *testing.T) {
	x := []float64{1, 2, 4, 8}
	fixed, each, off := line(x, []float64{13, 16, 22, 34})
	require.InDelta(t, 10, fixed, 1e-9)
	require.InDelta(t, 3, each, 1e-9)
	require.Equal(t, []int{0, 0, 0, 0}, off)
	_, _, off = line(x, []float64{1, 4, 16, 64})
	require.Less(t, slices.Min(off), -50)

	var out bytes.Buffer
	measured := map[int]figures{}
	for i, size := range []int{1, 2, 4} {
		measured[size] = figures{"server": {"B/series": 1, "rss-B": float64(10 + 10*[]int{1, 2, 4}[i])}}
	}
	require.NoError(t, writeGrowth(&out, measured))
	require.Equal(t, `#
# PART    UNIT      1   2   4   LINE OF K THOUSANDTHS  OFF, %      FULL SIZE
# server  B/series  1   1   1                                      
# server  rss-B     20  30  50  10 + 10 k              [+0 +0 +0]  1.001e+04
`, out.String())
}
